"""What a server is started with, and what its start waits for."""

from pathlib import Path

import pytest
import trio

from capd.actors.starts import Starts, SupervisorSettings
from capd.adapters.servers.http.logins import Logins

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
    is_settled = trio.Event()

    async def settle() -> None:
        await starts.path_settled(server(command))
        is_settled.set()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(settle)
            if waits:
                # Once the look-up in a thread is over it waits for nothing but the shell.
                while known.statistics().tasks_waiting == 0:
                    await trio.sleep(0.01)
                known.set()
            await is_settled.wait()

    assert known.is_set() is waits
