"""Golden frames of the public socket: the current code reads and writes them unchanged."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import capd_protos
from capd_protos import socket
from capd_protos.codec import JsonCodec

PROTOS = Path(capd_protos.__file__).resolve().parents[1]
SCHEMA = json.loads((PROTOS / "socket.schema.json").read_text(encoding="utf-8"))
FRAMES: list[dict[str, str]] = [
    json.loads(line)
    for line in (PROTOS / "golden/socket.jsonl").read_text(encoding="utf-8").splitlines()
]
LINK_FRAMES = [frame for frame in FRAMES if frame["from"] in {"client", "daemon"}]
REQUESTS = [frame for frame in FRAMES if frame["from"] in {"control client", "mcp client"}]
RESPONSES = [
    frame
    for frame in FRAMES
    if frame["from"] == "daemon reply" and "method" not in json.loads(frame["line"])
]

LINKS: dict[str, JsonCodec[Any]] = {
    "client": JsonCodec(socket.FromClient),
    "daemon": JsonCodec(socket.FromDaemon),
}
# Members of this frame are unknown on purpose: they are read over, and not written again.
FROM_THE_FUTURE = "hello from the future"


def named(frame: dict[str, str]) -> str:
    return frame["name"]


@pytest.mark.parametrize("frame", LINK_FRAMES, ids=named)
def test_a_link_frame_is_read_and_written_as_the_same_object(frame: dict[str, str]) -> None:
    codec = LINKS[frame["from"]]
    expected = json.loads(frame["line"])
    if frame["name"] == FROM_THE_FUTURE:
        del expected["mood"], expected["client"]["colour"]

    written = codec.encode(codec.decode(frame["line"]))

    assert json.loads(written) == expected
    assert written.startswith(socket.LINK_PREFIX)


@pytest.mark.parametrize("frame", LINK_FRAMES, ids=named)
def test_a_link_frame_starts_with_the_bytes_that_a_splice_looks_for(frame: dict[str, str]) -> None:
    assert frame["line"].encode().startswith(b'{"capd":')


@pytest.mark.parametrize("frame", LINK_FRAMES, ids=named)
def test_a_link_frame_fits_the_schema(frame: dict[str, str]) -> None:
    side = {"client": "fromClient", "daemon": "fromDaemon"}[frame["from"]]
    schema = {"$defs": SCHEMA["$defs"], **SCHEMA[side]}

    jsonschema.Draft202012Validator(schema).validate(json.loads(frame["line"]))


@pytest.mark.parametrize("frame", REQUESTS, ids=named)
def test_a_request_is_read_together_with_the_params_of_its_method(frame: dict[str, str]) -> None:
    written = json.loads(frame["line"])
    method = written["method"].removeprefix("capd/")

    request = JsonCodec[socket.RpcRequest](socket.RpcRequest).decode(frame["line"])
    params = msgspec.json.decode(request.params, type=socket.METHODS[method])

    assert (request.method, request.id) == (written["method"], written["id"])
    assert json.loads(bytes(request.params)) == written["params"]
    read = json.loads(msgspec.json.encode(params))
    assert {key: read[key] for key in written["params"]} == written["params"]
    schema = {"$defs": SCHEMA["$defs"], **SCHEMA["methods"][method]}
    jsonschema.Draft202012Validator(schema).validate(written["params"])


@pytest.mark.parametrize("frame", RESPONSES, ids=named)
def test_a_response_is_read_and_written_as_the_same_object(frame: dict[str, str]) -> None:
    codec = JsonCodec[socket.RpcResponse](socket.RpcResponse)

    written = codec.encode(codec.decode(frame["line"]))

    assert json.loads(written) == json.loads(frame["line"])


def test_no_frame_is_left_untested_and_none_has_the_name_of_another() -> None:
    events = [f for f in FRAMES if f["name"] == "event"]

    assert len(LINK_FRAMES) + len(REQUESTS) + len(RESPONSES) + len(events) == len(FRAMES)
    assert len({frame["name"] for frame in FRAMES}) == len(FRAMES)


def test_every_link_frame_has_a_golden_one() -> None:
    tags = {
        str(cls.__struct_config__.tag)
        for cls in (*socket.FromClient.__args__, *socket.FromDaemon.__args__)
    }

    assert {json.loads(frame["line"])["capd"] for frame in LINK_FRAMES} == tags


def test_the_schema_in_the_tree_is_what_the_structs_say() -> None:
    spec = importlib.util.spec_from_file_location("regenerate", PROTOS / "regenerate.py")
    assert spec is not None
    assert spec.loader is not None
    regenerate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(regenerate)

    text = regenerate.schema_text()

    assert (PROTOS / "socket.schema.json").read_text(encoding="utf-8") == text
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize(
    "line",
    [
        '{"capd":"hello","protocol":1,"role":"root","client":{"name":"x"}}',
        '{"capd":"hello","protocol":1,"client":{"name":"x"}}',
        '{"capd":"hello","protocol":"1","role":"mcp","client":{"name":"x"}}',
        '{"capd":"welcome"}',
        '{"capd":"env","env":{"A":1}}',
        '{"protocol":1,"role":"mcp","client":{"name":"x"}}',
    ],
)
def test_code_and_schema_refuse_the_same_lines(line: str) -> None:
    schema = {"$defs": SCHEMA["$defs"], **SCHEMA["fromClient"]}

    is_valid = jsonschema.Draft202012Validator(schema).is_valid(json.loads(line))

    assert not is_valid
    with pytest.raises(ValueError, match=r"Expected|Invalid|missing"):
        LINKS["client"].decode(line)


def test_capds_error_codes_lie_outside_of_what_a_server_may_use() -> None:
    own = (
        socket.NOT_SENT,
        socket.OUTCOME_UNKNOWN,
        socket.REFUSED,
        socket.NOT_FOUND,
        socket.UNAVAILABLE,
    )

    assert own == (4001, 4002, 4003, 4004, 4005)
