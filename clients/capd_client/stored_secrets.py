"""Where `capd secret` stores a value: in the system's keyring, or in `secrets.env`.

The value comes from a hidden prompt or from standard input, never from an argument, because
arguments are visible in the process list. The stored value is read back before the command reports
success.
"""

import contextlib
import io
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from capd_client.install.files import naming
from capd_protos.places import make_folders
from capd_protos.secret_places import (
    FILE_LIMIT_BYTES,
    KEY,
    KEYRING_SERVICE,
    WORST_KEYRING,
    refusal_of_mode,
)

if TYPE_CHECKING:
    from dotenv.parser import Binding
    from keyring.backend import KeyringBackend


class SecretError(Exception):
    """A secret was not stored or not removed; the text never contains a value."""


def checked_key(key: str) -> str:
    """Return `key` if it is valid.

    Raises:
        SecretError: a placeholder `{{ENV:KEY}}` cannot contain this key.
    """
    if KEY.fullmatch(key):
        return key
    text = f"{key[:100]!r} is not a valid key: use letters, digits and _, as in GITHUB_TOKEN"
    raise SecretError(text)


def checked_value(value: str) -> str:
    """Return `value` if it is valid.

    Raises:
        SecretError: it is empty, or an environment variable cannot hold it.
    """
    if not value:
        raise SecretError("the value is empty, and an empty one counts as missing")
    if "\0" in value:
        raise SecretError("the value has a NUL in it, which no environment takes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SecretError("the value is not UTF-8") from None
    return value


def keep_in_keyring(key: str, value: str) -> None:
    """Store `value` in the keyring under `key`, replacing an earlier value.

    Raises:
        SecretError: there is no safe keyring, or it fails.
    """
    hint = "keep it in a file with --file"
    with _keyring(hint) as backend:
        backend.set_password(KEYRING_SERVICE, key, value)
        if backend.get_password(KEYRING_SERVICE, key) != value:
            raise SecretError(f"the keyring took {key} and does not give it back: {hint}")


def remove_from_keyring(key: str) -> bool:
    """Remove `key` from the keyring; return whether it was there.

    Raises:
        SecretError: there is no safe keyring, or it fails.
    """
    with _keyring("unlock it and try again") as backend:
        if backend.get_password(KEYRING_SERVICE, key) is None:
            return False
        backend.delete_password(KEYRING_SERVICE, key)
        return True


def has_keyring() -> bool:
    """Tell whether there is a keyring that stores secrets safely."""
    return _backend() is not None


def in_keyring(key: str) -> str | None:
    """Return the value of `key` in the keyring; None if it has none, or there is no keyring.

    Raises:
        SecretError: the keyring fails.
    """
    if not has_keyring():
        return None
    with _keyring("unlock it and try again") as backend:
        return backend.get_password(KEYRING_SERVICE, key)


def in_file(file: Path) -> dict[str, str]:
    """Return the values in the file of secrets, by key.

    Raises:
        SecretError: others can read the file, or it is too large, not UTF-8 or not a regular file.
    """
    return _values("".join(_lines(file)))


def keep_in_file(file: Path, key: str, value: str) -> None:
    """Store `value` in a new last line of `file`; lines that set `key` are removed.

    Raises:
        SecretError: as for `in_file`, or the file's syntax cannot represent the value.
    """
    lines = _lines(file)
    before = _values("".join(lines))
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    written = value.replace("\\", "\\\\").replace("'", "\\'")
    kept = [line for line, name in _named(lines) if name != key]
    text = "".join([*kept, f"{key}='{written}'\n"])
    if {b.key: b.value for b in _bindings(text)}.get(key) != value:
        raise SecretError(f"{file} cannot hold this value: dotenv has no way to write it")
    _replace(file, text, before | {key: value})


def remove_from_file(file: Path, key: str) -> bool:
    """Remove `key` from `file`; return whether it was there.

    Raises:
        SecretError: as for `in_file`.
    """
    lines = _lines(file)
    before = _values("".join(lines))
    named = _named(lines)
    kept = [text for text, name in named if name != key]
    if len(kept) == len(named):
        return False
    before.pop(key, None)
    _replace(file, "".join(kept), before)
    return True


@contextlib.contextmanager
def _keyring(hint: str) -> "Iterator[KeyringBackend]":
    backend = _backend()
    if backend is None:
        raise SecretError(f"there is no keyring here that keeps secrets safely: {hint}")
    try:
        yield backend
    except SecretError:
        raise
    except Exception as error:  # noqa: BLE001 - a plug-in's own, of whatever kind
        # Only the error's type: its text may quote the value.
        raise SecretError(f"the keyring failed with {type(error).__name__}: {hint}") from None


def is_keyring_installed() -> bool:
    """Tell whether the package `keyring`, an extra of capd, is installed."""
    from importlib.util import find_spec  # noqa: PLC0415 - no other command needs it

    return find_spec("keyring") is not None


def _backend() -> "KeyringBackend | None":
    if not is_keyring_installed():
        return None
    import keyring  # noqa: PLC0415 - it looks through everything that is installed

    backend = keyring.get_keyring()
    return backend if backend.priority >= WORST_KEYRING else None


def _lines(file: Path) -> list[str]:
    """Return the statements of `file`, each with its line end; none if there is no file."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SecretError(f"{file} is left as it is: {error.strerror}") from None
    with open(fd, "rb") as opened:  # noqa: PTH123 - a descriptor, not a path
        status = os.fstat(fd)
        problem = refusal_of_mode(status.st_mode, status.st_uid, os.getuid())
        if not stat.S_ISREG(status.st_mode):
            problem = "it is no regular file"
        elif status.st_size > FILE_LIMIT_BYTES:
            problem = f"it has more than {FILE_LIMIT_BYTES} bytes"
        if problem:
            raise SecretError(f"{file} is left as it is: {problem}")
        try:
            text = opened.read().decode()
        except UnicodeDecodeError as error:
            where = f"byte {error.start} is not UTF-8"
            raise SecretError(f"{file} is left as it is: {where}") from None
    return [binding.original.string for binding in _bindings(text)]


def _named(lines: list[str]) -> list[tuple[str, str | None]]:
    return [(line, next((b.key for b in _bindings(line)), None)) for line in lines]


def _bindings(text: str) -> "Iterator[Binding]":
    from dotenv.parser import parse_stream  # noqa: PLC0415 - no other command needs it

    return parse_stream(io.StringIO(text))


def _values(text: str) -> dict[str, str]:
    return {each.key: each.value for each in _bindings(text) if each.key and each.value}


def _check_written(file: Path, written: Path, wanted: Mapping[str, str]) -> None:
    if _values(written.read_bytes().decode()) != wanted:
        # The message never contains a value, neither the given one nor the one read back.
        raise SecretError(
            f"{file} is left as it is: an edit of it would change other lines; edit it by hand"
        )


def _replace(file: Path, text: str, wanted: Mapping[str, str]) -> None:
    """Replace the file by `text`, but only if the written copy reads back as exactly `wanted`."""
    # The target of a link is replaced; the link stays.
    real = file.resolve()
    make_folders(real.parent)
    with naming(file):
        _write(file, real, text, wanted)


def _write(file: Path, real: Path, text: str, wanted: Mapping[str, str]) -> None:
    fd, name = tempfile.mkstemp(dir=real.parent, prefix=".secrets-")  # 0600 from its first moment
    try:
        with os.fdopen(fd, "w", encoding="utf-8", newline="") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        _check_written(file, Path(name), wanted)
        Path(name).replace(real)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
