"""What the shim reads from a line, and where it looks for the socket."""

import json
import math
import os
import posix
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd_client.shim import json_lines, replay, starting
from capd_protos import SOCKET_PROTOCOL, places, socket

TEXTS = st.text(st.sampled_from('ab"\\{}[],: \n/é😀'), max_size=60)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)
BODIES = st.sampled_from(["method", "result", "error"])


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    members: dict[str, Any] = {"jsonrpc": "2.0"}
    body = draw(BODIES)
    members[body] = draw(st.sampled_from(["tools/call", "x"])) if body == "method" else draw(VALUES)
    for name in draw(st.sets(st.sampled_from(["id", "params", "_meta", "x"]))):
        members[name] = draw(SCALARS if name == "id" else VALUES)
    return {name: members[name] for name in draw(st.permutations(list(members)))}


@given(messages(), st.booleans(), st.sampled_from([(",", ":"), (", ", " : ")]), st.integers(8, 200))
def test_the_two_ends_of_a_line_tell_what_the_whole_line_tells(
    message: dict[str, Any], is_ascii: bool, separators: tuple[str, str], window: int
) -> None:
    text = json.dumps(message, ensure_ascii=is_ascii, separators=separators)
    line = text.encode() + b"\n"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "WINDOW_BYTES", window)
        shape = json_lines.shape_of(line)

    key = message.get("id")
    kind: str = next(name for name in ("method", "result", "error") if name in message)
    if kind == "method":
        kind = "request" if "id" in message else "notification"
    elif "id" not in message:
        kind = ""
    assert (shape.kind, shape.key, shape.method) == (
        kind,
        key if type(key) in {int, str} or (type(key) is float and abs(key) < math.inf) else None,
        message.get("method", ""),
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"garbage",
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"x"}]',
        b"5",
        b'"text"',
        b"{",
        b'{"id"',
        b'{"id":',
        b'{"id":1',
        b'{"id":"\xff","result":{}}',
        b'{"id":"\\q","result":{}}',
        b'{"id":1,"result":' + b"[" * 3_000,
        b'{"x":{},"id":1}',
        b"{}",
    ],
)
def test_what_is_no_message_is_told_as_none(line: bytes) -> None:
    shape = json_lines.shape_of(line + b"\n")

    assert shape.kind == ""


def test_of_two_ids_the_last_counts() -> None:
    line = b'{"id":1,"result":{"x":"' + b"y" * 10_000 + b'"},"id":2}\n'

    assert json_lines.shape_of(line).key == 2


@given(st.lists(st.binary(max_size=50)), st.integers(1, 30))
def test_lines_are_the_same_however_they_are_cut(pieces: list[bytes], size: int) -> None:
    data = b"\n".join(pieces)
    lines = json_lines.LineReader()

    got = [
        line
        for start in range(0, len(data), size)
        for line in lines.feed(data[start : start + size])
    ]

    assert got == [each + b"\n" for each in data.split(b"\n")[:-1]]


def test_a_line_above_the_limit_leaves_its_ends_and_no_more() -> None:
    lines = json_lines.LineReader(limit=100_000)

    kept = [line for _ in range(100) for line in lines.feed(b"x" * 10_000)]
    (cut,) = lines.feed(b'tail"}\n')
    (after,) = lines.feed(b"next\n")

    assert kept == []
    assert isinstance(cut, json_lines.TruncatedLine)
    assert (len(cut.head), len(cut.tail), cut.tail[-7:]) == (4096, 4096, b'tail"}\n')
    assert after == b"next\n"


def test_the_shim_and_the_contract_have_the_same_constants() -> None:
    assert (replay.PROTOCOL, replay.LINK_PREFIX, json_lines.LINE_LIMIT_BYTES) == (
        SOCKET_PROTOCOL,
        socket.LINK_PREFIX,
        socket.LINE_LIMIT_BYTES,
    )
    assert replay.DAEMON_LINE_LIMIT_BYTES == socket.DAEMON_LINE_LIMIT_BYTES
    assert (replay.INVALID_REQUEST, replay.NOT_SENT, replay.OUTCOME_UNKNOWN, replay.REFUSED) == (
        socket.INVALID_REQUEST,
        socket.NOT_SENT,
        socket.OUTCOME_UNKNOWN,
        socket.REFUSED,
    )


PLACES: list[dict[str, str]] = [
    {},
    {"HOME": "/home/u"},
    {"HOME": "/home/u/"},
    {"HOME": ""},
    {"HOME": "/", "XDG_RUNTIME_DIR": ""},
    {"XDG_RUNTIME_DIR": "/run/user/7"},
    {"XDG_RUNTIME_DIR": "/run/user/7/"},
    {"XDG_RUNTIME_DIR": "relative"},
    {"CAPD_HOME": "/x"},
    {"CAPD_HOME": "/"},
    {"CAPD_HOME": "//x//y/"},
    {"CAPD_HOME": "///x/../../y/./z"},
    {"CAPD_HOME": "rel/../a"},
    {"CAPD_HOME": "..", "XDG_RUNTIME_DIR": "/run/user/7"},
    {"CAPD_HOME": "", "XDG_RUNTIME_DIR": "/run/user/7"},
    {"XDG_RUNTIME_DIR": "run/user/7"},
    {"CAPD_SOCKET": "/tmp/s.sock", "CAPD_HOME": "/x"},
    {"CAPD_SOCKET": "s.sock"},
    {"CAPD_SOCKET": "//a/../s.sock"},
    {"CAPD_SOCKET": "./a//s.sock/"},
    {"CAPD_SOCKET": ".."},
    {"CAPD_SOCKET": "é/ü.sock"},
]


@pytest.mark.parametrize("has_run", [True, False])
@pytest.mark.parametrize("own_home", ["/home/own", "/home/own/", "", None])
@pytest.mark.parametrize("env", PLACES, ids=json.dumps)
def test_the_shim_looks_where_the_contract_says(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], own_home: str | None, has_run: bool
) -> None:
    if own_home is None:
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.delitem(posix.environ, b"HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", own_home)
        monkeypatch.setitem(posix.environ, b"HOME", own_home.encode())
    uid = os.getuid()

    def is_dir(path: str) -> bool:
        return has_run and path == f"/run/user/{uid}"

    assert starting.socket_path(env, uid, is_dir) == places.socket_path(env, uid, is_dir)


@pytest.mark.parametrize("state", ["/s", "/s/", "s", ""])
def test_the_shim_writes_its_log_where_the_daemon_does(state: str) -> None:
    env = {"HOME": "/h", "XDG_STATE_HOME": state}

    assert starting.state_folder(env) == places.places(env, os.getuid()).state


def test_a_folder_is_told_from_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert [
        starting._is_dir(str(each)) for each in (tmp_path, tmp_path / "file", tmp_path / "no")
    ] == [
        True,
        False,
        False,
    ]


def test_a_reader_says_whether_a_line_has_begun_and_not_ended() -> None:
    reader = json_lines.LineReader(limit=8)

    got = []
    for chunk in (b"a", b"\n", b"b\nc", b"\n", b"0123456789", b"1", b"\n"):
        reader.feed(chunk)
        got.append(reader.is_within_line)

    assert got == [True, False, True, False, True, True, False]
