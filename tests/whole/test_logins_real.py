"""Logins at `oidc-provider`, a certified OAuth 2.1 and OpenID Connect server."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx2
import pytest

from whole_daemon import Home

from .test_logins import Login, editor_in
from .test_remote_servers import remote
from .test_team import team_tap

PROVIDER = "oidc-provider@9.13.3"
SITE = Path(__file__).with_name("oidc_site.mjs")
_FIELD = re.compile(r'<input\s[^>]*?name="(\w+)"[^>]*>')
_VALUE = re.compile(r'value="([^"]*)"')

pytestmark = pytest.mark.real


class Browser:
    """A person's browser on another machine, with its cookies."""

    def __init__(self) -> None:
        self._client = httpx2.Client()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def open(self, url: str, form: dict[str, str] | None = None) -> str:
        """Return a page; its address where it leads back to capd, which is not there."""
        answer = self._client.request("GET" if form is None else "POST", url, data=form)
        while answer.has_redirect_location:
            following = answer.next_request
            assert following is not None
            if following.url.path == "/callback":
                return str(following.url)
            answer = self._client.send(following)
        return answer.text

    def submit(self, url: str, page: str, **more: str) -> str:
        """Send the form of a page."""
        form = {}
        for field in _FIELD.finditer(page):
            value = _VALUE.search(field.group())
            form[field.group(1)] = value.group(1) if value is not None else ""
        return self.open(url, {**form, **more})


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("no npm on this machine")
    folder = tmp_path_factory.mktemp("oidc")
    (folder / "package.json").write_text('{"name": "oidc", "version": "1.0.0"}')
    fetched = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", PROVIDER],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if fetched.returncode:
        pytest.skip(f"{PROVIDER} cannot be fetched: {fetched.stderr[-300:]}")
    process = subprocess.Popen(
        [node, str(SITE), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.kill()
    process.communicate()


def becomes(base: str, account: str) -> list[str]:
    """Log the next person in as `account`; return the clients that were registered so far."""
    registered: list[str] = httpx2.post(f"{base}/as/{account}").json()["registered"]
    return registered


def who(home: Home, session: str, folder: Path) -> dict[str, str]:
    with editor_in(home, session, folder) as editor:
        enabled = home.ask("enable", session=session, name="tracker")
        assert enabled["ok"], enabled["text"]
        told: dict[str, str] = json.loads(editor.call("tracker__who", {})["content"][0]["text"])
        return told


def pasted(home: Home, *arguments: str) -> str:
    login = Login(home, "tracker", "--paste", *arguments)
    with Browser() as browser:
        login.paste(browser.open(login.address))
    code, said = login.end()
    assert code == 0, said
    return said


def test_two_accounts_log_in_by_pasted_addresses_and_each_folder_has_its_own(
    provider: str, home: Home
) -> None:
    work = home.folder / "work"
    work.mkdir()
    (home.folder / "config" / "config.toml").write_text(
        f'[profiles.work]\nfolders = ["{work}"]\nsecrets = "work"\n'
    )
    remote(home, "tracker", f"{provider}/mcp")
    home.start()
    becomes(provider, "ada-at-home")
    pasted(home)
    becomes(provider, "ada-at-work")
    pasted(home, "--account", "work")

    told = [who(home, "w", work)["account"], who(home, "h", home.folder)["account"]]

    assert told == ["ada-at-work", "ada-at-home"]


def test_a_code_entered_elsewhere_logs_in(provider: str, home: Home) -> None:
    remote(home, "tracker", f"{provider}/mcp")
    home.start()
    becomes(provider, "ada")
    login = Login(home, "tracker", "--device")

    with Browser() as browser:
        url = login.address.partition("?")[0]
        asked_for_code = browser.open(login.address)
        asked_to_confirm = browser.submit(url, asked_for_code)
        browser.submit(url, asked_to_confirm)

    code, said = login.end()
    assert (code, said.splitlines()[-1]) == (0, "Logged in at tracker.")
    assert who(home, "one", home.folder)["account"] == "ada"


def test_a_logout_revokes_the_tokens_that_somebody_may_have_copied(
    provider: str, home: Home
) -> None:
    remote(home, "tracker", f"{provider}/mcp")
    home.start()
    becomes(provider, "ada")
    pasted(home)
    assert who(home, "one", home.folder)["account"] == "ada"
    [kept] = [each for each in home.folder.rglob("*.json") if "refresh_token" in each.read_text()]
    record = json.loads(kept.read_text())
    headers = {"authorization": f"Bearer {record['tokens']['access_token']}"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    before = httpx2.post(f"{provider}/mcp", json=ping, headers=headers).status_code

    said = [home.capd("logout", "tracker").stdout for _ in range(2)]

    after = httpx2.post(f"{provider}/mcp", json=ping, headers=headers).status_code
    form = {
        "grant_type": "refresh_token",
        "refresh_token": record["tokens"]["refresh_token"],
        "client_id": record["client"]["client_id"],
    }
    refreshed = httpx2.post(record["server_metadata"]["token_endpoint"], data=form)
    assert said == [
        "Logged out at tracker. Its tokens are revoked there.\n",
        "No login at tracker.\n",
    ]
    assert (before, after) == (200, 401)
    assert (refreshed.status_code, refreshed.json()["error"]) == (400, "invalid_grant")
    assert not kept.exists()


def test_capd_is_known_by_its_document_and_registers_nothing(provider: str, home: Home) -> None:
    document = "https://capd.example/client.json"
    (home.folder / "config" / "config.toml").write_text(
        f'[logins]\nclient_metadata_url = "{document}"\n'
    )
    remote(home, "tracker", f"{provider}/mcp")
    home.start()
    before = becomes(provider, "ada")

    pasted(home)

    assert who(home, "one", home.folder) == {"account": "ada", "client": document}
    assert becomes(provider, "ada") == before


def test_the_tap_of_a_team_leads_to_calls_of_the_person_who_logged_in(
    provider: str, home: Home
) -> None:
    added = home.capd("tap", "add", team_tap(home.folder, provider))
    assert added.returncode == 0, added.stderr
    home.start()
    becomes(provider, "ada")

    pasted(home)

    assert who(home, "one", home.folder)["account"] == "ada"
