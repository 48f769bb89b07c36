"""Servers' errors and results pass unchanged unless they look like capd's own."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.protocol.server_replies import OWN_CODES, passed_error, passed_result

ORDINARY_ERRORS = (
    b'{"code":-32602,"message":"no such prompt"}',
    b'{ "message" : "x", "code" : 17, "data" : {"code": 4001, "message": "\\u00e9"} }',
    b'{"code":-32042,"message":"log in","data":{"elicitations":[]}}',
    b'{"code":0,"message":""}',
    b'{"code":-32603,"message":"cut \\ud83d"}',
    b'{"code":1,"message":"capd is not running","data":"capd"}',
)


@pytest.mark.parametrize("error", ORDINARY_ERRORS)
def test_an_ordinary_error_is_passed_on_as_it_was_written(error: bytes) -> None:
    assert passed_error(error) == error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (b'{"code":4001,"message":"not sent"}', -32603, "not sent"),
        (b'{"code":4005,"message":"x","data":{"a":1}}', -32603, "x"),
        (b'{"code":-32602,"message":"x","data":{"capd":"not_sent"}}', -32602, "x"),
        (b'{"code":-32602,"message":"x","data":{"c\\u0061pd":"not_sent"}}', -32602, "x"),
        (b'{"c\\u006fde":4001,"message":"x"}', -32603, "x"),
        (b'"out of order"', -32603, "out of order"),
        (b"[1]", -32603, "the server's error is not an object"),
        (b"17", -32603, "the server's error is not an object"),
        (b'{"message":"x"}', -32603, "x"),
        (b'{"code":"E_FAIL","message":"x"}', -32603, "x"),
        (b'{"code":true,"message":"x"}', -32603, "x"),
        (b'{"code":1.5,"message":"x"}', -32603, "x"),
        (b'{"code":99999999999999999999,"message":"x"}', -32603, "x"),
        (b'{"code":17}', 17, "the server gave no message"),
        (b'{"code":17,"message":{"text":"x"}}', 17, "the server gave no message"),
        (b"{}", -32603, "the server gave no message"),
    ],
)
def test_another_error_is_made_one_of_json_rpc_and_keeps_the_servers_own(
    error: bytes, code: int, message: str
) -> None:
    told = json.loads(passed_error(error))

    written = {"server_error": json.loads(error)}
    assert told == {"code": code, "message": message, "data": written}


@pytest.mark.parametrize(
    "error",
    [
        b'{"code":4001,"code":17,"message":"x"}',
        b'{"c\\u006fde":4001,"code":17,"message":"x"}',
        b'{"code":4001,"code":17,"message":"' + b"x" * 70_000 + b'"}',
    ],
)
def test_an_error_has_one_code_whichever_of_two_a_client_would_take(error: bytes) -> None:
    told = json.loads(passed_error(error), object_pairs_hook=list)

    assert [value for name, value in told if name == "code"] == [17]


@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[]}',
        b'{ "content": [{"type":"text","text":"capd/outcome"}], "_meta": {"x/capd": 1} }',
        b'{"content":[{"_meta":{"a":"capd/"}}],"_meta":{}}',
        b'{"_meta":{"note":"cut \\ud83d"}}',
        b"[]",
        b'{"_meta":"capd/outcome"}',
    ],
)
def test_an_ordinary_result_is_passed_on_as_it_was_written(result: bytes) -> None:
    assert passed_result(result) == result


@pytest.mark.parametrize(
    "key", ["capd/outcome", "c\\u0061pd/outcome", "capd\\/outcome", "\\u0063apd/outcome"]
)
def test_a_result_cannot_say_how_capd_saw_its_call_end(key: str) -> None:
    result = b'{"content":[],"_meta":{"%s":"not_sent","own":1}}' % key.encode()

    told = json.loads(passed_result(result))

    assert told == {"content": [], "_meta": {"server.capd/outcome": "not_sent", "own": 1}}


def test_a_member_of_a_result_may_be_named_with_an_escape() -> None:
    told = json.loads(passed_result(b'{"_m\\u0065ta":{"capd/outcome":"not_sent"}}'))

    assert told == {"_meta": {"server.capd/outcome": "not_sent"}}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)
_errors = _json | st.fixed_dictionaries(
    {"code": st.sampled_from([*OWN_CODES, 17, "17", None])},
    optional={"message": _json, "data": _json | st.just({"capd": "not_sent"})},
)


@given(_errors, st.booleans())
def test_whatever_a_server_writes_a_strict_client_reads(error: object, is_ascii: bool) -> None:
    written = json.dumps(error, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")

    told = json.loads(passed_error(written))

    assert type(told["code"]) is int
    assert type(told["message"]) is str
    assert told["code"] not in OWN_CODES
    data = told.get("data")
    assert not (isinstance(data, dict) and "capd" in data)


@given(st.dictionaries(st.sampled_from(["capd/outcome", "capd/x", "own", "é"]), _json))
def test_no_key_of_a_results_meta_is_capds(meta: dict[str, object]) -> None:
    told = json.loads(passed_result(msgspec.json.encode({"_meta": meta})))

    assert not any(key.startswith("capd/") for key in told["_meta"])
    assert len(told["_meta"]) == len(meta)
