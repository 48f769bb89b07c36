"""How a server is started, and what its start waits for."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from capd.actors.supervisor.starts import Starts, SupervisorSettings
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.processes import ProcessSpec
from capd.adapters.servers.sandboxing import Sandboxes
from capd.adapters.servers.server_run import ServerEnd
from capd.adapters.trust.trust_check import UntrustedError
from capd.adapters.trust.trust_file import TrustFile
from capd.core.servers.sandbox import SandboxFeatures as NoMeans
from capd.core.servers.sandbox import SandboxMissingError
from capd.core.servers.sandbox_rules import SandboxRule, SandboxRules

from .fakes import Machine, server

PATIENCE = 30.0


@pytest.mark.parametrize(("command", "waits"), [("only-in-the-login-shell", True), ("sh", False)])
async def test_only_a_command_that_is_not_found_waits_for_the_login_shells_path(
    tmp_path: Path, command: str, waits: bool
) -> None:
    known = trio.Event()
    environment = {"PATH": "/usr/bin:/bin"}
    settings = SupervisorSettings(30.0, tmp_path, environment, "", "0", path_known=known)
    starts = Starts(settings, Logins(tmp_path), Machine().spawn)
    may_start = trio.Event()

    async def wait() -> None:
        await starts.wait_for_path(server(command))
        may_start.set()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            if waits:
                # Once the look-up in a thread is over it waits for nothing but the shell.
                while known.statistics().tasks_waiting == 0:
                    await trio.sleep(0.01)
                known.set()
            await may_start.wait()

    assert known.is_set() is waits


@pytest.mark.parametrize(("project", "is_asked"), [("/src/app", True), ("", False)])
async def test_a_projects_server_is_looked_at_again_when_all_else_is_done(
    tmp_path: Path, project: str, is_asked: bool
) -> None:
    trust = TrustFile(tmp_path / "trust.json")
    settings = SupervisorSettings(30.0, tmp_path, {"PATH": os.defpath}, "", "0", trust=trust)
    specs: list[ProcessSpec] = []

    @asynccontextmanager
    async def spawn(spec: ProcessSpec) -> AsyncIterator[ServerEnd]:
        specs.append(spec)
        raise UntrustedError("enough is seen")
        yield

    starts = Starts(settings, Logins(tmp_path), spawn)
    with pytest.raises(UntrustedError, match="enough is seen"):
        async with starts.opened(server("db", project=project), {}, "/src/app"):
            pass

    assert (specs[0].check_trust is not None) is is_asked
    if specs[0].check_trust is not None:
        with pytest.raises(UntrustedError, match="is untrusted"):
            specs[0].check_trust()


async def test_a_server_that_cannot_be_confined_is_refused_and_no_other(tmp_path: Path) -> None:
    sandboxes = Sandboxes(
        SandboxRules(servers={"shut": SandboxRule("strict")}),
        (tmp_path / "state",),
        tmp_path / "cache" / "sandbox",
        machine=NoMeans,
    )
    settings = SupervisorSettings(
        30.0, tmp_path, {"PATH": os.defpath}, "", "0", sandboxes=sandboxes
    )
    starts = Starts(settings, Logins(tmp_path))
    free, shut = (server(name, command="cat", args=()) for name in ("free", "shut"))

    async with starts.opened(free, {}, str(tmp_path)) as process:
        told = process.sandbox
        with pytest.raises(SandboxMissingError) as refused:
            async with starts.opened(shut, {}, str(tmp_path)):
                pass

    assert told == "guard"
    assert str(refused.value) == (
        "it is to run in the sandbox, and bwrap is not there or may make no namespaces: install"
        " bubblewrap, or a kernel with Landlock, or let it have less of it: [sandbox] in"
        " config.toml"
    )


async def test_home_is_the_users_whatever_a_definition_calls_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("key")
    sandboxes = Sandboxes(SandboxRules(masks=("ssh",)), (), tmp_path / "cache")
    if not sandboxes.machine().bwrap:
        pytest.skip("this machine has no bubblewrap, or forbids it")
    environment = {"PATH": os.defpath, "HOME": str(home)}
    settings = SupervisorSettings(30.0, tmp_path, environment, "", "0", sandboxes=sandboxes)
    starts = Starts(settings, Logins(tmp_path))
    look = f"cat {home}/.ssh/id || echo none"
    sly = server("sly", command="sh", args=("-c", look), env={"HOME": "/nowhere"})

    async with starts.opened(sly, {}, str(tmp_path)) as process:
        said = await process.stdout.receive_some()

    assert said == b"none\n"
