"""What was agreed to, what was good last, and what projects bring, all spoiled.

Beside raising nothing, a damaged file never means more trust than was given.
"""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from capd.adapters.definition_files import DefinitionFiles
from capd.adapters.habit_file import HabitFile
from capd.adapters.ledger.database import Database
from capd.adapters.live_settings import LiveSettings
from capd.adapters.overlay_files import read_overlay_folder
from capd.adapters.skill_files import read_skills, skill_body
from capd.adapters.tap_files import TapPlace, read_tap
from capd.adapters.trust.project_taps import read_project
from capd.adapters.trust.trust_file import TrustFile
from capd.core.definitions.baseline import Baseline, ToolChange, TrustedTool
from capd.core.records.retention import Retention
from capd.core.sessions.habits import Habit
from capd.core.trust.startable import Agreement
from capd_client.stored_secrets import SecretError, keep_in_file, remove_from_file
from capd_client.taps import TapError, TapList
from capd_client.toml_files import EditError
from capd_protos.ledger import ActivationNote
from capd_protos.types import ServerIdentity, ServerName, SessionKey, TapName, ToolName

from .test_state_files import Kept, failures, said_of_rubbish

pytestmark = pytest.mark.reliability

ID = ServerIdentity("9c1e9c1e9c1e9c1e")
TAP = TapName("tap")
CONFIG = 'triggers = ["query the app database", "read a table", "run some sql"]\ndomains = ["x"]\n'
PROVIDER = """# Title: The database
[deps]
require = ["org/tool"]
[roles.mcp]
server_refs = ["db", "far"]
allowed_tools = ["db:*"]
[[mcp.servers]]
name = "db"
command = "./db.sh"
args = ["--port", "5"]
env = { A = "{{ENV:A}}" }
timeout_seconds = 60
lazy = false
sandbox = "strict"
[[mcp.servers]]
name = "far"
url = "https://far.example/mcp"
headers = { X = "1" }
oauth = { client_id = "c", redirect_port = 5000 }
"""


async def trust(folder: Path) -> Kept:
    file = TrustFile(folder / "trust.json")
    given = {"/src/app": {f"a{n}": Agreement("db", f"a{n}", {"url": "b"}) for n in range(9)}}
    file.write(given)

    async def use(told: list[str]) -> None:
        found = TrustFile(file.path).read()
        assert found.projects in ({}, given), "something that nobody agreed to"
        told += [found.problem] if found.problem else []

    async def renew() -> bool:
        file.write(given)
        return file.read().projects == given

    return Kept(file.path, use, "json", renew)


async def definitions(folder: Path) -> Kept:
    log = ToolName("log")
    known = {log: TrustedTool(("a" * 64,), b'{"name":"log"}', ("b" * 64,))}
    changes = {log: ToolChange("changed", "c" * 64, b"{}", 2.5, is_rejected=True)}
    given = Baseline(ID, ServerName("git"), "pinned", known, changes)
    files = DefinitionFiles(folder)
    await files.save(given)

    async def use(told: list[str]) -> None:
        for found in (await DefinitionFiles(folder).load(ID), *await files.load_all()):
            assert found.baseline is not None, "a server that nobody has met"
            assert found.baseline == given or found.baseline.is_lost, "trust from nowhere"
            told += [found.problem] if found.problem else []

    async def renew() -> bool:
        await files.save(given)
        return (await files.load(ID)).baseline == given

    return Kept(folder / f"{ID}.definitions", use, renew=renew)


async def habits(folder: Path) -> Kept:
    path = folder / "habits.json"
    seen = [Habit("zed", "1.2", relists=True), Habit("codex", "", relists=False)]
    await HabitFile(path).save(seen)

    async def use(told: list[str]) -> None:
        del told
        await HabitFile(path).load()

    async def renew() -> bool:
        await HabitFile(path).save(seen)
        return await HabitFile(path).load() == seen

    return Kept(path, use, "json", renew)


async def last_good(folder: Path) -> Kept:
    """The copy of the configuration that a start falls back on."""
    good = '[servers]\nlinger = 5\n[policy]\ndeny = ["rm"]\n[projects."/src"]\ndomain = "play"\n'
    config = folder / "config"
    config.mkdir()
    (config / "config.toml").write_text(good)
    LiveSettings(config, {}, folder / "state").load()
    (config / "config.toml").write_text("[servers\n")

    async def use(told: list[str]) -> None:
        live = LiveSettings(config, {}, folder / "state")
        live.load()
        live.rules("/src")
        live.domain("zed", "/src")
        told += live.problems

    async def renew() -> bool:
        (config / "config.toml").write_text(good)
        # It has stood still: what forbids less than its copy counts only then.
        LiveSettings(config, {}, folder / "state", age=lambda _: 60.0).load()
        return (folder / "state/good/config.toml").read_text() == good

    return Kept(folder / "state/good/config.toml", use, "toml", renew)


async def of_project(folder: Path) -> Kept:
    """What sessions of a project go by."""
    path = folder / ".capd.toml"
    path.write_text(
        'domain = "x"\n[sessions]\ntools = 5\n[policy]\nallow = ["git:*"]\ndeny = ["rm"]\n'
        '[surface]\nmode = "stable"\npins = ["git:log"]\n'
    )

    async def use(told: list[str]) -> None:
        live = LiveSettings(folder / "config", {}, None)
        live.load()
        await live.load_project(str(folder))
        live.rules(str(folder))
        live.domain("zed", str(folder))
        told += [line for lines in live.project_problems.values() for line in lines]

    return Kept(path, use, "toml")


async def project_server(folder: Path) -> Kept:
    """What a project would have started."""
    path = folder / ".capd/capabilities/db/default.toml"
    path.parent.mkdir(parents=True)
    (path.parent / "config.toml").write_text(CONFIG)
    path.write_text(PROVIDER)
    (folder / "db.sh").write_text("#!/bin/sh\n")
    agreed = TrustFile(folder / "trust.json")
    before = read_project(str(folder), agreed)
    given = {str(folder): {each.digest: Agreement("db", each.digest) for each in before.startables}}
    agreed.write(given)
    whole = read_project(str(folder), agreed).usable
    assert whole is not None
    agreed_to = [server for each in whole.capabilities for server in each.servers]
    assert len(agreed_to) == 2

    async def use(told: list[str]) -> None:
        found = read_project(str(folder), agreed)
        usable = found.usable.capabilities if found.usable else ()
        assert all(server in agreed_to for each in usable for server in each.servers), (
            "a server that nobody agreed to"
        )
        told += [found.error] if found.error else []
        told += [each.reason for each in found.tap.findings] if found.tap else []

    return Kept(path, use, "toml")


async def capability(folder: Path) -> Kept:
    path = folder / "capabilities/db/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(CONFIG)
    (path.parent / "default.toml").write_text(PROVIDER)

    async def use(told: list[str]) -> None:
        told += [each.reason for each in read_tap(TapPlace(TAP, folder)).findings]

    return Kept(path, use, "toml")


async def skill(folder: Path) -> Kept:
    path = folder / "skills/tidy/SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(
        "---\nname: tidy\ndescription: Tidies up\nmetadata:\n  a: [1, 2]\n---\n# Do\n" + "x\n" * 50
    )

    async def use(told: list[str]) -> None:
        skills, findings = read_skills(TAP, folder)
        skill_body(path)
        told += [f.reason for each in skills for f in each.findings]
        told += [each.reason for each in findings]

    return Kept(path, use)


async def overlay(folder: Path) -> Kept:
    path = folder / "more/db.toml"
    path.parent.mkdir()
    path.write_text('[db]\ntriggers = ["ask the database", "count rows"]\ndescription = "d"\n')

    async def use(told: list[str]) -> None:
        told += [each.reason for each in read_overlay_folder(folder / "more").findings]

    return Kept(path, use, "toml")


async def write_ahead_log(folder: Path) -> Kept:
    """What a killed daemon leaves beside its ledger."""
    path = folder / "ledger.sqlite"
    notes = [
        ActivationNote(float(n), SessionKey("one"), f"a/{n}", "on", "turn") for n in range(200)
    ]
    made = Database(folder / "made.sqlite", Retention())
    made.add(notes)
    for end in ("", "-wal", "-shm"):
        shutil.copy(folder / f"made.sqlite{end}", f"{path}{end}")
    made.close()

    async def use(told: list[str]) -> None:
        del told
        database = Database(path, Retention())
        database.uses(0)
        database.activations(500, "one")
        database.counts()
        database.prune(0.0)
        database.close()

    async def renew() -> bool:
        database = Database(path, Retention())
        database.add([ActivationNote(9e9, SessionKey("one"), "after", "on", "turn")])
        found = database.activations(1, "")
        database.close()
        return found[0].name == "after"

    return Kept(Path(f"{path}-wal"), use, renew=renew)


async def taps_by_command(folder: Path) -> Kept:
    """The list of taps, as `capd tap` changes it."""
    (folder / "tap/capabilities").mkdir(parents=True)
    (folder / "other/capabilities").mkdir(parents=True)
    made = TapList(str(folder))
    made.add(folder / "tap", "mine")

    async def use(told: list[str]) -> None:
        try:
            TapList(str(folder)).read()
            TapList(str(folder)).add(folder / "other", "other")
            TapList(str(folder)).remove("other")
        except (TapError, EditError) as error:
            told.append(str(error))

    return Kept(made.path, use, "toml")


async def secrets_by_command(folder: Path) -> Kept:
    """The file of secrets, as `capd secret` changes it."""
    path = folder / "secrets.env"
    for n in range(5):
        keep_in_file(path, f"KEY_{n}", f"value {n}")

    async def use(told: list[str]) -> None:
        try:
            keep_in_file(path, "MORE", "more")
            remove_from_file(path, "MORE")
        except SecretError as error:
            told.append(str(error))

    return Kept(path, use)


MAKERS = (
    *(trust, definitions, habits, last_good, of_project, project_server, capability, skill),
    *(overlay, write_ahead_log, taps_by_command, secrets_by_command),
)
SILENT = (write_ahead_log,)
"""SQLite itself reads no further than its own checksums go."""


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
async def test_no_spoiling_of_a_file_is_an_exception_or_more_trust(
    tmp_path: Path, make: Callable[[Path], Awaitable[Kept]]
) -> None:
    assert await failures(tmp_path, make) == []


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
async def test_a_file_of_rubbish_is_told(
    tmp_path: Path, make: Callable[[Path], Awaitable[Kept]]
) -> None:
    if make in SILENT:
        pytest.skip("nobody is told: what was not yet in the ledger is lost")

    assert await said_of_rubbish(tmp_path, make)
