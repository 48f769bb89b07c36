"""Plans and makes changes to clients' files, so that each can be undone.

All files are read and all changes decided before the first is made, so that a file that cannot be
parsed leaves all others untouched. Undoing restores the original's bytes if nobody has changed the
file since; otherwise it removes only what capd put in.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

from capd_client.install import InstallError, UnreadableError
from capd_client.install.documents import read_document
from capd_client.install.files import read, real_path, replace
from capd_client.install.known_clients import Format
from capd_client.install.ledger import Ledger, digest

_FORMATS: Mapping[str, Format] = {
    ".json": "json",
    ".jsonc": "json",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}


@dataclass(frozen=True, slots=True)
class FileEdit:
    """How capd is added to the text of one file, and how it is removed again.

    `add` and `remove` are pure functions. They raise `UnreadableError` for a text that they cannot
    edit.
    """

    path: Path
    add: Callable[[str], str]
    remove: Callable[[str, str | None], str]
    """Takes the file's text, and the text from before capd was installed (None if unknown)."""
    mode: int | None = None
    """The mode of a new file; None means 0600."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The content of one file before and after a change; None means that there is no file."""

    path: Path
    before: bytes | None
    after: bytes | None
    original: bytes | None = None
    """The content before capd was installed. The ledger keeps it as a backup for `uninstall`."""
    mode: int | None = None
    """The mode of a new file."""

    @property
    def is_none(self) -> bool:
        """Whether the file does not change."""
        return self.before == self.after

    def diff(self) -> str:
        """Return the change as a unified diff; empty if there is none."""
        lines = difflib.unified_diff(
            _lines(self.before),
            _lines(self.after),
            "/dev/null" if self.before is None else str(self.path),
            "/dev/null" if self.after is None else str(self.path),
        )
        ended = (line if line.endswith("\n") else f"{line}\n" for line in lines)
        return "".join(ended)


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode("utf-8", "replace").splitlines(keepends=True)


def is_made(edit: FileEdit) -> bool:
    """Tell whether a file already has what `edit` adds to it.

    Raises:
        InstallError: the file cannot be parsed or edited.
        OSError: the file cannot be read.
    """
    text = _text(edit.path, read(edit.path))
    return _edited(edit.path, partial(edit.add, text)) == text


def plan_install(ledger: Ledger, edits: Iterable[FileEdit]) -> list[FileChange]:
    """Return the change to each file that `edits` make; nothing is written.

    A file that does not change gets a `FileChange` as well (`FileChange.is_none`).

    Raises:
        InstallError: a file or the ledger cannot be parsed, or a file cannot be edited.
        OSError: a file cannot be read.
    """
    entries = ledger.entries()
    changes = []
    for edit in _joined(edits):
        path = edit.path
        before = read(path)
        text = _text(path, before)
        after = _edited(path, partial(edit.add, text))
        _check_format(path, after.encode())
        original = before
        entry = entries.get(path)
        if entry is not None and before is not None:
            original = ledger.original(entry)
            if digest(before) != entry.left:
                # Someone changed the file since. Its original is now this text without capd.
                known = None if original is None else _text(path, original)
                rest = _edited(path, partial(edit.remove, text, known))
                original = rest.encode()
        unchanged = before is not None and after == text
        data = before if unchanged else after.encode()
        changes.append(
            FileChange(path, before, data, original, edit.mode if before is None else None)
        )
    return changes


def make(ledger: Ledger, change: FileChange) -> Path | None:
    """Write a change from `plan_install` and note it in the ledger.

    Return the path of the backup; None if the file did not exist before capd.

    Raises:
        InstallError: the file changed since the plan was made.
        AssertionError: the change removes the file, which an installation never does.
    """
    if change.after is None:
        raise AssertionError(change.path)
    # Noted first. After a crash in between, the entry's digest matches no file. So `uninstall` only
    # looks for capd's part, and finds nothing to remove.
    backup = ledger.note(change.path, original=change.original, left=change.after)
    _check(change)
    change.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(change.path, change.after, change.mode, check=partial(_check_format, change.path))
    return backup


def plan_uninstall(
    ledger: Ledger,
    edits: Iterable[FileEdit],
    data_of: Callable[[Path], bytes | None] = read,
) -> list[FileChange]:
    """Return the change to each file of `edits` that removes capd; nothing is written.

    `ledger` has the original contents. `data_of` returns the present content of a file, or what an
    earlier step will make of it.

    Raises:
        InstallError: a file that was changed since the installation cannot be parsed or edited.
    """
    entries = ledger.entries()
    changes = []
    for edit in _joined(edits):
        path = edit.path
        before = data_of(path)
        entry = entries.get(path)
        original = None if entry is None else ledger.original(entry)
        if before is None:
            changes.append(FileChange(path, None, None))
        elif entry is not None and digest(before) == entry.left:
            changes.append(FileChange(path, before, original, original))
        else:
            text = _text(path, before)
            known = None if entry is None else _text(path, original)
            after = _edited(path, partial(edit.remove, text, known))
            _check_format(path, after.encode())
            changes.append(FileChange(path, before, after.encode(), original))
    return changes


def unmake(ledger: Ledger, change: FileChange) -> Path | None:
    """Write a change from `plan_uninstall` and remove its entry from the ledger.

    The backup is kept if the file is not exactly the original again. Return its path; None if no
    backup is kept.

    Raises:
        InstallError: the file changed since the plan was made.
    """
    if not change.is_none:
        _check(change)
        if change.after is None:
            change.path.unlink(missing_ok=True)
        else:
            # The user's original is restored, whatever its format.
            is_theirs = change.after == change.original
            check = None if is_theirs else partial(_check_format, change.path)
            replace(change.path, change.after, check=check)
    if change.path not in ledger.entries():
        return None
    return ledger.forget(change.path, keep_backup=change.after != change.original)


def _joined(edits: Iterable[FileEdit]) -> list[FileEdit]:
    """Return one edit for each file, which joins all edits of the file.

    A server's entry and a hook may be in one file. Links are resolved first.
    """
    by_path: dict[Path, list[FileEdit]] = {}
    for edit in edits:
        by_path.setdefault(real_path(edit.path), []).append(edit)
    return [_all_of(path, each) for path, each in by_path.items()]


def _all_of(path: Path, edits: list[FileEdit]) -> FileEdit:
    def add(text: str) -> str:
        return reduce(lambda done, edit: edit.add(done), edits, text)

    def remove(text: str, original: str | None) -> str:
        return reduce(lambda left, edit: edit.remove(left, original), reversed(edits), text)

    return FileEdit(path, add, remove, edits[0].mode)


def _check(change: FileChange) -> None:
    """Check that the file still has the content that the change was planned from.

    Raises:
        InstallError: it has not.
    """
    if read(change.path) != change.before:
        raise InstallError(
            f"{change.path} was changed by another program at this moment\n"
            "Nothing was written to it. Run the command again."
        )


def _text(path: Path, data: bytes | None) -> str:
    try:
        return "" if data is None else data.decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _refusal(path, line, "it is not UTF-8") from None


def _edited(path: Path, edit: Callable[[], str]) -> str:
    try:
        return edit()
    except UnreadableError as error:
        raise _refusal(path, error.line, str(error)) from None


def _check_format(path: Path, data: bytes) -> None:
    """Check that a client can read `data`, the new content of its file `path`.

    Raises:
        InstallError: `data` is not in the format that the file's name says.
    """
    kind = _FORMATS.get(path.suffix)
    if kind is None:
        return
    try:
        read_document(data.decode(), kind)
    except (UnreadableError, UnicodeDecodeError) as error:
        raise InstallError(
            f"{path} would not be readable after the change: {error}\n"
            "Nothing was changed. Make the change in the file by hand."
        ) from None


def _refusal(path: Path, line: int, reason: str) -> InstallError:
    return InstallError(
        f"{path}, line {line}: {reason}\nNothing was changed. Correct the file, then try again."
    )
