"""Five hundred spoilings of every file that capd keeps or is configured by.

None is an exception; what cannot be read is told; what is capd's own is written anew and read back.
"""

import hashlib
import random
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from capd.adapters.client_table import client_table
from capd.adapters.clients.http_front.bearer_token import TokenUnsafeError, load_token
from capd.adapters.configuration import load_configuration
from capd.adapters.ledger.database import Database
from capd.adapters.model.vector_cache import VectorCache
from capd.adapters.overlay_files import read_overlays
from capd.adapters.result_store import NotKeptError, ResultStore
from capd.adapters.secrets.secrets_file import SecretsFile
from capd.adapters.servers.generation_file import GenerationFile
from capd.adapters.servers.http.login_record import LoginRecord
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.adapters.servers.http.token_store import FileStore
from capd.adapters.session_files import SessionFiles
from capd.adapters.session_settings import session_rules
from capd.adapters.tap_files import TapUnreadableError, read_tap, tap_places
from capd.adapters.tool_lists import ToolLists
from capd.core.records.retention import Retention
from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import ActiveSet
from capd.core.sessions.session import ServerLease, SessionState, SingleTool
from capd.core.sessions.session_record import recorded, restore
from capd.core.sessions.surface import Surface
from capd_client.install import InstallError
from capd_client.install.ledger import Ledger as InstallLedger
from capd_client.shim.handshakes import Handshakes
from capd_protos.ledger import ActivationNote, DecisionNote
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    TapName,
    ToolDefinition,
    ToolName,
    WireName,
)

from .spoiling import ROUNDS, spoiled

pytestmark = pytest.mark.reliability

ONE, TAP = SessionKey("one"), TapName("tap")
GIT = ServerSpec(ServerName("git"), "stdio", TAP, command="git-mcp", env={"A": "{{ENV:A}}"})
IDENTITY = server_identity(GIT)
TOOLS = [ToolDefinition(ToolName(n), b'{"name":"%s"}' % n.encode()) for n in ("log", "diff")]
ID = CapabilityId(TAP, CapabilityName("git"))
CAPABILITY = CapabilitySpec(ID, "default", servers=(GIT,), triggers=("what changed",))


@dataclass
class Kept:
    """A state file, with functions that write and read it."""

    path: Path
    use: Callable[[list[str]], Awaitable[None]]
    """Do everything that the daemon does with it; what is told goes into the list."""
    form: str = ""
    renew: Callable[[], Awaitable[bool]] | None = None
    """Write it anew, and tell whether it is read back: where capd writes it."""


def session_state() -> SessionState:
    return SessionState(ActiveSet(), Surface([(WireName("capability"), b"{}")]))


async def sessions(folder: Path) -> Kept:
    files = SessionFiles(folder)
    before = session_state()
    before.activate(CAPABILITY, [ServerLease(GIT, IDENTITY, InstanceId("i"), tuple(TOOLS))], 1.0)
    other = ServerSpec(ServerName("fs"), "stdio", TAP, command="fs")
    before.activate_tools([SingleTool(other, server_identity(other), TOOLS[0], ID)], 2.0)
    record = recorded(ONE, before, "token", 4e9, {"file:///x": IDENTITY})
    await files.save(record)

    async def use(told: list[str]) -> None:
        del told
        found = await files.load(ONE)
        if found is not None:
            after = session_state()
            restore(found, after)
            # What came back can be used, and written down again.
            after.begin_turn()
            after.update_server(IDENTITY, InstanceId("j"), TOOLS)
            recorded(ONE, after, "token", 1.0)

    async def renew() -> bool:
        await files.save(record)
        return await files.load(ONE) == record

    return Kept(next(folder.iterdir()), use, "msgpack", renew)


async def generations(folder: Path) -> Kept:
    path = folder / "eras.json"
    file = GenerationFile(path)
    known = {ServerIdentity(f"{n:016x}"): "2026-07-28" for n in range(20)}
    await file.save(known)

    async def use(told: list[str]) -> None:
        del told
        await file.load()

    async def renew() -> bool:
        await file.save(known)
        return await file.load() == known

    return Kept(path, use, "json", renew)


async def tool_lists(folder: Path) -> Kept:
    identity = ServerIdentity("0123456789abcdef")
    await ToolLists(folder).keep(identity, GIT.name, "1", TOOLS)

    async def use(told: list[str]) -> None:
        del told
        lists = ToolLists(folder)
        await lists.load(identity)
        await lists.load_all([identity])

    async def renew() -> bool:
        lists = ToolLists(folder)
        await lists.keep(identity, GIT.name, "1", TOOLS)
        found = await lists.load(identity)
        return found is not None and found.tools == TOOLS

    return Kept(next(folder.iterdir()), use, "msgpack", renew)


async def vectors(folder: Path) -> Kept:
    path = folder / "vectors.bin"
    rows = {f"text {n}": np.full(8, n, np.float32) for n in range(30)}
    VectorCache(path, "model", 8).put(rows)

    async def use(told: list[str]) -> None:
        cache = VectorCache(path, "model", 8)
        cache.get(rows)
        told += [cache.reason] if cache.reason else []

    async def renew() -> bool:
        VectorCache(path, "model", 8).put(rows)
        return len(VectorCache(path, "model", 8)) == len(rows)

    return Kept(path, use, renew=renew)


async def login(folder: Path) -> Kept:
    spec = RemoteSpec("far", "https://far.example/mcp")
    record = LoginRecord(
        {"access_token": "a", "refresh_token": "r"}, {"client_id": "c"}, {}, None, 4e9
    )
    await Logins(folder, FileStore(folder)).of(spec).keep(record)

    async def use(told: list[str]) -> None:
        del told
        found = Logins(folder, FileStore(folder)).of(spec)
        await found.lacking()
        await found._load()
        if found._kept.record is not None:
            # What every request reads of it.
            found._kept.record.access_token.encode()
            found._kept.record.tokens.get("refresh_token")

    async def renew() -> bool:
        await Logins(folder, FileStore(folder)).of(spec).keep(record)
        again = Logins(folder, FileStore(folder)).of(spec)
        await again._load()
        return again._kept.record == record

    return Kept(next(folder.iterdir()), use, "json", renew)


async def secrets_env(folder: Path) -> Kept:
    path = folder / "secrets.env"
    path.write_text("".join(f"KEY_{n}='value {n}'\n" for n in range(20)))
    path.chmod(0o600)

    async def use(told: list[str]) -> None:
        file = SecretsFile(path)
        file.values()
        told += [file.problem] if file.problem else []

    return Kept(path, use)


async def clients_toml(folder: Path) -> Kept:
    path = folder / "clients.toml"
    path.write_text(
        '[zed]\nnames = ["zed"]\nname_limit = 60\nmode = "stable"\n[mine]\ncontext = 5000\n'
    )
    configuration, _ = load_configuration(folder / "none", {})

    async def use(told: list[str]) -> None:
        table, problems = client_table(path)
        session_rules(configuration, table)
        told += problems

    return Kept(path, use, "toml")


CONFIG = """
[servers]
linger = 5
[sessions]
tools = 20
[surface]
pins = ["git:log"]
[policy]
deny = ["rm"]
[policy.projects."/src"]
allow = ["git:*"]
[results]
limit = 1000
[results.servers]
git = 5
[clients.zed]
domain = "work"
[projects."~/x"]
domain = "play"
[ledger]
days = 3
"""


async def config_toml(folder: Path) -> Kept:
    path = folder / "config.toml"
    path.write_text(CONFIG)
    table, _ = client_table()

    async def use(told: list[str]) -> None:
        configuration, problems = load_configuration(path, {})
        configuration.domains()
        session_rules(configuration, table)
        told += problems

    return Kept(path, use, "toml")


async def taps_toml(folder: Path) -> Kept:
    tap = folder / "tap" / "capabilities" / "git"
    tap.mkdir(parents=True)
    (tap / "config.toml").write_text('triggers = ["what changed", "who wrote it", "the log"]\n')
    (tap / "default.toml").write_text('[[mcp.servers]]\nname = "git"\ncommand = "git-mcp"\n')
    path = folder / "taps.toml"
    path.write_text(
        f'shipped_overlays = false\n[[taps]]\nname = "mine"\npath = "{folder}/tap"\n'
        f'[[overlays]]\npath = "more"\n[providers]\n"mine/git" = "default"\n'
    )

    async def use(told: list[str]) -> None:
        try:
            places = tap_places(path)
        except TapUnreadableError as error:
            told.append(str(error))
            places = []
        for place in places[:-1]:
            with suppress(TapUnreadableError):
                read_tap(place)
        told += [f.reason for overlay in read_overlays(path) for f in overlay.findings]

    return Kept(path, use, "toml")


async def ledger(folder: Path) -> Kept:
    path = folder / "ledger.sqlite"
    notes = [ActivationNote(float(n), ONE, f"a/{n}", "on", "turn") for n in range(200)]
    more = [
        DecisionNote(float(n), ONE, "f", "abstain", "x", "", [("a", 0.1)], 1.0) for n in range(50)
    ]
    made = Database(path, Retention())
    made.add([*notes, *more])
    made.prune(0.0)
    made.close()

    async def use(told: list[str]) -> None:
        del told
        database = Database(path, Retention())
        database.uses(0)
        database.sums(0)
        database.decisions(5, "")
        database.activations(5, "one")
        database.counts()
        database.prune(0.0)
        database.close()

    async def renew() -> bool:
        database = Database(path, Retention())
        database.add([ActivationNote(9e9, ONE, "after", "on", "turn")])
        found = database.activations(1, "")
        database.close()
        return found[0].name == "after"

    return Kept(path, use, renew=renew)


RESULT = b"0123456789abcdef" * 10_000


async def stored_result(folder: Path, which: str) -> Kept:
    handle = await ResultStore(folder).keep(RESULT, ONE, "git__log")
    path = next(folder.glob(which))

    async def use(told: list[str]) -> None:
        store = ResultStore(folder)
        await store.sweep()
        try:
            record = await store.record(handle)
            read = await store.read(record, 100, 50_000)
        except NotKeptError as error:
            told.append(str(error))
        except OSError as error:
            told.append(str(error))
        else:
            assert read in RESULT, "not what was kept"

    async def renew() -> bool:
        store = ResultStore(folder)
        again = await store.keep(RESULT, ONE, "git__log")
        return await store.read(await store.record(again), 0, len(RESULT)) == RESULT

    form = "msgpack" if which == "*.handle" else ""
    return Kept(path, use, form, renew)


async def handle(folder: Path) -> Kept:
    return await stored_result(folder, "*.handle")


async def result_secret(folder: Path) -> Kept:
    return await stored_result(folder, "secret")


async def result(folder: Path) -> Kept:
    return await stored_result(folder, "*.result")


async def handshake(folder: Path) -> Kept:
    line = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}'
    )
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}'

    def write() -> None:
        kept = Handshakes(str(folder))
        kept.note(line, answer)
        kept.save()

    write()

    async def use(told: list[str]) -> None:
        del told
        Handshakes(str(folder)).find(line)

    async def renew() -> bool:
        write()
        return bool(Handshakes(str(folder)).find(line))

    return Kept(folder / "handshake.json", use, "json", renew)


async def http_token(folder: Path) -> Kept:
    path = folder / "http.token"
    load_token(path)

    async def use(told: list[str]) -> None:
        try:
            assert len(load_token(path)) >= 32
        except TokenUnsafeError as error:
            told.append(str(error))

    return Kept(path, use)


async def installed(folder: Path) -> Kept:
    file = folder / "client.json"
    made = InstallLedger(folder, "zed")
    with made.locked():
        made.note(file, original=b"{}", left=b"{1}")

    async def use(told: list[str]) -> None:
        try:
            for entry in InstallLedger(folder, "zed").entries().values():
                InstallLedger(folder, "zed").original(entry)
        except InstallError as error:
            told.append(str(error))

    return Kept(folder / "install" / "zed.json", use, "json")


MAKERS = (
    *(sessions, generations, tool_lists, vectors, login, secrets_env, clients_toml, config_toml),
    *(taps_toml, ledger, handle, result_secret, result, handshake, http_token, installed),
)
SILENT = (handle, result_secret, result, handshake, http_token)
"""Those whose loss is told by nobody, because it costs nothing but time."""


async def failures(tmp_path: Path, make: Callable[[Path], Awaitable[Kept]]) -> list[str]:
    """Damage a file in every way; return what went wrong."""
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o700)
    kept = await make(folder)
    whole = kept.path.read_bytes()
    original = tmp_path / "original"
    shutil.copytree(folder, original)
    found: list[str] = []
    for seed in range(ROUNDS):
        shutil.rmtree(folder)
        shutil.copytree(original, folder)
        kept.path.write_bytes(spoiled(whole, random.Random(seed), kept.form))
        kept.path.chmod(0o600)
        try:
            with capture_logs():
                await kept.use([])
                renew = kept.renew
                is_back = renew is None or await renew()
        except Exception as error:  # noqa: BLE001 - every one of them is what this looks for
            found.append(f"seed {seed}: {type(error).__name__}: {error}"[:300])
        else:
            found += [] if is_back else [f"seed {seed}: not written anew"]
    return found


async def said_of_rubbish(tmp_path: Path, make: Callable[[Path], Awaitable[Kept]]) -> list[Any]:
    """Return the messages about a file with meaningless content."""
    kept = await make(tmp_path)
    kept.path.write_bytes(hashlib.sha512(b"rubbish").digest() * 40)
    told: list[str] = []
    with capture_logs() as logs:
        await kept.use(told)
    return [*told, *(log for log in logs if log["log_level"] in {"warning", "error"})]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
async def test_no_spoiling_of_a_file_is_an_exception_and_what_is_ours_is_written_anew(
    tmp_path: Path, make: Callable[[Path], Awaitable[Kept]]
) -> None:
    assert await failures(tmp_path, make) == []


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
async def test_a_file_of_rubbish_is_told(
    tmp_path: Path, make: Callable[[Path], Awaitable[Kept]]
) -> None:
    if make in SILENT:
        pytest.skip("it is made again, and costs nobody anything but time")

    assert await said_of_rubbish(tmp_path, make)
