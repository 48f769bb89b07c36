"""Bytes from outside become a message or raise `MalformedError`, and nothing else."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd_protos.codec import JsonCodec, MalformedError, MsgpackCodec


class Note(msgspec.Struct, frozen=True, tag="note"):
    text: str
    rest: msgspec.Raw = msgspec.Raw(b"")


class Tree(msgspec.Struct, frozen=True, tag="tree"):
    children: list[object] = []


JSON: JsonCodec[Note | Tree] = JsonCodec(Note | Tree)
MSGPACK: MsgpackCodec[Note | Tree] = MsgpackCodec(Note | Tree)
MAP_OF_TREE = b"\x82\xa4type\xa4tree\xa8children"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "Input data was truncated", id="nothing"),
        pytest.param(b"{", "Input data was truncated", id="cut"),
        pytest.param(b"x", "JSON is malformed: invalid character (byte 0)", id="not JSON"),
        pytest.param(b"7", "Expected `object`, got `int`", id="another type"),
        pytest.param(
            b'{"type":"note"}', "Object missing required field `text`", id="a member missing"
        ),
        pytest.param(b'{"type":"x"}', "Invalid value 'x' - at `$.type`", id="an unknown tag"),
        pytest.param(
            b'{"type":"note","text":1}', "Expected `str`, got `int` - at `$.text`", id="validation"
        ),
        pytest.param(b'{"type":"note","text":"\xff"}', "not valid UTF-8", id="UnicodeDecodeError"),
        pytest.param(
            b'{"type":"tree","children":' + b"[" * 100_000,
            "nested too deeply",
            id="RecursionError",
        ),
        pytest.param(
            b'{"type":"tree","other":' + b"[" * 100_000,
            "nested too deeply",
            id="RecursionError in a member that nobody reads",
        ),
    ],
)
def test_what_is_not_the_message_in_json_is_malformed(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedError) as caught:
        JSON.decode(data)

    assert str(caught.value) == reason


def test_a_lone_surrogate_in_json_is_malformed() -> None:
    with pytest.raises(MalformedError):
        JSON.decode(rb'{"type":"note","text":"\ud800"}')


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "Input data was truncated", id="nothing"),
        pytest.param(b"\x07", "Expected `object`, got `int`", id="another type"),
        pytest.param(
            b"\x81\xa4type\xa4note", "Object missing required field `text`", id="a member missing"
        ),
        pytest.param(
            b"\x82\xa4type\xa4note\xa4text\xa1\xff", "not valid UTF-8", id="UnicodeDecodeError"
        ),
        pytest.param(MAP_OF_TREE + b"\x91" * 100_000, "nested too deeply", id="RecursionError"),
    ],
)
def test_what_is_not_the_message_in_msgpack_is_malformed(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedError) as caught:
        MSGPACK.decode(data)

    assert str(caught.value) == reason


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    def outcome(codec: JsonCodec[Note | Tree] | MsgpackCodec[Note | Tree]) -> object:
        try:
            return codec.decode(data)
        except MalformedError as error:
            return error

    for codec in (JSON, MSGPACK):
        got = outcome(codec)

        assert isinstance(got, Note | Tree | MalformedError)
        assert len(str(got).splitlines()) == 1


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(deadline=None)
def test_what_was_written_is_read_again(text: str) -> None:
    tree = Tree([text, 1, None])

    got = (JSON.decode(JSON.encode(tree)), MSGPACK.decode(MSGPACK.encode(tree)))

    assert got == (tree, tree)
    assert b"\n" not in JSON.encode(tree)


def test_a_long_reason_is_cut() -> None:
    with pytest.raises(MalformedError) as caught:
        JSON.decode(b'{"type":"' + b"x" * 5000 + b'"}')

    assert len(str(caught.value)) <= 300
