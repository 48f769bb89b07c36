"""Edits the user's TOML files; each new text is parsed again before it replaces the file."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capd_client.install.files import replace

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

PRIVATE = 0o600


class EditError(Exception):
    """A file was not edited; the text says why, and what to do."""


def store(path: Path, document: "TOMLDocument") -> None:
    """Replace the file at `path` by the text of `document`.

    The text is written beside the file and read again with another parser. tomlkit can write what
    is not TOML: appending to `taps = []` gives `taps = [name = "x"`.

    Raises:
        EditError: the text does not parse to the data of `document`; the file is unchanged.
    """
    wanted = document.unwrap()
    replace(
        path, document.as_string().encode(), PRIVATE, check=lambda data: _check(path, data, wanted)
    )


def text_of(path: Path, tables: dict[str, Any]) -> str:
    """Return `tables` as the text of a new file at `path`.

    Raises:
        EditError: they cannot be written as TOML.
    """
    import tomlkit  # noqa: PLC0415 - 25 ms that most commands have no use for

    text = tomlkit.dumps(tables)
    _check(path, text.encode(), tables)
    return text


def _check(path: Path, data: bytes, wanted: dict[str, Any]) -> None:
    try:
        found = tomllib.loads(data.decode())
    except ValueError as error:
        raise _refusal(path, str(error)) from None
    if found != wanted:
        raise _refusal(path, "the new text would not say the same")


def _refusal(path: Path, reason: str) -> EditError:
    return EditError(
        f"{path} cannot be edited as it is written: {reason}\n"
        "Nothing was changed. Make the change in the file by hand, or write it more simply."
    )
