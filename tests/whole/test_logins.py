"""Logins: by browser, by a pasted address, with several accounts, and logout."""

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from capd_client.mcp_host import McpHost
from whole_daemon import Home, home_of_its_own, wait_for

from .test_remote_servers import remote, site


class Login:
    """One `capd login`, whose lines are read as they are printed."""

    def __init__(self, home: Home, *arguments: str) -> None:
        command = [sys.executable, "-P", "-u", "-m", "capd_client.entry", "login", *arguments]
        self._process = subprocess.Popen(
            command,
            env=home.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        lines = iter(self._process.stdout)
        self.address = next(line.strip() for line in lines if line.strip().startswith("http"))

    def paste(self, address: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(address + "\n")
        self._process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Return its exit code and its output, without a prompt that was read before."""
        said, _ = self._process.communicate(timeout=120)
        return self._process.returncode, "\n".join(line.lstrip("> ") for line in said.splitlines())


def led_to(page: str) -> str:
    """Return the address to which a login page redirects the browser."""
    url = urlsplit(page)
    assert url.hostname is not None
    connection = http.client.HTTPConnection(url.hostname, url.port)
    connection.request("GET", f"{url.path}?{url.query}")
    location = connection.getresponse().headers["location"]
    connection.close()
    return location


@pytest.fixture
def guarded(home: Home) -> Iterator[Home]:
    with site("login") as base:
        remote(home, "guarded", f"{base}/mcp")
        yield home


@pytest.fixture(scope="module")
def running() -> Iterator[Home]:
    """A folder whose daemon runs, with a server that wants a login and one that does not."""
    with home_of_its_own(is_shipped=False, is_forked=True) as made, site("login") as base:
        made.leave_out_model()
        remote(made, "guarded", f"{base}/mcp")
        made.plain("talk")
        made.start()
        yield made


@contextmanager
def editor_in(home: Home, session: str, folder: Path) -> Iterator[McpHost]:
    editor = home.shim(session, folder)
    try:
        yield editor
    finally:
        editor.leave()


def test_a_pasted_address_logs_in_before_any_session_has_asked(guarded: Home) -> None:
    guarded.start()
    login = Login(guarded, "guarded", "--paste")

    login.paste(led_to(login.address))

    code, said = login.end()
    assert (code, said.splitlines()[-1]) == (0, "Logged in at guarded.")
    with editor_in(guarded, "one", guarded.folder) as editor:
        assert guarded.ask("enable", session="one", name="guarded")["ok"]
        assert editor.call("guarded__echo", {"text": "hi"})["structuredContent"] == {"result": "hi"}


def test_what_another_login_led_to_is_refused_and_can_be_pasted_again(guarded: Home) -> None:
    guarded.start()
    other, login = Login(guarded, "guarded", "--paste"), Login(guarded, "guarded", "--paste")

    login.paste(led_to(other.address))
    login.paste(led_to(login.address))

    code, said = login.end()
    other.paste("")
    assert other.end()[0] == 1
    assert code == 0
    assert "that is another address: once you have logged in" in said
    assert "Logged in at guarded." in said


def test_two_folders_use_two_accounts_of_one_server(guarded: Home) -> None:
    work, private = guarded.folder / "work", guarded.folder / "private"
    work.mkdir()
    private.mkdir()
    (guarded.folder / "config" / "config.toml").write_text(
        f'[profiles.job]\nfolders = ["{work}"]\nsecrets = "Work"\n'
    )
    guarded.start()
    with editor_in(guarded, "w", work) as at_work, editor_in(guarded, "p", private) as at_home:

        def who(editor: McpHost, session: str) -> str:
            wait_for(lambda: guarded.ask("enable", session=session, name="guarded")["ok"])
            return str(editor.call("guarded__who", {})["structuredContent"]["result"])

        def log_in(*arguments: str) -> str:
            login = Login(guarded, "guarded", "--paste", *arguments)
            login.paste(led_to(login.address))
            code, said = login.end()
            assert code == 0
            return said

        said_first = log_in()
        before = who(at_work, "w"), who(at_home, "p")
        said = log_in("--account", "work")
        after = who(at_work, "w"), who(at_home, "p")

        assert "secrets" not in said_first
        assert "Sessions with the profile job use it." in said
        assert before[0] == before[1] == after[1]
        assert after[0] != after[1]
        [files] = [len(list((guarded.folder / "state" / "logins").iterdir()))]
        assert files == 2


def test_who_logs_out_is_asked_to_log_in_again(guarded: Home) -> None:
    guarded.start()
    login = Login(guarded, "guarded", "--paste", "--account", "work")
    login.paste(led_to(login.address))
    code, said = login.end()
    assert code == 0
    assert 'give a profile `secrets = "work"` in config.toml' in said

    out = [guarded.capd("logout", "guarded", "--account", "work").stdout for _ in range(2)]

    assert out == ["Logged out at guarded as work.\n", "No login at guarded as work.\n"]
    with editor_in(guarded, "one", guarded.folder):
        refused = guarded.ask("enable", session="one", name="guarded")
        assert "capd login guarded" in refused["text"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody",), "`capd list` shows what is installed, `capd find` looks for more"),
        (("gaurded",), "(near names: guarded)"),
        (("talk",), "talk"),
        (("guarded", "--device"), "run: capd login guarded --paste"),
        (("guarded", "--account", "a b"), "an account begins with a letter"),
        (("guarded", "--account", "x" * 65), "64 letters"),
        (("guarded", "--paste", "--device"), "choose one of --paste and --device"),
    ],
)
def test_a_login_that_cannot_be_says_why_and_what_to_do(
    running: Home, arguments: tuple[str, ...], said: str
) -> None:
    ended = running.capd("login", *arguments)

    assert ended.returncode != 0
    assert said in ended.stderr


@pytest.mark.parametrize("pasted", ["", "not an address", "http://127.0.0.1:1/callback?code=c"])
def test_a_paste_that_is_no_answer_ends_the_command_with_the_reason(
    guarded: Home, pasted: str
) -> None:
    guarded.start()
    login = Login(guarded, "guarded", "--paste")

    for _ in range(5):
        login.paste(pasted)
        if not pasted:
            break

    code, said = login.end()
    assert code == 1
    reason = "begins with http://127.0.0.1" if pasted else "nothing was pasted"
    assert reason in said
