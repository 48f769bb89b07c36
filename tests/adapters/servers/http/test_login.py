"""Complete logins at the SDK's authorization server, and dishonest servers."""

import json
import logging
import socket
import stat
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
import trio
from trio.testing import MockClock

from capd.adapters.servers.http.login_dialogue import LoginDialogue
from capd.adapters.servers.http.login_record import LoginFailedError
from capd.adapters.servers.http.logins import LOOK_AGAIN, LoggedOut, Logins, log_in
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.core.servers.login_answers import DEVICE_GRANT, PasteError
from capd_protos.types import OAuthClient

from .conftest import Start
from .rig import PATIENCE, Exchange, Json, Site, logins_in, talking

Show = Callable[[str], Awaitable[None]]
NO_PKCE = (
    "cheat: the login failed: its authorization server does not say that it supports PKCE"
    " with S256, and without that a stolen code would be enough to log in"
)


async def browser(url: str) -> None:
    """Follow a login page to its end, as a browser would."""
    async with httpx2.AsyncClient(follow_redirects=True) as client:
        assert (await client.get(url)).status_code == 200


def answering(**answer: str) -> Show:
    """Return a browser that redirects at once, with an answer of the test's own."""

    async def show(url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        async with httpx2.AsyncClient() as client:
            params = {**answer, "state": query["state"][0]}
            await client.get(query["redirect_uri"][0], params=params)

    return show


async def nobody(url: str) -> None:
    raise AssertionError(f"{url} was shown")


async def ask(base: str, path: str, method: str = "POST") -> Json:
    async with httpx2.AsyncClient() as client:
        answer: Json = (await client.request(method, base + path)).json()
        return answer


@pytest.fixture
def guarded(sdk_site: Start) -> tuple[str, RemoteSpec]:
    base = sdk_site("login")
    return base, RemoteSpec("guarded", f"{base}/mcp")


async def test_a_login_lets_calls_through_and_is_kept_for_its_owner_alone(
    guarded: tuple[str, RemoteSpec], tmp_path: Path
) -> None:
    _, spec = guarded
    await log_in(spec, logins_in(tmp_path), browser)

    async with talking(spec, logins_in(tmp_path)) as talk:  # as after a restart
        await talk.shake_hands()
        reply = await talk.call("echo", text="hi")

    [file] = (tmp_path / "logins").iterdir()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)]
    assert (reply["result"]["content"][0]["text"], modes) == ("hi", [0o600, 0o700])


async def test_two_calls_at_once_refresh_once(
    guarded: tuple[str, RemoteSpec], tmp_path: Path
) -> None:
    base, spec = guarded
    logins = logins_in(tmp_path)
    await log_in(spec, logins, browser)
    before = (await ask(base, "/counts", "GET"))["refreshed"]
    async with talking(spec, logins) as one, talking(spec, logins) as other:
        await one.shake_hands()
        await other.shake_hands()
        await ask(base, "/expire")

        async with trio.open_nursery() as nursery:
            for talk in (one, other, one):
                params = {"name": "echo", "arguments": {"text": "hi"}}
                nursery.start_soon(talk.request, "tools/call", params)
        replies = [await one.hear(), await one.hear(), await other.hear()]

    after = (await ask(base, "/counts", "GET"))["refreshed"]
    assert ["result" in reply for reply in replies] == [True] * 3
    assert after - before == 1


async def test_a_refresh_token_that_is_worth_nothing_parks_the_server(
    guarded: tuple[str, RemoteSpec], tmp_path: Path
) -> None:
    base, spec = guarded
    logins = logins_in(tmp_path)
    await log_in(spec, logins, browser)
    async with talking(spec, logins) as talk:
        await talk.shake_hands()
        await ask(base, "/expire?strict=yes")

        reply = await talk.call("echo", text="hi")

        loss = await talk.server.wait()
    await ask(base, "/expire")
    text = "wants a login (HTTP status 401): run: capd login guarded"
    assert (str(loss), loss.is_parked) == (text, True)
    assert reply["error"]["code"] == 4001


async def test_without_a_login_the_server_is_parked_and_no_page_is_opened(
    guarded: tuple[str, RemoteSpec], tmp_path: Path
) -> None:
    _, spec = guarded
    async with talking(spec, logins_in(tmp_path)) as talk:
        await talk.request("initialize")
        await talk.hear()

        loss = await talk.server.wait()

    text = "wants a login (HTTP status 401): run: capd login guarded"
    assert (str(loss), loss.is_parked) == (text, True)


async def test_the_page_that_is_shown_asks_for_all_that_protects_the_login(
    guarded: tuple[str, RemoteSpec], tmp_path: Path
) -> None:
    base, spec = guarded
    shown: list[str] = []

    async def show(url: str) -> None:
        shown.append(url)
        await browser(url)

    await log_in(spec, logins_in(tmp_path), show)

    query = {key: value for key, [value] in parse_qs(urlsplit(shown[0]).query).items()}
    lengths = {key: len(query.pop(key)) >= 32 for key in ("state", "code_challenge", "client_id")}
    redirect = urlsplit(query.pop("redirect_uri"))
    assert query == {
        "response_type": "code",
        "code_challenge_method": "S256",
        "resource": f"{base}/mcp",
    }
    assert (redirect.scheme, redirect.hostname, redirect.path) == ("http", "127.0.0.1", "/callback")
    assert lengths == {"state": True, "code_challenge": True, "client_id": True}


async def test_a_stranger_cannot_end_a_login(
    guarded: tuple[str, RemoteSpec], tmp_path: Path
) -> None:
    _, spec = guarded
    statuses: list[int] = []

    async def show(url: str) -> None:
        [redirect] = parse_qs(urlsplit(url).query)["redirect_uri"]
        async with httpx2.AsyncClient() as client:
            statuses.extend(
                [
                    (await client.get(redirect + query)).status_code
                    for query in ("", "?code=x", "?code=x&state=wrong", "?error=x&state=")
                ]
            )
        await browser(url)

    await log_in(spec, logins_in(tmp_path), show)

    assert statuses == [404] * 4


async def test_a_login_that_nobody_completes_ends(
    guarded: tuple[str, RemoteSpec], tmp_path: Path
) -> None:
    async def show(_: str) -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(LoginFailedError) as failed:
        await log_in(guarded[1], logins_in(tmp_path), show, timeout=0.5)

    assert str(failed.value) == "guarded: nobody logged in within 0.5 s"


class Cheat:
    """A server that requires a login, and a dishonest authorization server."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.metadata: Json = {
            "issuer": site.base,
            "authorization_endpoint": f"{site.base}/authorize",
            "token_endpoint": f"{site.base}/token",
            "registration_endpoint": f"{site.base}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        self.servers = [site.base]
        site.paths |= {
            "/mcp": lambda exchange: exchange.answer(b"", status=401),
            "/.well-known/oauth-protected-resource/mcp": lambda exchange: exchange.answer(
                {"resource": f"{site.base}/mcp", "authorization_servers": self.servers}
            ),
            "/.well-known/oauth-authorization-server": lambda exchange: exchange.answer(
                self.metadata
            ),
            "/register": lambda exchange: exchange.answer(
                {**exchange.message, "client_id": "c"}, status=201
            ),
            "/token": lambda exchange: exchange.answer(
                {"access_token": "sesame", "token_type": "Bearer"}
            ),
        }

    async def refusal(self, folder: Path, show: Show = nobody) -> str:
        spec = RemoteSpec("cheat", f"{self.site.base}/mcp", {"x-key": "sesame"})
        with pytest.raises(LoginFailedError) as failed:
            await log_in(spec, logins_in(folder), show, timeout=20)
        assert not (folder / "logins").exists()
        return str(failed.value)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x"])
async def test_a_login_page_that_is_none_is_not_shown(url: str, site: Site, tmp_path: Path) -> None:
    cheat = Cheat(site)
    cheat.metadata["authorization_endpoint"] = url

    refusal = await cheat.refusal(tmp_path)

    assert refusal == NO_PKCE  # the SDK takes metadata with such an address for none at all


async def test_a_login_page_without_tls_elsewhere_is_not_shown(site: Site, tmp_path: Path) -> None:
    cheat = Cheat(site)
    cheat.metadata["authorization_endpoint"] = "http://93.184.215.14/authorize"

    refusal = await cheat.refusal(tmp_path)

    assert refusal == "cheat names a login page that is not an https address"


@pytest.mark.parametrize("rest", ["#there", "?state=1&state=2#", "?state="])
async def test_a_login_page_whose_address_swallows_the_login_is_refused(
    rest: str, site: Site, tmp_path: Path
) -> None:
    cheat = Cheat(site)
    cheat.metadata["authorization_endpoint"] += rest

    refusal = await cheat.refusal(tmp_path)

    assert refusal == "cheat: the login failed: its login page's address leaves no room for a login"


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_an_authorization_server_without_pkce_is_refused(
    methods: list[str] | None, site: Site, tmp_path: Path
) -> None:
    cheat = Cheat(site)
    cheat.metadata["code_challenge_methods_supported"] = methods

    refusal = await cheat.refusal(tmp_path)

    assert refusal == NO_PKCE


async def test_metadata_of_another_issuer_is_refused(site: Site, tmp_path: Path) -> None:
    cheat = Cheat(site)
    cheat.metadata["issuer"] = "https://honest.example"

    refusal = await cheat.refusal(tmp_path)

    assert refusal == "cheat: the login failed: Authorization server metadata issuer mismatch"


async def test_an_answer_from_another_issuer_is_refused(site: Site, tmp_path: Path) -> None:
    refusal = await Cheat(site).refusal(tmp_path, answering(code="x", iss="https://honest.example"))

    assert refusal == "cheat: the login failed: Authorization response iss mismatch"
    assert "POST /token" not in site.asked()


async def test_an_answer_that_says_no_ends_the_login(site: Site, tmp_path: Path) -> None:
    refusal = await Cheat(site).refusal(tmp_path, answering(error="access_denied"))

    text = "cheat: the login failed: the authorization server says 'access_denied'"
    assert refusal == text


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("https://10.0.0.1", "in a private network, where it is not itself"),
        ("https://169.254.169.254", "in a link-local network, where it is not itself"),
        ("http://93.184.215.14", "that is not an https address"),
    ],
)
async def test_an_authorization_server_in_a_strange_network_is_not_asked(
    server: str, reason: str, site: Site, tmp_path: Path
) -> None:
    cheat = Cheat(site)
    cheat.servers = [server]

    refusal = await cheat.refusal(tmp_path)

    assert refusal == f"cheat names an authorization server {reason}"


class Names(trio.abc.HostnameResolver):
    """A resolver for one name, which counts the lookups."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host.decode() if isinstance(host, bytes) else host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


async def test_an_address_is_connected_to_as_it_was_checked(site: Site, tmp_path: Path) -> None:
    names = Names()
    trio.socket.set_custom_hostname_resolver(names)
    cheat = Cheat(site)
    cheat.servers = [f"http://login.test:{site.port}"]
    cheat.metadata |= {
        "issuer": cheat.servers[0],
        "registration_endpoint": f"{cheat.servers[0]}/register",
        "code_challenge_methods_supported": None,
    }

    await cheat.refusal(tmp_path)

    hosts = [headers["host"] for *_, headers, _ in site.journal]
    assert hosts.count(f"login.test:{site.port}") == 2
    assert names.asked == ["login.test"] * 2  # a second look-up could be told something else


async def test_discovery_is_not_redirected_elsewhere(site: Site, tmp_path: Path) -> None:
    cheat = Cheat(site)
    with Site() as canary:
        for path in list(site.paths):
            if path.startswith("/.well-known"):
                site.paths[path] = lambda exchange: exchange.answer(
                    b"", status=302, location=f"{canary.base}/latest"
                )

        await cheat.refusal(tmp_path)

        assert canary.asked() == []


async def test_discovery_that_goes_round_in_circles_ends(site: Site, tmp_path: Path) -> None:
    cheat = Cheat(site)
    path = "/.well-known/oauth-protected-resource/mcp"
    site.paths[path] = lambda exchange: exchange.answer(b"", status=302, location=path)

    refusal = await cheat.refusal(tmp_path)

    assert refusal == "cheat redirects more than 3 times"
    assert site.asked().count(f"GET {path}") == 4


async def test_metadata_without_end_is_refused(site: Site, tmp_path: Path) -> None:
    cheat = Cheat(site)
    cheat.metadata["more"] = "x" * (2 << 20)

    refusal = await cheat.refusal(tmp_path)

    assert refusal == f"cheat answered with more than {1 << 20} bytes"


async def test_a_users_headers_go_to_the_server_alone(site: Site, tmp_path: Path) -> None:
    cheat = Cheat(site)
    cheat.metadata["code_challenge_methods_supported"] = None

    await cheat.refusal(tmp_path)

    told = {path for _, path, headers, _ in site.journal if "x-key" in headers}
    assert told == {"/mcp"}


async def test_an_authorization_server_that_is_down_parks_nobody(
    site: Site, tmp_path: Path
) -> None:
    def serve(exchange: Exchange) -> None:
        is_known = exchange.headers.get("authorization") == "Bearer sesame"
        exchange.reply({}) if is_known else exchange.answer(b"", status=401)

    Cheat(site)
    spec = RemoteSpec("cheat", f"{site.base}/mcp")
    logins = logins_in(tmp_path)
    site.paths["/token"] = lambda exchange: exchange.answer(
        {"access_token": "stale", "token_type": "bearer", "refresh_token": "r"}
    )
    await log_in(spec, logins, answering(code="x"))
    site.paths |= {"/mcp": serve, "/token": lambda exchange: exchange.answer(b"", status=503)}
    async with talking(spec, logins) as talk:
        refused = await talk.ask("tools/list")
        site.paths["/token"] = lambda exchange: exchange.answer(
            {"access_token": "sesame", "token_type": "bearer"}
        )

        served = await talk.ask("tools/list")

        assert (refused["error"]["code"], served["result"]) == (4001, {})
        assert not talk.server.is_parked


async def test_a_login_that_cannot_be_read_yet_parks_nobody_and_is_read_again(
    mock_clock: MockClock, site: Site, tmp_path: Path
) -> None:
    def serve(exchange: Exchange) -> None:
        is_known = exchange.headers.get("authorization") == "Bearer sesame"
        exchange.reply({}) if is_known else exchange.answer(b"", status=401)

    Cheat(site)
    spec = RemoteSpec("cheat", f"{site.base}/mcp")
    site.paths["/token"] = lambda exchange: exchange.answer(
        {"access_token": "sesame", "token_type": "bearer"}
    )
    await log_in(spec, logins_in(tmp_path), answering(code="x"))
    site.paths["/mcp"] = serve
    [file] = (tmp_path / "logins").iterdir()
    aside = file.rename(tmp_path / "aside")
    file.mkdir()
    async with talking(spec, logins_in(tmp_path)) as talk:
        refused = await talk.ask("tools/list")
        file.rmdir()
        aside.rename(file)
        mock_clock.jump(LOOK_AGAIN)

        served = await talk.ask("tools/list")

        assert (refused["error"]["code"], served["result"]) == (4001, {})
        assert "its login is not readable (Is a directory)" in refused["error"]["message"]
        assert not talk.server.is_parked


async def test_requests_that_are_refused_together_refresh_once(site: Site, tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def serve(exchange: Exchange) -> None:
        if exchange.headers.get("authorization") == "Bearer stale":
            together.wait(PATIENCE)
            exchange.answer(b"", status=401)
        else:
            exchange.reply({})

    Cheat(site)
    spec = RemoteSpec("cheat", f"{site.base}/mcp")
    logins = logins_in(tmp_path)
    site.paths["/token"] = lambda exchange: exchange.answer(
        {"access_token": "stale", "token_type": "bearer", "refresh_token": "r"}
    )
    await log_in(spec, logins, answering(code="x"))
    site.paths |= {
        "/mcp": serve,
        "/token": lambda exchange: exchange.answer(
            {"access_token": "sesame", "token_type": "bearer", "refresh_token": "once"}
        ),
    }
    replies: list[Json] = []

    async def talk_once() -> None:
        async with talking(spec, logins) as talk:
            replies.append(await talk.ask("tools/list"))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(talk_once)

    refreshes = [content for _, path, _, content in site.journal if path == "/token"][1:]
    assert [reply["result"] for reply in replies] == [{}, {}, {}]
    assert len(refreshes) == 1


async def test_a_login_shows_no_secret(guarded: tuple[str, RemoteSpec], tmp_path: Path) -> None:
    logins = logins_in(tmp_path)
    await log_in(guarded[1], logins, browser)
    [file] = (tmp_path / "logins").iterdir()

    shown = repr([logins.of(guarded[1])._kept, logins.of(guarded[1])._kept.record])

    assert "access-" in file.read_text()
    assert "access-" not in shown


class Log(logging.Handler):
    """The text that is written to the daemon's standard error."""

    def __init__(self) -> None:
        super().__init__(1)
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names.append(record.name)


async def test_a_logout_has_both_tokens_revoked_the_lasting_one_first(
    site: Site, tmp_path: Path
) -> None:
    cheat = Cheat(site)
    cheat.metadata["revocation_endpoint"] = f"{site.base}/revoke"
    tokens = {"access_token": "sesame", "refresh_token": "lasting", "token_type": "Bearer"}
    site.paths["/token"] = lambda exchange: exchange.answer(tokens)
    sent: list[dict[str, list[str]]] = []

    def revoke(exchange: Exchange) -> None:
        sent.append(parse_qs(exchange.content.decode()))
        exchange.answer(b"", status=200)

    site.paths["/revoke"] = revoke
    logins, spec = logins_in(tmp_path), RemoteSpec("cheat", f"{site.base}/mcp")
    await log_in(spec, logins, answering(code="x"), timeout=PATIENCE)

    told = await logins.of(spec).forget()

    assert told == LoggedOut(is_revoked=True)
    assert [(each["token"], each["token_type_hint"]) for each in sent] == [
        (["lasting"], ["refresh_token"]),
        (["sesame"], ["access_token"]),
    ]
    assert all(each["client_id"] == ["c"] for each in sent)


@pytest.mark.parametrize(
    ("endpoint", "failure"),
    [
        ("{base}/revoke", "it answers with HTTP status 503"),
        ("http://127.0.0.1:9/revoke", "it cannot be reached"),
        ("http://93.184.215.14/revoke", "it names an authorization server that is not an https"),
        ("", ""),
    ],
)
async def test_a_login_is_deleted_here_whatever_its_authorization_server_says(
    endpoint: str, failure: str, site: Site, tmp_path: Path
) -> None:
    cheat = Cheat(site)
    if endpoint:
        cheat.metadata["revocation_endpoint"] = endpoint.format(base=site.base)
    site.paths["/revoke"] = lambda exchange: exchange.answer(b"sesame", status=503)
    logins, spec = logins_in(tmp_path), RemoteSpec("cheat", f"{site.base}/mcp")
    await log_in(spec, logins, answering(code="x"), timeout=PATIENCE)

    told = await logins.of(spec).forget()

    assert (told.was_kept, told.is_revoked) == (True, False)
    assert told.failure.startswith(failure)
    assert bool(told.failure) == bool(failure)
    assert "sesame" not in told.failure
    assert list((tmp_path / "logins").iterdir()) == []


async def test_the_libraries_log_nothing_of_a_login(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr(logging.root, "handlers", [log])
    monkeypatch.setattr(logging.root, "level", 1)
    cheat = Cheat(site)
    cheat.metadata["issuer"] = "https://honest.example"

    await cheat.refusal(tmp_path)

    assert log.names == []


async def test_logging_out_forgets(guarded: tuple[str, RemoteSpec], tmp_path: Path) -> None:
    logins: Logins = logins_in(tmp_path)
    await log_in(guarded[1], logins, browser)

    await logins.of(guarded[1]).forget()

    assert list((tmp_path / "logins").iterdir()) == []


# A client that the authorization server knows beforehand


def token_requests(site: Site) -> list[tuple[str, dict[str, list[str]]]]:
    """Return each token request's client authentication and its parameters."""
    return [
        (headers.get("authorization", ""), parse_qs(body.decode()))
        for method, path, headers, body in site.journal
        if (method, path) == ("POST", "/token")
    ]


@pytest.mark.parametrize(
    ("secret", "methods", "header", "posted"),
    [
        ("", None, "", None),
        ("s\u00e9same", None, "Basic Y2FwZC0xOnMlQzMlQTlzYW1l", None),
        ("sesame", ["client_secret_basic", "none"], "Basic Y2FwZC0xOnNlc2FtZQ==", None),
        ("sesame", ["client_secret_post"], "", ["sesame"]),
    ],
)
async def test_a_known_client_logs_in_without_being_registered(
    site: Site,
    tmp_path: Path,
    *,
    secret: str,
    methods: list[str] | None,
    header: str,
    posted: list[str] | None,
) -> None:
    cheat = Cheat(site)
    cheat.metadata["token_endpoint_auth_methods_supported"] = methods
    spec = RemoteSpec("known", f"{site.base}/mcp", client=OAuthClient("capd-1", secret))
    shown: list[str] = []

    async def show(url: str) -> None:
        shown.append(url)
        await answering(code="x")(url)

    await log_in(spec, logins_in(tmp_path), show, timeout=PATIENCE)

    [(authorization, said)] = token_requests(site)
    assert parse_qs(urlsplit(shown[0]).query)["client_id"] == ["capd-1"]
    assert (authorization, said.get("client_secret")) == (header, posted)
    assert said["client_id"] == ["capd-1"]
    assert "POST /register" not in site.asked()


async def test_a_login_comes_back_to_the_port_that_was_registered(
    site: Site, tmp_path: Path
) -> None:
    Cheat(site)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spec = RemoteSpec("known", f"{site.base}/mcp", client=OAuthClient("capd-1", "", port))
    shown: list[str] = []

    async def show(url: str) -> None:
        shown.append(url)
        await answering(code="x")(url)

    await log_in(spec, logins_in(tmp_path), show, timeout=PATIENCE)

    [redirect] = parse_qs(urlsplit(shown[0]).query)["redirect_uri"]
    assert redirect == f"http://127.0.0.1:{port}/callback"


async def test_a_port_that_is_taken_is_said(site: Site, tmp_path: Path) -> None:
    spec = RemoteSpec("known", f"{site.base}/mcp", client=OAuthClient("capd-1", "", site.port))

    with pytest.raises(LoginFailedError) as failed:
        await log_in(spec, logins_in(tmp_path), nobody)

    text = (
        f"known: port {site.port}, where the login comes back to, is taken"
        " (Address already in use): end what has it"
    )
    assert str(failed.value) == text


async def test_a_login_of_one_client_is_none_of_another(site: Site, tmp_path: Path) -> None:
    Cheat(site)
    logins = logins_in(tmp_path)
    spec = RemoteSpec("known", f"{site.base}/mcp", client=OAuthClient("capd-1"))
    await log_in(spec, logins, answering(code="x"), timeout=PATIENCE)
    other = replace(spec, client=OAuthClient("capd-2"))

    keys = {logins.of(each)._kept.key for each in (spec, other, replace(spec, client=None))}

    assert len(keys) == 3


# A server that asks for a login, or for more of it, in the middle of its work


class Late:
    """A server that shakes hands with everybody, and wants more at a call."""

    def __init__(self, site: Site, status: int, scope: str) -> None:
        cheat = Cheat(site)
        cheat.metadata["scopes_supported"] = ["everything"]
        self.site = site
        self.shown: list[str] = []
        self.spec = RemoteSpec("late", f"{site.base}/mcp", transport="http")
        self._status, self._scope = status, scope
        site.paths |= {"/mcp": self._serve, "/token": self._issue}

    def _issue(self, exchange: Exchange) -> None:
        # Whoever leaves a scope out has granted what was asked for.
        exchange.answer({"access_token": f"t{len(self.shown)}", "token_type": "Bearer"})

    def _serve(self, exchange: Exchange) -> None:
        if exchange.command != "POST":
            exchange.refuse()
        elif exchange.message["method"] == "initialize":
            info = {"name": "late", "version": "1"}
            exchange.reply(
                {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
            )
        elif exchange.message["method"] != "tools/call":
            exchange.answer(b"", status=202)
        else:
            said = f'Bearer error="insufficient_scope", scope="{self._scope}"'
            body = {"error": "insufficient_scope", "error_description": "more"}
            exchange.answer(body, status=self._status, www_authenticate=said)

    async def call(self, logins: Logins) -> Json:
        async with talking(self.spec, logins) as talk:
            await talk.shake_hands()
            return await talk.call("write")

    async def scopes(self, logins: Logins) -> list[str]:
        """Log in; return the scopes that the page is asked for."""

        async def show(url: str) -> None:
            self.shown.append(url)
            await answering(code="x")(url)

        await log_in(self.spec, logins, show, timeout=PATIENCE)
        return parse_qs(urlsplit(self.shown[-1]).query)["scope"][0].split(" ")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_login_asks_for_what_a_call_lacked_and_for_what_was_granted_before(
    site: Site, tmp_path: Path, status: int
) -> None:
    late, logins = Late(site, status, "write"), logins_in(tmp_path)
    refusal = await late.call(logins)
    first = await late.scopes(logins)
    late._scope = "erase"
    await late.call(logins)

    second = await late.scopes(logins)

    assert (first, second) == (["write"], ["write", "erase"])
    assert f"(HTTP status {status}): run: capd login late" in refusal["error"]["message"]


async def test_a_server_that_asked_for_nothing_is_not_logged_in_at(
    site: Site, tmp_path: Path
) -> None:
    late = Late(site, 401, "write")

    with pytest.raises(LoginFailedError) as failed:
        await late.scopes(logins_in(tmp_path))

    assert str(failed.value) == "late does not ask for a login"


async def test_what_was_lacking_is_asked_for_once(site: Site, tmp_path: Path) -> None:
    late, logins = Late(site, 403, "write"), logins_in(tmp_path)
    await late.call(logins)
    await late.scopes(logins)

    with pytest.raises(LoginFailedError) as failed:
        await late.scopes(logins)

    assert str(failed.value) == "late does not ask for a login"


# Without a browser on this machine


def landing(shown: str, **answer: str) -> str:
    """Return the address that a login page leads to."""
    query = parse_qs(urlsplit(shown).query)
    return f"{query['redirect_uri'][0]}?{urlencode({'state': query['state'][0], **answer})}"


async def test_the_address_that_a_login_led_to_can_be_pasted(
    guarded: tuple[str, RemoteSpec], tmp_path: Path
) -> None:
    _, spec = guarded
    dialogue, logins = LoginDialogue(), logins_in(tmp_path)

    async def elsewhere(url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=False) as client:
            dialogue.paste((await client.get(url)).headers["location"])

    await log_in(spec, logins, elsewhere, dialogue=dialogue)

    async with talking(spec, logins) as talk:
        await talk.shake_hands()
        assert (await talk.call("echo", text="hi"))["result"]["content"][0]["text"] == "hi"


async def test_a_code_of_another_login_is_not_redeemed_and_the_login_goes_on(
    site: Site, tmp_path: Path
) -> None:
    Cheat(site)
    spec, dialogue = RemoteSpec("cheat", f"{site.base}/mcp"), LoginDialogue()

    async def show(url: str) -> None:
        with pytest.raises(PasteError, match="of another login"):
            dialogue.paste(landing(url, code="stolen", state="of-somebody-else"))
        dialogue.paste(landing(url, code="own"))

    await log_in(spec, logins_in(tmp_path), show, dialogue=dialogue, timeout=PATIENCE)

    assert [said["code"] for _, said in token_requests(site)] == [["own"]]


@pytest.mark.parametrize("iss", ["https://honest.example", None])
async def test_a_pasted_answer_of_another_issuer_is_refused(
    iss: str | None, site: Site, tmp_path: Path
) -> None:
    cheat, dialogue = Cheat(site), LoginDialogue()
    cheat.metadata["authorization_response_iss_parameter_supported"] = True
    answer = {"code": "x", **({"iss": iss} if iss else {})}

    async def show(url: str) -> None:
        dialogue.paste(landing(url, **answer))

    with pytest.raises(
        LoginFailedError, match=r"Authorization response (iss mismatch|missing iss)"
    ):
        await log_in(
            RemoteSpec("cheat", f"{site.base}/mcp"),
            logins_in(tmp_path),
            show,
            dialogue=dialogue,
            timeout=PATIENCE,
        )

    assert "POST /token" not in site.asked()


def test_a_login_that_shows_no_page_yet_takes_no_address() -> None:
    with pytest.raises(PasteError):
        LoginDialogue().paste("http://127.0.0.1:1/callback?code=c&state=s")


# With a code, on any device


class Devices:
    """An authorization server with device logins, which answers polls as the test says."""

    def __init__(self, site: Site, *polls: Json) -> None:
        self.site = site
        self.cheat = Cheat(site)
        self.cheat.metadata["device_authorization_endpoint"] = f"{site.base}/device"
        self.grant: Json = {
            "device_code": "sesame",
            "user_code": "WDJB-MJHT",
            "verification_uri": f"{site.base}/enter",
            "interval": 1,
        }
        self.dialogue = LoginDialogue("device")
        self.shown: list[tuple[str, str]] = []
        self._polls = list(polls)
        site.paths |= {
            "/device": lambda exchange: exchange.answer(self.grant),
            "/token": self._poll,
        }

    def _poll(self, exchange: Exchange) -> None:
        if self._polls:
            exchange.answer(self._polls.pop(0), status=400)
        else:
            exchange.answer({"access_token": "open", "token_type": "Bearer"})

    async def log_in(self, logins: Logins) -> None:
        async def show(url: str) -> None:
            self.shown.append((url, self.dialogue.user_code))

        spec = RemoteSpec("tv", f"{self.site.base}/mcp")
        await log_in(spec, logins, show, dialogue=self.dialogue, timeout=PATIENCE)

    def forms(self, path: str) -> list[dict[str, list[str]]]:
        return [parse_qs(body.decode()) for _, at, _, body in self.site.journal if at == path]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capd.core.servers.login_answers.LEAST_INTERVAL", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_device_login_polls_until_the_person_has_entered_the_code(
    site: Site, tmp_path: Path
) -> None:
    devices = Devices(site, *[{"error": "authorization_pending"}] * 2)
    devices.grant["interval"] = 0
    logins = logins_in(tmp_path)

    await devices.log_in(logins)

    spec = RemoteSpec("tv", f"{site.base}/mcp")
    assert devices.shown == [(f"{site.base}/enter", "WDJB-MJHT")]
    assert devices.forms("/device") == [{"client_id": ["c"], "resource": [spec.url]}]
    [*_, last] = polls = devices.forms("/token")
    assert len(polls) == 3
    assert last == {
        "grant_type": [DEVICE_GRANT],
        "device_code": ["sesame"],
        "client_id": ["c"],
        "resource": [spec.url],
    }
    assert await logins.of(spec).is_kept()
    [registered] = [json.loads(body) for _, at, _, body in site.journal if at == "/register"]
    assert DEVICE_GRANT in registered["grant_types"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("access_denied", "it was refused on the login page"),
        ("expired_token", "its code has expired"),
        ("unheard_of", "the authorization server says 'unheard_of'"),
    ],
)
async def test_a_device_login_that_is_refused_keeps_nothing(
    error: str, reason: str, site: Site, tmp_path: Path
) -> None:
    devices = Devices(site, {"error": error})
    devices.grant["interval"] = 0

    with pytest.raises(LoginFailedError) as failed:
        await devices.log_in(logins_in(tmp_path))

    assert str(failed.value) == f"tv: the login failed: {reason}"
    assert not (tmp_path / "logins").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verification_uri": "http://93.184.215.14/enter"}, "tv names a login page that is not"),
        ({"verification_uri_complete": "javascript:alert(1)"}, "tv names a login page"),
        ({"user_code": "\x1b[2J"}, "its answer to the device login is not valid"),
    ],
)
async def test_a_device_grant_that_misleads_is_not_shown(
    change: Json, reason: str, site: Site, tmp_path: Path
) -> None:
    devices = Devices(site)
    devices.grant |= change

    with pytest.raises(LoginFailedError, match=reason):
        await devices.log_in(logins_in(tmp_path))

    assert devices.shown == []
    assert "POST /token" not in site.asked()


async def test_a_server_without_device_logins_says_how_to_log_in(
    site: Site, tmp_path: Path
) -> None:
    devices = Devices(site)
    del devices.cheat.metadata["device_authorization_endpoint"]

    with pytest.raises(LoginFailedError) as failed:
        await devices.log_in(logins_in(tmp_path))

    text = "tv: its authorization server has no device login: run: capd login tv --paste"
    assert str(failed.value) == text
    assert "POST /register" not in site.asked()


async def test_where_a_device_login_begins_the_authorization_server_alone_says(
    site: Site, tmp_path: Path
) -> None:
    devices = Devices(site)
    del devices.cheat.metadata["device_authorization_endpoint"]
    site.paths["/.well-known/oauth-protected-resource/mcp"] = lambda exchange: exchange.answer(
        {
            "resource": f"{site.base}/mcp",
            "authorization_servers": devices.cheat.servers,
            "issuer": site.base,
            "device_authorization_endpoint": f"{site.base}/device",
        }
    )

    with pytest.raises(LoginFailedError, match="has no device login"):
        await devices.log_in(logins_in(tmp_path))

    assert "POST /device" not in site.asked()


# The client's own metadata document

DOCUMENT = "https://capd.example/client.json"


async def test_a_metadata_document_goes_before_a_registration(site: Site, tmp_path: Path) -> None:
    cheat = Cheat(site)
    cheat.metadata["client_id_metadata_document_supported"] = True
    spec = RemoteSpec("cheat", f"{site.base}/mcp", client_metadata_url=DOCUMENT)

    await log_in(spec, logins_in(tmp_path), answering(code="x"), timeout=PATIENCE)

    assert [said["client_id"] for _, said in token_requests(site)] == [[DOCUMENT]]
    assert "POST /register" not in site.asked()


async def test_a_server_that_takes_no_documents_gets_a_registration(
    site: Site, tmp_path: Path
) -> None:
    Cheat(site)
    spec = RemoteSpec("cheat", f"{site.base}/mcp", client_metadata_url=DOCUMENT)

    await log_in(spec, logins_in(tmp_path), answering(code="x"), timeout=PATIENCE)

    assert [said["client_id"] for _, said in token_requests(site)] == [["c"]]


@pytest.mark.parametrize(
    ("takes_documents", "repair"),
    [
        (True, "set logins.client_metadata_url to the address of a client's metadata document"),
        (False, "register a client there, and name it by `oauth` in the definition"),
    ],
)
async def test_a_server_that_registers_nobody_says_what_to_set(
    site: Site, tmp_path: Path, *, takes_documents: bool, repair: str
) -> None:
    cheat = Cheat(site)
    del cheat.metadata["registration_endpoint"]
    del site.paths["/register"]
    cheat.metadata["client_id_metadata_document_supported"] = takes_documents

    refusal = await cheat.refusal(tmp_path)

    assert refusal == f"cheat: its authorization server registers no clients: {repair}"


# Several accounts


async def test_a_namespace_without_a_login_has_the_usual_one(site: Site, tmp_path: Path) -> None:
    Cheat(site)
    logins, spec = logins_in(tmp_path), RemoteSpec("cheat", f"{site.base}/mcp")
    work = replace(spec, account="work")
    before = await logins.account(spec, "WORK")

    await log_in(work, logins, answering(code="x"), timeout=PATIENCE)

    again = logins_in(tmp_path)  # as after a restart
    assert (before, await again.account(spec, "WORK"), await again.account(spec, "")) == (
        "",
        "work",
        "",
    )
    assert await again.of(work).is_kept()
    assert not await again.of(spec).is_kept()


async def test_a_namespace_whose_login_cannot_be_read_does_not_use_the_usual_one(
    site: Site, tmp_path: Path
) -> None:
    Cheat(site)
    spec = RemoteSpec("cheat", f"{site.base}/mcp")
    work = replace(spec, account="work")
    await log_in(work, logins_in(tmp_path), answering(code="x"), timeout=PATIENCE)
    [file] = (tmp_path / "logins").iterdir()
    aside = file.rename(tmp_path / "aside")
    file.mkdir()
    await log_in(spec, logins_in(tmp_path), answering(code="x"), timeout=PATIENCE)
    logins = logins_in(tmp_path)

    account = await logins.account(spec, "WORK")

    async with talking(replace(spec, account=account), logins) as talk:
        refused = await talk.ask("tools/list")
    file.rmdir()
    aside.rename(file)
    text = refused["error"]["message"]
    assert (account, "its login is not readable (Is a directory)" in text) == ("work", True)


async def test_a_server_with_a_header_of_its_own_has_no_accounts(tmp_path: Path) -> None:
    spec = RemoteSpec("own", "http://127.0.0.1:9/mcp", {"Authorization": "x"})

    assert await logins_in(tmp_path).account(spec, "work") == ""


async def test_who_has_logged_out_has_no_login_after_a_restart_either(
    site: Site, tmp_path: Path
) -> None:
    Cheat(site)
    logins, spec = logins_in(tmp_path), RemoteSpec("cheat", f"{site.base}/mcp", account="work")
    await log_in(spec, logins, answering(code="x"), timeout=PATIENCE)

    told = [await logins.of(spec).forget(), await logins.of(spec).forget()]

    assert [each.was_kept for each in told] == [True, False]
    assert not await logins_in(tmp_path).of(spec).is_kept()
    assert list((tmp_path / "logins").iterdir()) == []
