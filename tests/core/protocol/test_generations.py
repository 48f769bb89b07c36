"""Requests and results are translated between generations; all other bytes stay the same."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.protocol import generations
from capd_protos.codec import MalformedError
from capd_protos.types import ClientFacts

CLIENT = ClientFacts("2026-07-28", b'{"name":"zed","version":"2"}', b'{"sampling":{}}')
ENVELOPE = {
    generations.PROTOCOL_VERSION: "2026-07-28",
    generations.CLIENT_INFO: {"name": "zed", "version": "2"},
    generations.CLIENT_CAPABILITIES: {"sampling": {}},
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


def written(value: object, *, spaced: bool = False, ascii_only: bool = True) -> bytes:
    separators = (" , ", " : ") if spaced else None
    return json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode()


def members(value: dict[str, Any]) -> generations.Members:
    return generations.members_of(written(value))


def plain(found: generations.Members) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(generations.joined(found))
    return value


# Splices


@given(OBJECTS, st.booleans(), st.booleans())
def test_members_are_joined_to_the_object_that_they_were(
    value: dict[str, Any], spaced: bool, ascii_only: bool
) -> None:
    data = written(value, spaced=spaced, ascii_only=ascii_only)

    assert json.loads(generations.joined(generations.members_of(data))) == value


@pytest.mark.parametrize(("data", "expected"), [(b"", {}), (b"null", {}), (b"{}", {})])
def test_nothing_and_null_have_no_members(data: bytes, expected: dict[str, Any]) -> None:
    assert generations.members_of(data) == expected


@pytest.mark.parametrize("data", [b"[]", b"1", b'"x"', b"{", b"nul"])
def test_what_is_no_object_has_no_members(data: bytes) -> None:
    with pytest.raises(MalformedError):
        generations.members_of(data)


@given(OBJECTS, st.sampled_from([*generations.CACHEABLE, "tools/call"]), st.booleans())
def test_a_result_for_the_stateless_generation_keeps_every_member_and_has_what_it_lacked(
    result: dict[str, Any], method: str, spaced: bool
) -> None:
    for key in ("resultType", "ttlMs", "cacheScope"):
        result.pop(key, None)

    spliced = generations.result_for_stateless(written(result, spaced=spaced), method)

    assert isinstance(spliced, bytes)
    lacked: dict[str, Any] = {"resultType": "complete"}
    if method in generations.CACHEABLE:
        lacked |= {"ttlMs": 0, "cacheScope": "private"}
    assert json.loads(spliced) == lacked | result


@pytest.mark.parametrize(
    "result",
    [
        b'{"resultType":"input_required","requestState":"x"}',
        b'{"resultType":"complete","tools":[ ],"ttlMs":5,"cacheScope":"public"}',
        b"[]",
        b'{"resultType":5}',
    ],
)
def test_a_result_that_lacks_nothing_is_the_same_bytes(result: bytes) -> None:
    assert generations.result_for_stateless(result, "tools/list") == result


@given(OBJECTS, st.integers() | st.text())
def test_a_mark_of_a_stream_is_put_on_and_taken_off_again(
    params: dict[str, Any], stream: int | str
) -> None:
    params.pop("_meta", None)

    marked = generations.with_subscription(written(params), stream)

    assert json.loads(marked) == {**params, "_meta": {generations.SUBSCRIPTION_ID: stream}}
    assert json.loads(generations.without_subscription(marked)) == params


def test_what_else_a_stream_says_in_meta_stays() -> None:
    params = {"uri": "u", "_meta": {"a": 1}}

    marked = generations.with_subscription(written(params), 7)

    assert json.loads(generations.without_subscription(marked)) == params


# Envelopes


def test_an_envelope_says_who_sends_the_request() -> None:
    found = generations.envelope(members({**ENVELOPE, generations.LOG_LEVEL: "info", "x": 1}))

    assert found == generations.Envelope(
        ClientFacts("2026-07-28", b'{"name": "zed", "version": "2"}', b'{"sampling":{}}'), "info"
    )


def test_a_request_of_the_handshake_generation_has_no_envelope() -> None:
    assert generations.envelope(members({"progressToken": 1})) is None


@pytest.mark.parametrize("key", ["io.modelcontextprotocol/protocolVersion", "x\\/protocolVersion"])
def test_an_envelope_is_suspected_also_where_the_slash_is_escaped(key: str) -> None:
    assert generations.has_envelope(b'{"_meta":{"%s":"1"}}' % key.encode())


@pytest.mark.parametrize(
    ("change", "code", "data"),
    [
        ({generations.PROTOCOL_VERSION: 7}, -32602, None),
        ({generations.PROTOCOL_VERSION: None}, -32602, None),
        (
            {generations.PROTOCOL_VERSION: "2030-01-01"},
            -32022,
            {"supported": ["2026-07-28"], "requested": "2030-01-01"},
        ),
        (
            {generations.PROTOCOL_VERSION: "2025-11-25"},
            -32022,
            {"supported": ["2026-07-28"], "requested": "2025-11-25"},
        ),
        ({generations.CLIENT_CAPABILITIES: ...}, -32602, None),
        ({generations.CLIENT_CAPABILITIES: []}, -32602, None),
        ({generations.CLIENT_CAPABILITIES: None}, -32602, None),
    ],
)
def test_an_envelope_that_cannot_be_used_is_an_error_with_its_code(
    change: dict[str, Any], code: int, data: object
) -> None:
    said = {key: value for key, value in {**ENVELOPE, **change}.items() if value is not ...}

    with pytest.raises(generations.EnvelopeError) as caught:
        generations.envelope(members(said))

    assert (caught.value.code, caught.value.data) == (code, data)


def test_a_version_of_half_a_character_is_an_error_of_the_request() -> None:
    meta = {
        generations.PROTOCOL_VERSION: msgspec.Raw(b'"\\ud800"'),
        generations.CLIENT_CAPABILITIES: msgspec.Raw(b"{}"),
    }

    with pytest.raises(generations.EnvelopeError):
        generations.envelope(meta)


@pytest.mark.parametrize("info", [b"", b"{}", b'{"name":"x"}', b"5", b'{"name":1,"version":"1"}'])
def test_a_client_that_does_not_say_who_it_is_is_introduced_as_capd(info: bytes) -> None:
    assert generations.facts("v", info, b'{"roots":{}}') == ClientFacts(
        "v", ClientFacts().info, b'{"roots":{}}'
    )


@given(OBJECTS, st.integers(0, 10**6), st.sampled_from(["", "info"]))
def test_meta_for_a_stateless_server_is_what_its_client_says_with_every_request(
    others: dict[str, Any], token: int, level: str
) -> None:
    for key in (*ENVELOPE, generations.LOG_LEVEL):
        others.pop(key, None)

    told = generations.meta_for_server(
        members({**others, "progressToken": "p"}),
        CLIENT,
        stateless=True,
        token=token,
        log_level=level,
    )

    expected = {**others, "progressToken": token, **ENVELOPE}
    assert plain(told) == (expected | {generations.LOG_LEVEL: level} if level else expected)
    found = generations.envelope(told)
    assert found is not None
    assert (found.client, found.log_level) == (CLIENT, level)


@given(OBJECTS)
def test_meta_for_a_handshake_server_has_no_envelope_and_all_else(others: dict[str, Any]) -> None:
    for key in (*ENVELOPE, generations.LOG_LEVEL, "progressToken"):
        others.pop(key, None)

    told = generations.meta_for_server(
        members({**others, **ENVELOPE, generations.LOG_LEVEL: "info"}),
        CLIENT,
        stateless=False,
        token=1,
    )

    assert plain(told) == others


# What may be asked


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "expected"),
    [
        (b'{"sampling":{}}', "sampling/createMessage", b"{}", True),
        (b'{"roots":{}}', "sampling/createMessage", b"{}", False),
        (b"5", "roots/list", b"", False),
        (b"{}", "ping", b"", True),
        (b'{"elicitation":{}}', "elicitation/create", b'{"mode":"form"}', True),
        (b'{"elicitation":{}}', "elicitation/create", b'{"message":"a \\"url\\""}', True),
        (b'{"elicitation":{}}', "elicitation/create", b'{ "mode" : "url" }', False),
        (b'{"elicitation":{"form":{}}}', "elicitation/create", b'{"mode":"url"}', False),
        (b'{"elicitation":{"url":{}}}', "elicitation/create", b'{"mode":"url"}', True),
    ],
)
def test_a_server_may_ask_what_its_client_offers(
    capabilities: bytes, method: str, params: bytes, expected: bool
) -> None:
    client = ClientFacts("v", b"{}", capabilities)

    assert generations.offers(client, method, params) is expected


def test_a_client_that_offers_nothing_can_be_asked_nothing() -> None:
    assert not generations.offers_anything(ClientFacts("v", b"{}", b'{"experimental":{}}'))
    assert generations.offers_anything(CLIENT)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (b'{"mode":"url","url":"u"}', {"mode": "url", "url": "u", "elicitationId": "e"}),
        (
            b'{"mode":"url","elicitationId":"own"}',
            {"mode": "url", "elicitationId": "own"},
        ),
        (b'{"mode":"form"}', {"mode": "form"}),
    ],
)
def test_an_elicitation_by_url_has_an_id_in_the_handshake_generation(
    params: bytes, expected: dict[str, str]
) -> None:
    told = generations.question_for_handshake("elicitation/create", params, "e")

    assert json.loads(told) == expected


# Results that ask


@given(st.text(), st.booleans())
def test_a_servers_state_comes_back_byte_for_byte(state: str, ascii_only: bool) -> None:
    try:
        as_written = json.dumps(state, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        as_written = json.dumps(state).encode()
    result = b'{"resultType":"input_required","requestState":%s}' % as_written

    found = generations.input_required(result)

    assert found is not None
    assert bytes(found.requestState) == as_written


@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[{"type":"text","text":"input_required"}]}',
        b'{"resultType":"complete","x":"input_required"}',
        b'{"resultType":"input_required","inputRequests":[]}',
        b"{}",
    ],
)
def test_a_result_that_only_mentions_the_words_asks_nothing(result: bytes) -> None:
    assert generations.input_required(result) is None


def test_a_question_is_asked_with_the_params_that_its_server_wrote() -> None:
    params = msgspec.Raw(b'{"message":"who?", "x":1.0}')

    result = generations.asking_result(
        {"k": generations.InputRequest("elicitation/create", params)}, "state"
    )

    assert result == (
        b'{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create",'
        b'"params":{"message":"who?", "x":1.0}}},"requestState":"state"}'
    )
