"""Edits the user's TOML files; each new text is parsed again before it replaces the file."""

import codecs
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capd_client.install.files import read, real_path, replace

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

PRIVATE = 0o600


class EditError(Exception):
    """A file was not edited; the text says why, and what to do."""


def parse(text: str) -> "TOMLDocument":
    """Return `text` as a document that can be edited and stored.

    A last line without a line end gets one: tomlkit would append the next table to that line.

    Raises:
        TOMLKitError: it is not TOML.
    """
    import tomlkit  # noqa: PLC0415 - 25 ms that most commands have no use for

    return tomlkit.parse(text if not text or text.endswith("\n") else f"{text}\n")


def load(path: Path) -> "TOMLDocument":
    """Return the file at `path` as a document; an empty one if there is no file.

    A byte order mark at its start, as editors on Windows write it, is left out.

    Raises:
        OSError: it cannot be read, or is not a regular file.
        TOMLKitError, UnicodeDecodeError: it is not TOML.
    """
    return parse((read(path) or b"").decode("utf-8-sig"))


def store(path: Path, document: "TOMLDocument") -> None:
    """Replace the file at `path`, or the file to which the link `path` leads, by `document`'s text.

    A byte order mark at the start of the file stays.

    The file gets the mode 0600. The text is written beside the file and read again with another
    parser, because tomlkit can write what is not TOML: appending to `taps = []` gives
    `taps = [name = "x"`.

    Raises:
        EditError: the text does not parse to the data of `document`, or cannot be UTF-8; the file
            is unchanged.
    """
    wanted = document.unwrap()
    real = real_path(path)
    data = _encoded(path, document.as_string())
    if (read(real) or b"").startswith(codecs.BOM_UTF8):
        data = codecs.BOM_UTF8 + data
    replace(real, data, PRIVATE, check=lambda data: _check(path, data, wanted))


def text_of(path: Path, tables: dict[str, Any]) -> str:
    """Return `tables` as the text of a new file at `path`.

    Raises:
        EditError: they cannot be written as TOML, or not in UTF-8.
    """
    import tomlkit  # noqa: PLC0415 - 25 ms that most commands have no use for

    text = tomlkit.dumps(tables)
    _check(path, _encoded(path, text), tables)
    return text


def _encoded(path: Path, text: str) -> bytes:
    """Return `text` in UTF-8.

    Raises:
        EditError: a path or an argument in it is not UTF-8.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        line = text[: error.end].count("\n")
        raise EditError(
            f"{path} can only hold UTF-8, and this is not: {text.splitlines()[line].strip()}\n"
            "Nothing was changed. Rename what has that name, or write it in UTF-8."
        ) from None


def _check(path: Path, data: bytes, wanted: dict[str, Any]) -> None:
    try:
        found = tomllib.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        raise _refusal(path, str(error)) from None
    if found != wanted:
        raise _refusal(path, "the new text would not say the same")


def _refusal(path: Path, reason: str) -> EditError:
    return EditError(
        f"{path} cannot be edited as it is written: {reason}\n"
        "Nothing was changed. Make the change in the file by hand, or write it more simply."
    )
