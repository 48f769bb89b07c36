"""Bodies whose length can be read in two ways, or that come in very small parts."""

from capd.adapters.clients.http_front.http_connection import BODY_LIMIT_BYTES
from support.turns import counted_turns

from .rig import HOST, TOKEN, fronted

HEAD = (
    f"POST /mcp HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
).encode()
IN_ONE_READ = 9_000
"""Chunks of one byte that are received at once."""


async def test_a_body_with_two_lengths_is_refused(autojump_clock: object) -> None:
    async with fronted() as front:
        visitor = front.connect()

        await visitor.stream.send_all(HEAD + b"Content-Length: 4\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        answer = bytes(await visitor.stream.receive_some())

        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in answer


async def test_others_have_their_turn_while_a_body_of_many_chunks_is_read() -> None:
    assert IN_ONE_READ < BODY_LIMIT_BYTES
    async with fronted() as front, counted_turns() as turns:
        visitor = front.connect()

        await visitor.stream.send_all(HEAD + b"\r\n" + b"1\r\n \r\n" * IN_ONE_READ + b"0\r\n\r\n")
        answer = bytes(await visitor.stream.receive_some())

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert turns.count > 100


async def test_a_body_that_never_ends_is_given_up(autojump_clock: object) -> None:
    async with fronted() as front:
        visitor = front.connect()
        await visitor.stream.send_all(HEAD + b"\r\n1\r\n \r\n")

        answer = bytes(await visitor.stream.receive_some())

        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"sent within 30 s" in answer
