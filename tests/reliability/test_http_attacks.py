"""Attacks on the HTTP front: web pages, requests that can be read in two ways, deep JSON.

None of them opens a session, and an honest client is served beside them.
"""

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from .test_http_crowd import INITIALIZE, Front
from .world import World, world_of_its_own

pytestmark = pytest.mark.reliability

BODY = json.dumps(INITIALIZE).encode()
DEEP = b"[" * 400_000 + b"]" * 400_000
EVIL = "evil.example"


class Attacked:
    """The front, as its raw bytes are written and read."""

    def __init__(self, world: World, front: Front) -> None:
        self.world = world
        self.front = front
        self.port = front.port
        self.token = (world.home.folder / "state" / "http.token").read_text().strip()

    def head(self, **changes: str | None) -> bytes:
        """Return the head of a good request with changes; None leaves a header out.

        `method` and `target` are the first line's, all others are headers.
        """
        method = changes.pop("method", "POST")
        target = changes.pop("target", "/mcp")
        headers: dict[str, str | None] = {
            "host": f"127.0.0.1:{self.port}",
            "authorization": f"Bearer {self.token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "connection": "close",
        }
        for name, value in changes.items():
            headers[name.replace("_", "-")] = value
        lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
        return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode()

    def answered(self, request: bytes) -> list[tuple[int, bytes]]:
        """Send bytes; return the status and the rest of each answer, until it is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as sent:
            sent.sendall(request)
            heard = b""
            with contextlib.suppress(ConnectionResetError):
                while part := sent.recv(65536):
                    heard += part
        first, *rest = heard.split(b"HTTP/1.1 ")
        assert first == b""
        return [(int(each[:3]), each[3:]) for each in rest]

    def opened(self) -> int:
        """Return how many sessions were ever opened."""
        return self.world.log().count('"session_opened"')


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    with world_of_its_own() as world:
        front = Front(world)
        world.start()
        yield Attacked(world, front)
        front.close()


def lengthened(head: bytes, body: bytes = BODY) -> bytes:
    return head[:-2] + b"content-length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"host": f"{EVIL}:PORT"}, 403),
        ({"host": EVIL}, 403),
        ({"host": "127.0.0.1.nip.io:PORT"}, 403),
        ({"host": "localhost.:PORT"}, 403),
        ({"origin": f"http://{EVIL}"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"authorization": None}, 401),
        ({"authorization": None, "cookie": "token=TOKEN; authorization=Bearer TOKEN"}, 401),
        ({"authorization": None, "x_authorization": "Bearer TOKEN"}, 401),
        ({"authorization": None, "proxy_authorization": "Bearer TOKEN"}, 401),
        ({"authorization": None, "mcp_session_id": "TOKEN"}, 401),
        ({"authorization": "Basic TOKEN"}, 401),
        ({"authorization": "Bearer TOKENx"}, 401),
        ({"authorization": None, "target": "/mcp?access_token=TOKEN&token=TOKEN"}, 401),
        ({"target": f"http://{EVIL}/mcp"}, 404),
    ],
)
def test_a_page_or_a_stranger_opens_nothing(
    attacked: Attacked, changes: dict[str, str | None], status: int
) -> None:
    filled = {
        name: value and value.replace("PORT", str(attacked.port)).replace("TOKEN", attacked.token)
        for name, value in changes.items()
    }
    before = attacked.opened()

    with attacked.world.beside_an_honest_session():
        [(said, rest)] = attacked.answered(lengthened(attacked.head(**filled)))

    assert said == status
    assert b"access-control" not in rest.lower()
    assert attacked.opened() == before


@pytest.mark.parametrize(
    "framing",
    [
        "content-length: 4\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 4",
        "content-length: -5",
        "content-length: +5",
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 99999999999999999999999999",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
    ],
)
def test_what_follows_a_body_of_doubtful_length_is_no_request(
    attacked: Attacked, framing: str
) -> None:
    hidden = lengthened(attacked.head())
    before = attacked.opened()
    head = attacked.head(connection=None)[:-2] + framing.encode() + b"\r\n\r\n"

    with attacked.world.beside_an_honest_session():
        [(said, _)] = attacked.answered(head + b"0\r\n\r\n" + hidden)

    assert said in {400, 501}
    assert attacked.opened() == before


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + DEEP + b"}",
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","x":' + DEEP + b"}",
        b'{"jsonrpc":"2.0","method":"ping","id":' + DEEP + b"}",
        b'{"a":' * 150_000,
        b"[" + BODY + b"," + BODY + b"]",
    ],
    ids=["params", "unknown", "id", "open", "batch"],
)
def test_deep_json_and_batches_are_no_messages(attacked: Attacked, body: bytes) -> None:
    before = attacked.opened()

    with attacked.world.beside_an_honest_session():
        [(said, _)] = attacked.answered(lengthened(attacked.head(), body))

    assert said == 400
    assert attacked.opened() == before


def test_a_stream_of_another_session_is_not_continued(attacked: Attacked) -> None:
    def session() -> str:
        [(_, rest)] = attacked.answered(lengthened(attacked.head()))
        return rest.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()

    theirs, ours = session(), session()
    listing = b'{"jsonrpc":"2.0","id":7,"method":"tools/list"}'
    events = attacked.head(accept="text/event-stream", mcp_session_id=theirs)
    [(_, streamed)] = attacked.answered(lengthened(events, listing))
    number = streamed.partition(b"\nid: ")[2].partition(b"\n")[0].decode()
    assert number.startswith("http-"), streamed

    wanted: dict[str, str | None] = {
        "method": "GET",
        "last_event_id": f"{number.partition('/')[0]}/0",
    }
    answers = [
        attacked.answered(attacked.head(**wanted, mcp_session_id=each)[:-2] + b"\r\n")[0][0]
        for each in (ours, "x" * len(ours), theirs[:-1])
    ]

    assert answers == [400, 404, 404]
    [(own, again)] = attacked.answered(attacked.head(**wanted, mcp_session_id=theirs))
    assert (own, b'"id":7' in again) == (200, True)
