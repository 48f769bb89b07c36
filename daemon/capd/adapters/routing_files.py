"""The files for routing that come with capd: the profile, and background messages with vectors.

The profile has the constants of routing, such as thresholds.

`bench/routing_tuning.py` writes the profile, `bench/background_vectors.py` the vectors. Background
messages are messages that need no capability; evidence is measured against them
(`core/routing/evidence.py`). The files are read once, and the daemon never writes them.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from capd.adapters.model.minilm import ROUTING
from capd.core.errors import CapdError
from capd.core.routing.gates import RoutingProfile
from capd.core.taps.tap_vectors import TapVectorsError, read_vectors

if TYPE_CHECKING:
    from capd.core.routing.gates import Vectors

_MODEL_FOLDER = Path(__file__).with_name("model")
PROFILE_FILE = _MODEL_FOLDER / "routing_profile.json"
BACKGROUND_FILE = _MODEL_FOLDER / "background_messages.txt"
BACKGROUND_VECTORS_FILE = _MODEL_FOLDER / "background_vectors.bin"


class ProfileUnreadableError(CapdError):
    """A profile cannot be read; the text says which and why."""


def read_profile(file: Path = PROFILE_FILE) -> RoutingProfile:
    """Return the profile in `file`.

    Raises:
        ProfileUnreadableError: the file does not exist, or is not a profile.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=RoutingProfile)
    except (OSError, msgspec.MsgspecError) as error:
        raise ProfileUnreadableError(f"routing profile {file}: {error}") from None


def profile_text(profile: RoutingProfile) -> bytes:
    """Return `profile` in the format of its file, as bytes."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n"


@cache
def background_messages() -> tuple[str, ...]:
    """Return the background messages: messages that need no capability."""
    lines = BACKGROUND_FILE.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line.strip())


def background_vectors() -> "dict[str, Vectors]":
    """Return the shipped vectors of the background messages; empty if they cannot be used.

    Blocks.
    """
    try:
        data = BACKGROUND_VECTORS_FILE.read_bytes()
        return read_vectors(data, ROUTING.key, ROUTING.dimensions).of(background_messages())
    except (OSError, TapVectorsError):
        return {}
