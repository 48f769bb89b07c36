"""How requests end when a remote server misbehaves."""

import gzip
import json
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from capd.adapters.servers.http import remote_server, streamable
from capd.adapters.servers.http.remote_server import BadAddressError, connected
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.adapters.servers.server_lines import LINK_MARK

from .rig import PATIENCE, Exchange, Json, Site, Talk, closed_port, failure, logins_in, talking

SLOW = 0.3
OWN_HEADER = (
    "refused the Authorization header that its definition gives it (HTTP status {}):"
    " correct that header"
)


@asynccontextmanager
async def at(site: Site, folder: Path, **more: Any) -> AsyncIterator[Talk]:
    spec = RemoteSpec("far", f"{site.base}/mcp", **more)
    async with talking(spec, logins_in(folder)) as talk:
        yield talk


def served(site: Site, serve: Callable[[Exchange], None]) -> None:
    """Answer a handshake in session `s1`, and leave the rest to `serve`."""

    def both(exchange: Exchange) -> None:
        if exchange.command == "POST" and exchange.message.get("method") == "initialize":
            exchange.reply({"protocolVersion": "2025-06-18"}, mcp_session_id="s1")
        elif exchange.command == "POST" and "id" not in exchange.message:
            exchange.answer(b"", status=202)
        elif exchange.command == "POST":
            serve(exchange)
        else:
            exchange.answer(b"", status=405)
            site.listened.set()

    site.paths["/mcp"] = both


async def test_a_request_to_nobody_is_told_as_not_sent(tmp_path: Path) -> None:
    with closed_port() as port:
        spec = RemoteSpec("far", f"http://127.0.0.1:{port}/mcp?key=sesame")
        async with talking(spec, logins_in(tmp_path)) as talk:
            reply = await talk.ask("tools/list")

    assert reply == failure(1, 4001, "cannot be reached (Connection refused)")


@pytest.mark.parametrize(
    ("serve", "what"),
    [
        (lambda exchange: exchange.answer(b"oops", status=503), "answered with HTTP status 503"),
        (
            lambda exchange: exchange.answer(b"", status=202),
            "accepted the request, but will not answer it",
        ),
        (
            lambda exchange: exchange.answer(b"<html>", kind="text/html"),
            "answered with neither JSON nor events",
        ),
        (
            lambda exchange: exchange.answer({"jsonrpc": "2.0", "method": "notifications/x"}),
            "gave an answer that is none to this request",
        ),
        (
            lambda exchange: exchange.connection.shutdown(2),
            "did not answer (what it sent is not HTTP, or the connection was closed)",
        ),
        (lambda exchange: exchange.begin_events(), "closed the stream without an answer"),
    ],
)
async def test_what_may_have_run_is_told_as_such(
    serve: Callable[[Exchange], None], what: str, site: Site, tmp_path: Path
) -> None:
    served(site, serve)
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

    assert reply == failure(2, 4002, what)


async def test_a_failed_request_harms_no_other(site: Site, tmp_path: Path) -> None:
    def serve(exchange: Exchange) -> None:
        if exchange.message["method"] == "bad":
            exchange.answer(b"", status=500)
        else:
            exchange.reply({})

    served(site, serve)
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()
        await talk.ask("bad")

        reply = await talk.ask("good")

    assert reply == {"jsonrpc": "2.0", "id": 3, "result": {}}


@pytest.mark.parametrize("status", [200, 400, 404, 500])
async def test_a_servers_own_error_is_passed_on_as_it_is(
    status: int, site: Site, tmp_path: Path
) -> None:
    error = {"code": -32000, "message": "no", "data": {"why": [1, None, "ü"]}, "more": 1}
    site.paths["/mcp"] = lambda exchange: exchange.answer(
        {"jsonrpc": "2.0", "id": None, "error": error}, status=status
    )
    async with at(site, tmp_path) as talk:
        reply = await talk.ask("tools/list")

    assert reply == {"jsonrpc": "2.0", "id": 1, "error": error}


async def test_a_result_is_passed_on_byte_for_byte(site: Site, tmp_path: Path) -> None:
    result = (
        rb'{"big":123456789012345678901234567890,"f":1.10,"e":1E+2,"s":"\ud83d\ude42\u00e9","s":0}'
    )
    served(
        site,
        lambda exchange: exchange.answer(
            b'{\r\n "jsonrpc": "2.0",\n "id": 2, "extra": true,\n "result": ' + result + b"\n}\n"
        ),
    )
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()
        await talk.request("tools/call")

        await talk.hear()

    wanted = b'{   "jsonrpc": "2.0",  "id": 2, "extra": true,  "result": ' + result + b" }"
    assert talk.raw[-1] == wanted


async def test_a_request_is_sent_byte_for_byte(site: Site, tmp_path: Path) -> None:
    served(site, lambda exchange: exchange.reply({}))
    line = (
        rb'{"jsonrpc":"2.0","id":9,"method":"x","params":{"n":12345678901234567890123,"f":1.0,'
        rb'"s":"\ud83d\ude42"},"unknown":[1e400]}'
    )
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()
        await talk.send(line)

        await talk.reply(9)

    assert line in [content for *_, content in site.journal]


async def test_a_request_that_nobody_can_read_is_answered(site: Site, tmp_path: Path) -> None:
    async with at(site, tmp_path) as talk:
        await talk.send(b'{"jsonrpc":"2.0","id":5,"method":"x","params":{]}')

        reply = await talk.reply(5)

    assert (reply["error"]["code"], site.journal) == (4001, [])


async def test_a_request_that_is_too_large_is_answered(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_server, "LINE_CAP_BYTES", 1000)
    line = b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"long":"%s"}}' % (b"x" * 9000)
    async with at(site, tmp_path) as talk:
        await talk.send(line)

        reply = await talk.reply(5)

    assert reply == failure(5, 4001, f"was not asked: {len(line)} bytes are too many")


@pytest.mark.parametrize(
    ("status", "said"), [(200, {"result": {}}), (400, {"error": {"code": -32000, "message": "no"}})]
)
async def test_a_byte_order_mark_before_a_body_is_skipped(
    status: int, said: Json, site: Site, tmp_path: Path
) -> None:
    """Some libraries write one; `fetch`, with which the TypeScript SDK reads bodies, skips it."""
    body = {"jsonrpc": "2.0", "id": 1, **said}
    site.paths["/mcp"] = lambda exchange: exchange.answer(
        json.dumps(body).encode("utf-8-sig"), status=status
    )
    async with at(site, tmp_path) as talk:
        reply = await talk.ask("tools/call")

    assert reply == body


async def test_each_message_of_a_batch_becomes_a_line(site: Site, tmp_path: Path) -> None:
    note: Json = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
    reply: Json = {"jsonrpc": "2.0", "id": 2, "result": {}}
    served(site, lambda exchange: exchange.answer(json.dumps([note, reply]).encode()))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        await talk.ask("tools/call")

    assert talk.heard[1:] == [note, reply]


def batch_of(count: int, size_bytes: int = 0) -> bytes:
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"x": "y" * size_bytes}}
    return json.dumps([note] * count).encode()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (batch_of(1001), "a batch of more than 1000 messages"),
        (batch_of(9, 2 << 20), f"a batch of more than {16 << 20} bytes"),
        (b"[" + b"0," * 1000 + b"0]", "Expected `object`, got `int` - at `$[0]`"),
        (b"[" + b"{}," * 1000 + b"{}]", "Object missing required field `jsonrpc` - at `$[0]`"),
    ],
)
async def test_a_batch_that_is_too_large_or_none_is_refused(
    body: bytes, why: str, site: Site, tmp_path: Path
) -> None:
    served(site, lambda exchange: exchange.answer(body))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

    assert reply == failure(2, 4002, f"gave an answer that is unreadable: {why}")


async def test_a_large_answer_waits_for_the_one_before_and_a_small_one_does_not(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capd.adapters.servers.http import large_bodies

    monkeypatch.setattr(large_bodies, "FREE_BYTES", 100)
    monkeypatch.setattr(large_bodies, "SMALL_BYTES", 1000)
    may_go_on = {2: threading.Event(), 3: threading.Event(), 4: threading.Event()}
    may_go_on[4].set()

    def serve(exchange: Exchange) -> None:
        number = exchange.message["id"]
        result = {"x": "y" * (10 if number == 4 else 2000)}
        text = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        begun = json.dumps({"jsonrpc": "2.0", "method": "begun"}).encode()
        exchange.begin_events()
        exchange.raw(b"data: %s\n\ndata: %s" % (begun, text[:1500]))
        may_go_on[number].wait(PATIENCE)
        exchange.raw(text[1500:] + b"\n\n")

    served(site, serve)
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()
        await talk.request("tools/call")
        await talk.until(lambda message: message.get("method") == "begun")
        await talk.request("tools/call")
        await talk.until(lambda message: message.get("method") == "begun")
        may_go_on[3].set()

        await talk.ask("tools/call")

        may_go_on[2].set()
        await talk.reply(3)
    assert [message["id"] for message in talk.heard[1:] if "id" in message] == [4, 2, 3]


async def test_a_session_that_the_server_forgot_ends_the_connection(
    site: Site, tmp_path: Path
) -> None:
    served(site, lambda exchange: exchange.answer(b"", status=404))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

        loss = await talk.server.wait()
    text = "has ended this session (HTTP status 404)"
    assert (reply, str(loss), loss.is_parked) == (failure(2, 4001, text), text, False)


async def test_a_session_is_named_in_each_request_and_ended_at_the_end(
    site: Site, tmp_path: Path
) -> None:
    served(site, lambda exchange: exchange.reply({}))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()
        await trio.to_thread.run_sync(site.listened.wait, PATIENCE)

        await talk.server.stop()

    journal = {
        (command, headers.get("mcp-session-id"), headers.get("mcp-protocol-version"))
        for command, _, headers, _ in site.journal
    }
    assert journal == {
        ("POST", None, None),
        ("POST", "s1", "2025-06-18"),
        ("GET", "s1", "2025-06-18"),
        ("DELETE", "s1", "2025-06-18"),
    }


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({}, "wants a login (HTTP status {}): run: capd login far"),
        ({"auth": "none"}, "wants credentials (HTTP status {}): put them into its headers"),
        (
            {"headers": {"Authorization": "Bearer sesame"}},
            OWN_HEADER,
        ),
    ],
)
async def test_a_server_that_lets_nobody_in_is_parked(
    status: int, more: Json, advice: str, site: Site, tmp_path: Path
) -> None:
    site.paths["/mcp"] = lambda exchange: exchange.answer(b"", status=status)
    async with at(site, tmp_path, **more) as talk:
        await talk.request("initialize")

        loss = await talk.server.wait() if await talk.hear() else None

        assert (str(loss), talk.server.is_parked) == (advice.format(status), True)
    assert site.asked() == ["POST /mcp"]


@pytest.mark.parametrize("event_id", ["e7", "\N{SNOWMAN} é"])
async def test_a_cut_stream_is_resumed_after_its_last_event(
    event_id: str, site: Site, tmp_path: Path
) -> None:
    def resumed(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event({"jsonrpc": "2.0", "id": 2, "result": {"whole": True}})

    def serve(exchange: Exchange) -> None:
        if exchange.command == "POST" and exchange.message.get("method") == "initialize":
            exchange.reply({"protocolVersion": "2025-11-25"})
        elif exchange.command == "POST" and "id" not in exchange.message:
            exchange.answer(b"", status=202)
        elif exchange.command == "POST":
            exchange.begin_events()
            exchange.event(b"", id=event_id, retry="0")
        else:
            resumed(exchange)

    site.paths["/mcp"] = serve
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

    gets = [
        # The library of the site reads headers as Latin-1.
        headers["last-event-id"].encode("latin-1").decode()
        for command, _, headers, _ in site.journal
        if command == "GET"
    ]
    assert (reply["result"], gets) == ({"whole": True}, [event_id])


async def test_a_stream_that_cannot_be_resumed_is_given_up(site: Site, tmp_path: Path) -> None:
    def begin(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(b"", id="e7", retry="0")

    served(site, begin)
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

    assert reply == failure(2, 4002, "closed the stream without an answer")


async def test_endless_events_without_news_are_given_up(site: Site, tmp_path: Path) -> None:
    def sse_forever(exchange: Exchange) -> None:
        exchange.begin_events()
        while not site.closing.wait(0.02):
            exchange.raw(b": still here\n\n")

    served(site, lambda exchange: quietly(sse_forever, exchange))
    async with at(site, tmp_path, idle_timeout=SLOW) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

    assert reply == failure(2, 4002, "sent nothing for 0.3 s")


def quietly(serve: Callable[[Exchange], None], exchange: Exchange) -> None:
    """Serve until the client disconnects."""
    try:
        serve(exchange)
    except OSError:
        exchange.close_connection = True


@pytest.mark.parametrize("layers", [1, 2])
async def test_a_gzip_bomb_is_not_unpacked(
    layers: int, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capd.adapters.servers.http import guarded_client

    monkeypatch.setattr(guarded_client.Answer.read, "__defaults__", (1 << 20, None))
    bomb = gzip.compress(bytes(8 << 20))
    encoding = "gzip"
    if layers == 2:
        bomb, encoding = gzip.compress(bomb), "gzip, gzip"
    served(site, lambda exchange: exchange.answer(bomb, content_encoding=encoding))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

    how = {
        1: f"answered with more than {1 << 20} bytes",
        2: "answered in an encoding that it was not asked for",
    }[layers]
    assert reply == failure(2, 4002, how)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress),
        ("gzip", lambda text: gzip.compress(text[:9]) + gzip.compress(text[9:])),
        ("gzip", lambda text: gzip.compress(text) + bytes(9)),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
    ],
    ids=["gzip", "gzip in two members", "gzip and padding", "zlib", "raw deflate"],
)
async def test_a_compressed_answer_is_read(
    encoding: str, packed: Callable[[bytes], bytes], site: Site, tmp_path: Path
) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"long": "x" * 3_000_000}}).encode()
    served(site, lambda exchange: exchange.answer(packed(text), content_encoding=encoding))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        await talk.ask("tools/call")

    assert talk.raw[-1] == text


async def test_what_follows_a_compressed_answer_is_not_read(site: Site, tmp_path: Path) -> None:
    is_closed = threading.Event()

    def serve(exchange: Exchange) -> None:
        body = gzip.compress(
            json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {}}).encode()
        )
        exchange.begin_answer(content_encoding="gzip")
        exchange.raw(body)
        try:
            while not site.closing.is_set():
                exchange.raw(bytes(1 << 16))
        except OSError:
            is_closed.set()

    served(site, serve)
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

        assert await trio.to_thread.run_sync(is_closed.wait, PATIENCE)
    assert reply == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_an_event_of_many_megabytes_is_passed_on(site: Site, tmp_path: Path) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"long": "x" * (40 << 20)}}).encode()

    def serve(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(text)

    served(site, serve)
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        await talk.ask("tools/call")

    assert len(talk.raw[-1]) == len(text)


def answer_with_cookies(exchange: Exchange, cookies: Sequence[str]) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {}}).encode()
    exchange.send_response(200)
    for cookie in cookies:
        exchange.send_header("set-cookie", cookie)
    exchange.send_header("content-type", "application/json")
    exchange.send_header("content-length", str(len(body)))
    exchange.end_headers()
    exchange.wfile.write(body)


@pytest.mark.parametrize("odd", ["name=caf\xe9", "n\xe4me=value", "name=" + "x" * 5000])
async def test_a_cookie_that_cannot_be_sent_back_harms_no_call(
    odd: str, site: Site, tmp_path: Path
) -> None:
    served(site, lambda exchange: answer_with_cookies(exchange, ["usual=1; Path=/", odd]))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()
        await talk.ask("tools/call")

        reply = await talk.ask("tools/call")

    calls = [headers for _, _, headers, content in site.journal if b"tools/call" in content]
    assert reply == {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert calls[-1].get("cookie") == "usual=1"


async def test_a_server_that_sets_ever_new_cookies_gets_the_last_fifty_back(
    site: Site, tmp_path: Path
) -> None:
    names = iter(range(1000))
    served(site, lambda exchange: answer_with_cookies(exchange, [f"c{next(names)}=1"]))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()
        for _ in range(60):
            await talk.ask("tools/call")

        await talk.ask("tools/call")

    calls = [headers for _, _, headers, content in site.journal if b"tools/call" in content]
    assert calls[-1]["cookie"].split("; ") == [f"c{n}=1" for n in range(10, 60)]


async def test_cookies_of_an_answer_that_sets_too_many_are_ignored(
    site: Site, tmp_path: Path
) -> None:
    served(site, lambda exchange: answer_with_cookies(exchange, [f"c{n}=1" for n in range(80)]))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()
        await talk.ask("tools/call")

        await talk.ask("tools/call")

    assert not [headers for _, _, headers, _ in site.journal if "cookie" in headers]


async def test_absurd_headers_are_refused(site: Site, tmp_path: Path) -> None:
    served(site, lambda exchange: exchange.reply({}, x_much="x" * 40_000, x_more="y" * 40_000))
    async with at(site, tmp_path) as talk:
        await talk.shake_hands()

        reply = await talk.ask("tools/call")

    assert reply == failure(2, 4003, "answers with more than 65536 bytes of headers")


async def test_a_redirect_to_elsewhere_is_not_followed(site: Site, tmp_path: Path) -> None:
    with Site() as canary:
        site.paths["/mcp"] = lambda exchange: exchange.answer(
            b"", status=307, location=f"{canary.base}/latest/meta-data"
        )
        async with at(site, tmp_path, headers={"x-key": "sesame"}) as talk:
            reply = await talk.ask("tools/call")

        assert canary.asked() == []
    assert reply == failure(
        1,
        4003,
        "redirects elsewhere (HTTP 307), which is not followed:"
        " put the address that it means into its definition",
    )


async def test_a_redirect_within_the_server_is_followed(site: Site, tmp_path: Path) -> None:
    site.paths["/mcp"] = lambda exchange: exchange.answer(b"", status=307, location="/mcp/")
    site.paths["/mcp/"] = lambda exchange: exchange.reply({})
    async with at(site, tmp_path) as talk:
        reply = await talk.ask("tools/call")

    assert reply == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("decoded_bytes", [1 << 20, 10])
async def test_a_reply_may_repeat_the_id_as_a_text(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded_bytes: int
) -> None:
    monkeypatch.setattr(streamable, "_DECODED_BYTES", decoded_bytes)
    site.paths["/mcp"] = lambda exchange: exchange.answer(
        {"jsonrpc": "2.0", "id": str(exchange.message["id"]), "result": {}}
    )
    async with at(site, tmp_path) as talk:
        await talk.request("tools/call")
        await talk.hear()
        await talk.request("tools/call")
        await talk.hear()

    assert [reply["id"] for reply in talk.heard] == ["1", "2"]


async def test_redirects_in_a_circle_end_after_three(site: Site, tmp_path: Path) -> None:
    site.paths["/mcp"] = lambda exchange: exchange.answer(b"", status=308, location="/mcp")
    async with at(site, tmp_path) as talk:
        reply = await talk.ask("tools/call")

    assert reply == failure(1, 4003, "redirects more than 3 times")
    assert len(site.journal) == 4


async def test_a_proxy_of_the_environment_is_used(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", site.base)
    monkeypatch.delenv("NO_PROXY", raising=False)
    site.paths["http://far.example/mcp"] = lambda exchange: exchange.reply({})
    async with talking(RemoteSpec("far", "http://far.example/mcp"), logins_in(tmp_path)) as talk:
        reply = await talk.ask("tools/list")

    assert reply == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_server_of_the_older_transport_is_recognised(site: Site, tmp_path: Path) -> None:
    replies: list[Json] = []

    def stream(exchange: Exchange) -> None:
        if exchange.command == "POST":
            exchange.answer(b"", status=405)
            return
        exchange.begin_events()
        exchange.event(b"/messages?s=1", event="endpoint")
        while not site.closing.wait(0.01):
            while replies:
                exchange.event(replies.pop())

    def take(exchange: Exchange) -> None:
        replies.append({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"old": True}})
        exchange.answer(b"Accepted", status=202)

    site.paths |= {"/mcp": stream, "/messages": take}
    async with at(site, tmp_path) as talk:
        reply = await talk.ask("initialize")

    assert reply == {"jsonrpc": "2.0", "id": 1, "result": {"old": True}}


async def test_a_message_endpoint_on_another_server_is_refused(site: Site, tmp_path: Path) -> None:
    with Site() as canary:

        def stream(exchange: Exchange) -> None:
            exchange.begin_events()
            exchange.event(f"{canary.base}/messages".encode(), event="endpoint")
            site.closing.wait(5)

        site.paths["/mcp"] = stream
        async with at(site, tmp_path, transport="sse") as talk:
            loss = await talk.server.wait()

        assert (str(loss), canary.asked()) == ("names an endpoint on another server", [])


async def test_a_refusal_by_http_alone_is_told_with_its_status(site: Site, tmp_path: Path) -> None:
    site.paths["/mcp"] = lambda exchange: exchange.answer(b"nope", status=404)
    async with at(site, tmp_path) as talk:
        reply = await talk.ask("server/discover")

    error = {
        "code": -32601,
        "message": "far answered with HTTP status 404",
        "data": {"capd": "http_status", "status": 404, "link": LINK_MARK},
    }
    assert reply == {"jsonrpc": "2.0", "id": 1, "error": error}


@pytest.mark.parametrize(
    ("url", "headers", "text"),
    [
        ("file:///etc/passwd", {}, "far has a URL that is neither http:// nor https://"),
        ("http://a b:c/", {}, "far has an invalid URL"),
        (
            "http://localhost/",
            {"x-key": "sesame\r\nx: y"},
            "the header x-key of far has a value with characters that HTTP refuses",
        ),
        ("http://localhost/", {"x key": "v"}, "far has a header with the impossible name 'x key'"),
    ],
)
async def test_a_definition_that_cannot_work_is_refused_without_its_secrets(
    url: str, headers: dict[str, str], text: str, tmp_path: Path
) -> None:
    with pytest.raises(BadAddressError) as refused:
        async with connected(RemoteSpec("far", url, headers), logins_in(tmp_path)):
            pass

    assert str(refused.value) == text


def test_a_spec_shows_no_secret() -> None:
    spec = RemoteSpec("far", "https://h/?key=sesame", {"x-key": "sesame"})

    shown = repr(spec)

    assert "sesame" not in shown


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    site: Site, tmp_path: Path, self_signed: ssl.SSLContext
) -> None:
    site._server.socket = self_signed.wrap_socket(site._server.socket, server_side=True)
    spec = RemoteSpec("far", f"https://localhost:{site.port}/mcp")
    async with talking(spec, logins_in(tmp_path)) as talk:
        reply = await talk.ask("tools/list")

    assert reply["error"]["message"].startswith("cannot be reached (its certificate is not")
    assert (reply["error"]["code"], site.journal) == (4001, [])
