"""Which requests the HTTP front accepts: every combination of Host, Origin and token."""

import itertools

import pytest

from capd.adapters.clients.http_front.admission import Admission
from capd.adapters.clients.http_front.http_connection import HttpRequest

from .rig import HOST, PORT, TOKEN, fronted, rpc

HOSTS = ("evil.com", f"127.0.0.1.nip.io:{PORT}", f"[::1]:{PORT}", None, HOST, f"localhost:{PORT}")
ORIGINS = ("http://evil.com", "null", None, f"http://{HOST}", f"http://localhost:{PORT}")
TOKENS = (None, "x" * len(TOKEN), TOKEN)
METHODS = ("GET", "POST", "OPTIONS")
GOOD_HOSTS, GOOD_ORIGINS = HOSTS[4:], ORIGINS[2:]

MATRIX = list(itertools.product(HOSTS, ORIGINS, TOKENS, METHODS))


def expected(host: str | None, origin: str | None, token: str | None) -> int | None:
    if host not in GOOD_HOSTS or origin not in GOOD_ORIGINS:
        return 403
    return None if token == TOKEN else 401


@pytest.mark.parametrize(("host", "origin", "token", "method"), MATRIX)
def test_only_the_right_host_origin_and_token_together_are_let_in(
    host: str | None, origin: str | None, token: str | None, method: str
) -> None:
    said = (("host", host), ("origin", origin), ("authorization", token and f"Bearer {token}"))
    headers = tuple((name, value) for name, value in said if value is not None)

    refusal = Admission(PORT, TOKEN).refusal(HttpRequest(method, "/mcp", headers))

    assert (refusal and refusal.status) == expected(host, origin, token)


@pytest.mark.parametrize(
    "headers",
    [
        (("host", HOST), ("host", HOST)),
        (("host", HOST), ("authorization", f"Basic {TOKEN}")),
        (("host", HOST), ("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer x")),
        (("host", HOST), ("authorization", "Bearer \xe9")),
        (("host", HOST), ("origin", f"http://{HOST}"), ("origin", "null")),
    ],
)
def test_what_can_be_read_in_two_ways_is_not_let_in(headers: tuple[tuple[str, str], ...]) -> None:
    refusal = Admission(PORT, TOKEN).refusal(HttpRequest("POST", "/mcp", headers))

    assert refusal is not None


@pytest.mark.parametrize(("host", "origin", "token", "method"), MATRIX)
async def test_no_refused_request_reaches_a_session_or_gets_a_cors_header(
    autojump_clock: object, host: str | None, origin: str | None, token: str | None, method: str
) -> None:
    lines = [f"{method} /mcp HTTP/1.1"]
    said = (("Host", host), ("Origin", origin), ("Authorization", token and f"Bearer {token}"))
    lines += [f"{name}: {value}" for name, value in said if value is not None]
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
    async with fronted() as front:
        visitor = front.connect()

        await visitor.stream.send_all("\r\n".join(lines).encode() + body)
        answer = bytes(await visitor.stream.receive_some())

        status = int(answer.split(b" ")[1])
        # HTTP/1.1 itself wants a Host.
        wanted = 400 if host is None else expected(host, origin, token)
        passed = {"GET": 400, "POST": 200, "OPTIONS": 405}[method]
        assert status == (wanted or passed)
        assert len(front.sessions) == (wanted is None and method == "POST")
        assert b"access-control" not in answer.lower()


async def test_a_body_is_not_read_before_its_sender_is_let_in(autojump_clock: object) -> None:
    async with fronted() as front:
        head = b"POST /mcp HTTP/1.1\r\nHost: evil.com\r\nContent-Length: 1000000\r\n\r\n"
        visitor = front.connect()

        await visitor.stream.send_all(head)

        assert bytes(await visitor.stream.receive_some()).startswith(b"HTTP/1.1 403 ")


async def test_a_browser_that_asks_first_is_not_told_that_it_may(autojump_clock: object) -> None:
    async with fronted() as front:
        asked = {"access-control-request-method": "POST", "origin": f"http://{HOST}"}

        heard = await front.connect().ask("OPTIONS", headers=asked)

        assert (heard.status, [k for k in heard.headers if k.startswith("access")]) == (405, [])


async def test_only_json_is_taken(autojump_clock: object) -> None:
    async with fronted() as front:
        heard = await front.connect().ask("POST", rpc("initialize"), {"content-type": "text/plain"})

        assert (heard.status, front.sessions) == (415, [])


async def test_a_head_request_that_is_refused_is_answered_without_a_body(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        heard = await front.connect().ask("HEAD", headers={"authorization": "Bearer wrong"})

    assert (heard.status, heard.body, heard.is_over) == (401, b"", True)
