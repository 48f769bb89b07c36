"""systemd credentials: files that `LoadCredential=` puts there for this service alone."""

from collections.abc import Iterable
from pathlib import Path

from capd_protos.secret_places import FILE_LIMIT_BYTES


def read_credentials(folder: str, keys: Iterable[str]) -> dict[str, str]:
    """Return the values of `keys` that `folder` has; blocking, so it is for a thread."""
    if not folder:
        return {}
    found: dict[str, str] = {}
    for key in keys:
        try:
            with Path(folder, key).open("rb") as file:
                value = file.read(FILE_LIMIT_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            continue
        # What an editor or `echo` puts at the end of a file is not a part of a password.
        if value := value.removesuffix("\n").removesuffix("\r"):
            found[key] = value
    return found
