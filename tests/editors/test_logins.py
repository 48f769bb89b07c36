"""After `capd login`, calls in real clients work without a restart of the client."""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from whole.test_logins import Login
from whole.test_logins_real import Browser, becomes, pasted, provider
from whole.test_remote_servers import remote
from whole_daemon import Home, wait_for

from .lab import Lab
from .test_own_rules import SAY, Given, given, last_said, make_known, through_capd

__all__ = ["given", "provider"]
"""Fixtures."""

Json = dict[str, Any]

pytestmark = pytest.mark.clients


@pytest.fixture
def lab(start_bare_lab: Callable[..., Lab], provider: str) -> Lab:
    made = start_bare_lab([{"text": "nothing yet"}])
    remote(made.home, "tracker", f"{provider}/mcp")
    made.set_mode("dynamic")
    return made


def by_device(home: Home) -> str:
    login = Login(home, "tracker", "--device")
    with Browser() as browser:
        url = login.address.partition("?")[0]
        browser.submit(url, browser.submit(url, browser.open(login.address)))
    code, said = login.end()
    assert code == 0, said
    return said


class Waiting:
    """A client in a task of its own, whose model answers no more until it is told to."""

    def __init__(self, lab: Lab, folder: Path, before: list[Json], after: list[Json]) -> None:
        self._lab, self._file, self._count = lab, folder / "go-on", len(before)
        first, *rest = after
        lab.model.go_on([*before, {"once": str(self._file), "then": first}, *rest])

    def run(self, *command: str, meanwhile: Callable[[], object]) -> str:
        """Run the client; return what its model had heard before `meanwhile`."""
        with ThreadPoolExecutor(1) as pool:
            client = pool.submit(self._lab.run, *command)
            try:
                wait_for(lambda: client.done() or self._is_held())
                before = last_said(self._lab)
                meanwhile()
            finally:
                self._file.touch()
            client.result()
        return before

    def _is_held(self) -> bool:
        # A request may be half written.
        with contextlib.suppress(ValueError):
            return len(self._lab.model.bodies()) == self._count + 1
        return False


WHO = "ada-of-the-boats"
ADVICE = "capd login tracker"


@pytest.mark.parametrize("log_in", [pasted, by_device])
def test_the_next_call_works_after_a_login_that_the_client_takes_no_part_in(
    lab: Lab, given: Given, provider: str, log_in: Callable[[Home], str], tmp_path: Path
) -> None:
    lab.home.start()
    becomes(provider, "somebody")
    pasted(lab.home)
    make_known(lab, "tracker__who")
    assert lab.home.capd("logout", "tracker").returncode == 0
    becomes(provider, WHO)
    call, end = through_capd("tracker__who")
    waiting = Waiting(lab, tmp_path, [call], [call, end])
    command = given(lab)

    before = waiting.run(*command, SAY, meanwhile=lambda: log_in(lab.home))

    assert ADVICE in before
    assert WHO not in before
    assert WHO in last_said(lab)


def test_a_server_that_nobody_has_used_comes_on_after_its_login(
    lab: Lab, given: Given, provider: str, tmp_path: Path
) -> None:
    becomes(provider, WHO)
    lab.home.start()
    enable = {"tool": "capability$", "args": {"action": "enable", "name": "tracker"}}
    waiting = Waiting(lab, tmp_path, [enable], [enable, *through_capd("tracker__who")])
    command = given(lab)

    before = waiting.run(*command, SAY, meanwhile=lambda: pasted(lab.home))

    assert ADVICE in before
    assert WHO in last_said(lab)


def test_each_folder_has_the_account_that_its_profile_names(
    lab: Lab, given: Given, provider: str
) -> None:
    here, there = lab.project, lab.project.parent / "quay"
    there.mkdir()
    with (lab.home.folder / "config/config.toml").open("a") as file:
        file.write(f'[profiles.work]\nfolders = ["{there}"]\nsecrets = "work"\n')
    lab.home.start()
    for account, arguments in (("ada-at-home", ()), ("ada-at-work", ("--account", "work"))):
        becomes(provider, account)
        pasted(lab.home, *arguments)
    make_known(lab, "tracker__who")
    command = given(lab)
    told: list[list[bool]] = []

    for folder in (here, there):
        lab.model.go_on(through_capd("tracker__who"))
        lab.project = folder
        lab.run(*command, SAY)
        told.append([each in last_said(lab) for each in ("ada-at-home", "ada-at-work")])

    assert told == [[True, False], [False, True]]
