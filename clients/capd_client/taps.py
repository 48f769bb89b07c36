"""The list of taps, `<config>/taps.toml`: `[[taps]]` with `name` and `path`, oldest first.

Everything else in the file stays as it is. The file is replaced as a whole, so that a reader sees
the list before or after a change.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capd_client.install.files import read
from capd_client.toml_files import parse, store
from capd_protos.places import make_folders

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_STARTER = "starter"
"""The tap that comes with capd."""
OWN = "own"
"""The tap with the servers that a person adds. Its folder has the same name, beside the list. Its
servers may do more than those of other taps, so no other tap may have this name."""
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_BROKEN = re.compile(rf"^taps = \[((?:name = {_STRING}\npath = {_STRING}\n)+)\]", re.MULTILINE)
"""The invalid text that an earlier capd wrote when it added a tap to an empty list, `taps = []`."""


class TapError(Exception):
    """A tap, or a part of the user's own tap, cannot be changed like this.

    The text says why, and what to do.
    """


def is_tap(folder: Path) -> bool:
    """Tell whether `folder` contains a tap."""
    return any((folder / part).is_dir() for part in ("capabilities", "skills"))


class TapList:
    """The list of taps below the configuration folder `config`.

    Raises:
        TapError: the file cannot be read as a list of taps, or a change is not possible.
        EditError: the changed file would not be valid; it is unchanged.
    """

    def __init__(self, config: str) -> None:
        self._folder = Path(config)
        self.path = self._folder / "taps.toml"

    def read(self) -> list[dict[str, str]]:
        """Return the `name` and `path` of each tap, oldest first."""
        return self._entries(self._load())

    def repair(self) -> bool:
        """Repair a list that an earlier version of capd broke; return whether it was broken."""
        if not self._is_broken():
            return False
        with self._locked():
            if not self._is_broken():
                return False
            store(self.path, self._load())
        return True

    def _is_broken(self) -> bool:
        with suppress(OSError, UnicodeDecodeError):
            return _BROKEN.search((read(self.path) or b"").decode()) is not None
        return False

    def add(self, folder: Path, name: str | None = None) -> dict[str, str]:
        """Append the tap in `folder` to the list, and return its entry.

        Its name is `name`, or else that of the folder.
        """
        folder = Path(os.path.abspath(folder.expanduser()))  # noqa: PTH100 - keeps symlinks
        if not is_tap(folder):
            raise TapError(
                f"{folder} is not a tap: it has no folder `capabilities`, nor `skills`\n"
                "Name the folder that holds it, or the address of a git repository."
            )
        name = folder.name if name is None else name
        if folder != self._folder.absolute() / OWN or name != OWN:
            _check_name(name)
        with self._locked():
            document = self._load()
            self._refuse_twice(name, self._entries(document))
            tap = {"name": name, "path": str(folder)}
            _append(document, tap)
            store(self.path, document)
        return tap

    def check_free(self, name: str) -> None:
        """Check that `name` is valid for a tap and not in use.

        `capd tap add` checks it before it clones a repository.
        """
        _check_name(name)
        self._refuse_twice(name, self.read())

    def remove(self, name: str) -> Path:
        """Remove the tap `name` from the list; return its folder, which stays."""
        with self._locked():
            document = self._load()
            entries = self._entries(document)
            names = [entry["name"] for entry in entries]
            at = names.index(find_name(name, names, f"no tap named {name} in {self.path}"))
            taps: Any = document["taps"]
            if len(entries) == 1:
                # An empty list is left out: tomlkit cannot append a table to `taps = []`.
                del document["taps"]
            else:
                del taps[at]
            store(self.path, document)
        return Path(entries[at]["path"])

    @staticmethod
    def _refuse_twice(name: str, entries: list[dict[str, str]]) -> None:
        for entry in entries:
            if entry["name"] == name:
                raise TapError(
                    f"a tap named {name} is there already, at {entry['path']}\n"
                    "Give this one another name with --name."
                )

    def _load(self) -> "TOMLDocument":
        from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - 25 ms, which few need

        try:
            return parse(_mended((read(self.path) or b"").decode("utf-8-sig")))
        except (TOMLKitError, UnicodeDecodeError) as error:
            raise TapError(f"{self.path} is not TOML: {error}\nCorrect it by hand.") from None

    def _entries(self, document: "TOMLDocument") -> list[dict[str, str]]:
        taps = document.unwrap().get("taps", [])
        if not isinstance(taps, list) or not all(_is_entry(each) for each in taps):
            raise TapError(
                f"in {self.path} `taps` is not a list of tables with `name` and `path`\n"
                "Correct it by hand."
            )
        return [{"name": each["name"], "path": each["path"]} for each in taps]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that keeps two commands from overwriting each other's changes."""
        make_folders(self._folder)
        with (self._folder / ".taps.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def find_name(name: str, names: Sequence[str], unknown: str) -> str:
    """Return the one of `names` that `name` means (`capd_protos.naming` has the rules).

    Raises:
        TapError: none fits, or several do; `unknown` is the first line of the message.
    """
    from capd_protos.naming import Named, NameTable, advice  # noqa: PLC0415 - 10 ms, which few need

    found = NameTable(names).find(name)
    if isinstance(found, Named):
        return found.name
    offered = advice(found) or f"There are: {', '.join(names) or 'none'}."
    raise TapError(f"{unknown}\n{offered}")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise TapError(
            f"{name!r} is not a valid tap name: use letters, digits, dots, dashes and underscores\n"
            "Give it one with --name."
        )
    if name == _STARTER:
        raise TapError(
            f"{_STARTER} is the tap that comes with capd\nGive this one another name with --name."
        )
    if name == OWN:
        raise TapError(
            f"{OWN} is the tap of what you add by `capd add`\n"
            "Give this one another name with --name."
        )


def _is_entry(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("path"), str)
    )


def _append(document: "TOMLDocument", tap: dict[str, str]) -> None:
    import tomlkit  # noqa: PLC0415
    from tomlkit.items import AoT, Array  # noqa: PLC0415

    taps: Any = document.get("taps")
    if isinstance(taps, Array) and taps:
        inline = tomlkit.inline_table()
        inline.update(tap)
        taps.append(inline)
        return
    if not isinstance(taps, AoT):
        # Append the tables at the end. Otherwise a key below `taps = []` would become a key of the
        # new table.
        document.pop("taps", None)
        taps = tomlkit.aot()
        document.append("taps", taps)
    table = tomlkit.table()
    table.update(tap)
    taps.append(table)


def _mended(text: str) -> str:
    """Return `text` with the taps of a broken list as tables at its end; else unchanged."""
    broken = _BROKEN.search(text)
    if broken is None:
        return text
    rest = (text[: broken.start()] + text[broken.end() :]).strip("\n")
    tables = re.sub(r"^name = ", "\n[[taps]]\nname = ", broken[1], flags=re.MULTILINE)
    return f"{rest}\n{tables}" if rest else tables.lstrip("\n")
