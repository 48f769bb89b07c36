"""Roots of a client on another machine are removed from every request."""

import msgspec

from capd.core.protocol.far_roots import capabilities_without_roots, without_roots
from capd.core.protocol.generations import CLIENT_CAPABILITIES, members_of


def test_the_capability_of_roots_is_dropped_and_the_others_stay() -> None:
    offered = b'{"roots":{"listChanged":true},"sampling":{},"elicitation":{"url":{}}}'

    assert capabilities_without_roots(offered) == b'{"sampling":{},"elicitation":{"url":{}}}'


def test_capabilities_without_roots_stay_as_they_were_written() -> None:
    assert capabilities_without_roots(b'{ "sampling": {} }') == b'{ "sampling": {} }'
    assert capabilities_without_roots(b"[]") == b"[]"


def test_a_request_of_the_stateless_generation_offers_and_answers_no_roots() -> None:
    params = {
        "name": "x",
        "_meta": {CLIENT_CAPABILITIES: {"roots": {}, "sampling": {}}, "progressToken": 7},
        "inputResponses": {"a": {"roots": [{"uri": "file:///etc"}]}, "b": {"action": "accept"}},
    }
    members = members_of(msgspec.json.encode(params))

    changed = without_roots(members)

    assert {name: msgspec.json.decode(value) for name, value in changed.items()} == {
        "_meta": {CLIENT_CAPABILITIES: {"sampling": {}}, "progressToken": 7},
        "inputResponses": {"b": {"action": "accept"}},
    }


def test_a_request_without_either_is_not_changed() -> None:
    assert without_roots(members_of(b'{"name":"x","arguments":{"roots":[1]}}')) == {}
