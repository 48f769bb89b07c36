"""`python -m capd tap build PATH`: writes a tap's `tools.json` and `vectors.bin`.

`tools.json` has the tools of the tap's servers, as `capd index` has saved them in the cache. A
server that is not in the cache keeps its earlier entry, and is named in the output. `vectors.bin`
has the vectors of the tap's phrases, and of those that capd's own overlays add. With these files,
the tap's users need not start its servers or compute its vectors.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from capd.adapters.model.minilm import ROUTING, MiniLM, ModelUnusableError
from capd.adapters.overlay_files import read_overlays
from capd.adapters.tap_files import TapPlace, TapUnreadableError, read_tap, tap_vectors
from capd.adapters.tool_lists import ToolLists
from capd.core.routing.scorers import texts_of
from capd.core.servers.identity import server_identity
from capd.core.taps import tap_vectors as vectors_format
from capd.core.taps.catalog import Tap
from capd.core.taps.overlays import overlaid
from capd.core.taps.tool_snapshot import FILE, MOST_BYTES, read_snapshot, written_snapshot
from capd_protos.types import ServerIdentity, ServerName, TapName, ToolDefinition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

USAGE = "usage: capd tap build PATH"
TOGETHER = 64
"""How many texts the model is given at a time."""
FAILED = 1
WRONG_USAGE = 2


def main(arguments: Sequence[str], cache: Path) -> int:
    """Write the files of the tap that `arguments` name; return the exit code.

    `cache` is capd's cache folder, which has the saved tool lists.
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write(USAGE + "\n")
        return WRONG_USAGE
    folder = Path(arguments[0])
    try:
        tap = read_tap(TapPlace(TapName(folder.resolve().name), folder))
    except TapUnreadableError as error:
        sys.stderr.write(f"capd: {error}\n")
        return FAILED
    servers = {
        server_identity(server): server.name
        for capability in tap.capabilities
        for server in capability.servers
        if server.transport != "builtin"
    }
    kept = trio.run(ToolLists(cache / "tools").load_all, sorted(servers))
    file, of_vectors = folder / FILE, folder / vectors_format.FILE
    versions = _versions(file)
    listed: list[tuple[ServerIdentity, ServerName, str, Sequence[ToolDefinition]]] = []
    missing: list[str] = []
    for identity, name in servers.items():
        own = kept.get(identity)
        if own is not None:
            listed.append((identity, name, own.server_version, own.tools))
            continue
        missing.append(name)
        if identity in tap.tool_lists:
            listed.append((identity, name, versions.get(identity, ""), tap.tool_lists[identity]))
    texts = phrases(tap)
    try:
        vectors = embedded(texts, shipped(tap, texts))
    except ModelUnusableError as error:
        sys.stderr.write(f"capd: {error}\n")
        return FAILED
    try:
        _write(file, written_snapshot(listed))
        _write(of_vectors, vectors_format.written_vectors(vectors, ROUTING.key, ROUTING.dimensions))
    except OSError as error:
        sys.stderr.write(f"capd: {error.filename or file}: {error.strerror}\n")
        return FAILED
    tools = sum(len(each) for *_, each in listed)
    sys.stdout.write(f"{of_vectors}: the vectors of {len(vectors)} phrases\n")
    sys.stdout.write(f"{file}: {tools} tools of {len(listed)} servers\n")
    if missing:
        who = "1 server has" if len(missing) == 1 else f"{len(missing)} servers have"
        sys.stderr.write(
            f"capd: {who} not listed tools yet: {', '.join(sorted(missing))} (`capd index` asks)\n"
        )
    return 0


def phrases(tap: Tap) -> list[str]:
    """Return the texts that messages are compared with, for `tap` with the shipped overlays."""
    # The path does not exist, so that only the shipped overlays are read.
    whole = overlaid([tap], read_overlays(Path("/nonexistent/taps.toml"))).taps[0]
    return list(dict.fromkeys(text for each in whole.capabilities for text in texts_of(each)))


def shipped(tap: Tap, texts: Sequence[str]) -> "Mapping[str, Vectors]":
    """Return the vectors that `tap` contains already for any of `texts`, by text."""
    known = tap_vectors(tap)
    return {} if known is None else known.of(texts)


def embedded(texts: Sequence[str], known: "Mapping[str, Vectors]") -> "dict[str, Vectors]":
    """Return the vector of each text. The model is loaded only for texts that are not in `known`.

    Raises:
        ModelUnusableError: the model is needed, and cannot be loaded.
    """
    found = dict(known)
    # Sorted by length, so that the texts of a batch need little padding.
    missing = sorted((text for text in texts if text not in found), key=len)
    model = MiniLM() if missing else None
    for at in range(0, len(missing), TOGETHER):
        together = missing[at : at + TOGETHER]
        assert model is not None
        found.update(zip(together, model.embed(together, is_changed=True), strict=True))
    return found


def _versions(file: Path) -> Mapping[ServerIdentity, str]:
    """Return the version of each server that is recorded in an earlier `tools.json`."""
    try:
        with file.open("rb") as opened:
            return read_snapshot(opened.read(MOST_BYTES + 1)).versions
    except OSError:
        return {}


def _write(file: Path, data: bytes) -> None:
    partial = file.with_name(f".{file.name}.partial")
    partial.write_bytes(data)
    partial.replace(file)
