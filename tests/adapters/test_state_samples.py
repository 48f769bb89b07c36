"""Every file of state has the format and the name that earlier daemons wrote and read.

The samples in `state_samples` were written by an earlier daemon. They are never written anew: a
daemon that is brought up to date finds the files of the one before.
"""

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from capd.adapters.definition_files import DefinitionFiles, LoadedDefinitions
from capd.adapters.habit_file import HabitFile
from capd.adapters.memory_outcome_file import MemoryOutcomeFile
from capd.adapters.model.vector_cache import VectorCache
from capd.adapters.result_store import ResultStore
from capd.adapters.servers.generation_file import GenerationFile
from capd.adapters.servers.http.token_store import FileStore
from capd.adapters.session_files import SessionFiles
from capd.adapters.tokens.piece_counts import PieceCounts
from capd.adapters.tool_lists import ToolList, ToolLists
from capd.adapters.trust.trust_file import TrustFile
from capd.core.definitions.baseline import Baseline, ToolChange, TrustedTool
from capd.core.memories.outcomes import MemoryOutcome, Outcomes
from capd.core.sessions.habits import Habit
from capd.core.sessions.session_record import (
    SavedActivation,
    SavedGrant,
    SavedServer,
    SavedTool,
    SavedView,
    SessionRecord,
)
from capd.core.trust.startable import Agreement
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    TapName,
    ToolDefinition,
    ToolName,
    WireName,
)

SAMPLES = Path(__file__).with_name("state_samples")
GIT = ServerIdentity("9c1e9c1e9c1e9c1e")
TAP = TapName("tap")
SPEC = ServerSpec(ServerName("git"), "stdio", TAP, command="git-mcp", env={"A": "{{ENV:A}}"})
TOOL = ToolDefinition(ToolName("log"), b'{"name":"log"}')
GRANT = SavedGrant(GIT, ToolName("log"), WireName("git__log"))
FAR = 4e9
"""A time at which nothing has expired yet."""

HABITS = [Habit("zed", "1.2", relists=True), Habit("codex", "", relists=False)]
OUTCOMES = Outcomes({"~/slow": MemoryOutcome(3, 2, 1), "tap/label": MemoryOutcome(1)})
GENERATIONS = {GIT: "2026-07-28"}
SESSION = SessionRecord(
    SessionKey("one"),
    "digest",
    FAR,
    [
        SavedActivation(
            CapabilitySpec(CapabilityId(TAP, CapabilityName("git")), "default", servers=(SPEC,)),
            [GIT],
            [GRANT],
            1.5,
        )
    ],
    [SavedServer(SPEC, GIT, [TOOL])],
    [GRANT],
    [GRANT],
    subscriptions={"file:///x": GIT},
    tools=[SavedTool(GIT, ToolName("log"), 2.5)],
    is_routed=False,
    memories=["~/slow"],
    view=SavedView("stable", "it lists once", "zed"),
)
BASELINE = Baseline(
    GIT,
    ServerName("git"),
    "pinned",
    {ToolName("log"): TrustedTool(("a" * 64,), b'{"name":"log"}', ("b" * 64,))},
    {ToolName("log"): ToolChange("changed", "c" * 64, b"{}", 2.5, is_rejected=True)},
)
AGREED = Agreement("git", "d" * 64, {"argv": "e" * 64})
VECTORS = {"one": np.arange(4, dtype=np.float32), "two": np.ones(4, np.float32)}
RESULT = b'{"content":[]}' * 100
LOGIN = '{"tokens":{"access_token":"a"}}'


class OneToken:
    """Every text is one token."""

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        await trio.lowlevel.checkpoint()
        return dict.fromkeys(texts, 1)


@dataclass(frozen=True)
class Sample:
    """A state file: how to write it into a folder, and what is read from it."""

    save: Callable[[Path], Awaitable[object]]
    load: Callable[[Path], Awaitable[Any]]
    value: Any
    given: tuple[str, ...] = ()
    """What is there before it is written, as it would else hold what is random."""


async def save_agreed(folder: Path) -> None:
    TrustFile(folder / "trust.json").write({"/src": {AGREED.digest: AGREED}})
    await trio.lowlevel.checkpoint()


async def load_agreed(folder: Path) -> Any:
    await trio.lowlevel.checkpoint()
    return TrustFile(folder / "trust.json").read().projects


async def save_vectors(folder: Path) -> None:
    VectorCache(folder / "vectors.bin", "model", 4).put(VECTORS)
    await trio.lowlevel.checkpoint()


async def load_vectors(folder: Path) -> Any:
    await trio.lowlevel.checkpoint()
    found = VectorCache(folder / "vectors.bin", "model", 4).get(VECTORS)
    return {text: vector.tolist() for text, vector in found.items()}


async def save_login(folder: Path) -> None:
    FileStore(folder).save("key", LOGIN)
    await trio.lowlevel.checkpoint()


async def load_login(folder: Path) -> Any:
    await trio.lowlevel.checkpoint()
    return FileStore(folder).load("key")


async def save_pieces(folder: Path) -> None:
    await PieceCounts(OneToken(), folder / "piece_counts.json").learn(["git log"])


async def load_pieces(folder: Path) -> Any:
    pieces = PieceCounts(OneToken(), folder / "piece_counts.json")
    await pieces.learn([])
    return pieces.costs.of("git log")


async def save_result(folder: Path) -> None:
    await ResultStore(folder, clock=lambda: FAR).keep(RESULT, SessionKey("one"), "git__log")


async def load_result(folder: Path) -> Any:
    store = ResultStore(folder, clock=lambda: FAR)
    [handle] = [path.stem for path in folder.glob("*.handle")]
    return await store.read(await store.record(handle), 0, len(RESULT))


SAMPLE_OF = {
    "habits": Sample(
        lambda folder: HabitFile(folder / "habits.json").save(HABITS),
        lambda folder: HabitFile(folder / "habits.json").load(),
        HABITS,
    ),
    "memories": Sample(
        lambda folder: MemoryOutcomeFile(folder / "memories.json").save(OUTCOMES),
        lambda folder: MemoryOutcomeFile(folder / "memories.json").load(),
        OUTCOMES,
    ),
    "generations": Sample(
        lambda folder: GenerationFile(folder / "eras.json").save(GENERATIONS),
        lambda folder: GenerationFile(folder / "eras.json").load(),
        GENERATIONS,
    ),
    "session": Sample(
        lambda folder: SessionFiles(folder).save(SESSION),
        lambda folder: SessionFiles(folder).load(SESSION.key),
        SESSION,
    ),
    "definitions": Sample(
        lambda folder: DefinitionFiles(folder).save(BASELINE),
        lambda folder: DefinitionFiles(folder).load_all(),
        [LoadedDefinitions(BASELINE)],
    ),
    "agreements": Sample(save_agreed, load_agreed, {"/src": {AGREED.digest: AGREED}}),
    "vectors": Sample(
        save_vectors,
        load_vectors,
        {text: vector.tolist() for text, vector in VECTORS.items()},
    ),
    "vectors_1": Sample(
        save_vectors,
        load_vectors,
        {text: vector.tolist() for text, vector in VECTORS.items()},
    ),
    "login": Sample(save_login, load_login, LOGIN),
    "pieces": Sample(save_pieces, load_pieces, 2),
    "result": Sample(save_result, load_result, RESULT, ("secret",)),
}


def copied(name: str, folder: Path) -> Path:
    """Return a folder with the files of a sample, private as they are in a state folder."""
    shutil.copytree(SAMPLES / name, folder / name)
    for file in (folder / name).iterdir():
        file.chmod(0o600)
    return folder / name


@pytest.mark.parametrize("name", SAMPLE_OF)
async def test_a_file_of_an_earlier_daemon_is_read(tmp_path: Path, name: str) -> None:
    sample = SAMPLE_OF[name]
    folder = copied(name, tmp_path)

    found = await sample.load(folder)

    assert found == sample.value


# A record of a session ends with a digest, which those of earlier daemons lack. Vectors had four
# bytes a number in the first version of their file.
@pytest.mark.parametrize("name", [n for n in SAMPLE_OF if n not in {"session", "vectors_1"}])
async def test_a_file_is_written_as_an_earlier_daemon_wrote_it(tmp_path: Path, name: str) -> None:
    sample = SAMPLE_OF[name]
    for given in sample.given:
        shutil.copy(SAMPLES / name / given, tmp_path)

    await sample.save(tmp_path)

    written = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert written == {each.name: each.read_bytes() for each in (SAMPLES / name).iterdir()}


async def test_the_tool_list_of_an_earlier_daemon_is_read(tmp_path: Path) -> None:
    folder = copied("tools", tmp_path)

    found = await ToolLists(folder).load(GIT)

    # When it was listed is the only thing in it that another run would have otherwise.
    assert found == ToolList(GIT, ServerName("git"), "1.2", 1.7e9, [TOOL])
