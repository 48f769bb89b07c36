"""Which tool call belongs to an app, and what a definition declares about its app."""

import json

import pytest

from capd.core.protocol.apps import (
    AppCaller,
    OpenApps,
    is_for_apps_alone,
    page_named,
    page_of,
)
from capd_protos.types import ServerIdentity

A, B, C = (ServerIdentity(each) for each in "ABC")


def opened(called: str = "", read: str = "") -> OpenApps:
    apps = OpenApps()
    for each in called:
        apps.on_called(f"ui://{each}", ServerIdentity(each))
    for each in read:
        apps.on_read(f"ui://{each}", ServerIdentity(each))
    return apps


@pytest.mark.parametrize(
    ("called", "read", "having", "named", "caller"),
    [
        ("", "", [A, B], None, AppCaller()),
        ("A", "", [A, B], None, AppCaller(A)),
        ("", "B", [A, B], None, AppCaller(B)),
        ("A", "AB", [A, B], None, AppCaller(A)),
        ("AB", "", [A, B], None, AppCaller(rivals=(A, B))),
        ("", "AB", [A, B], None, AppCaller(rivals=(A, B))),
        ("C", "B", [A, B], None, AppCaller(B)),
        ("C", "", [A, B], None, AppCaller()),
        ("AB", "", [A, B], [B], AppCaller(B)),
        ("", "", [A, B], [B], AppCaller(B)),
        ("A", "", [A, B], [B], AppCaller(B)),
        ("A", "", [A, B], [C], AppCaller()),
        ("A", "", [A, B], [A, B], AppCaller(A)),
        ("", "", [A, B], [A, B], AppCaller(rivals=(A, B))),
        ("A", "", [], None, AppCaller()),
    ],
)
def test_a_call_is_of_the_one_app_that_it_can_be_of(
    called: str,
    read: str,
    having: list[ServerIdentity],
    named: list[ServerIdentity] | None,
    caller: AppCaller,
) -> None:
    assert opened(called, read).caller(having, named) == caller


def test_a_page_is_of_the_server_whose_tool_was_called_last() -> None:
    apps = OpenApps()
    apps.on_called("ui://x", A)
    apps.on_called("ui://x", B)
    again = OpenApps()
    again.restore(apps.saved())

    assert (again.server_of("ui://x"), again.server_of("ui://y"), bool(again)) == (B, None, True)


def test_what_is_restored_of_nothing_is_nothing() -> None:
    apps = OpenApps()
    apps.restore(OpenApps().saved())

    assert (apps.saved(), bool(apps)) == ([], False)


@pytest.mark.parametrize(
    ("meta", "page", "is_alone"),
    [
        ({"ui": {"resourceUri": "ui://x"}}, "ui://x", False),
        ({"ui": {"resourceUri": "ui://x", "visibility": ["app"]}}, "ui://x", True),
        ({"ui": {"resourceUri": "ui://x", "visibility": ["model", "app"]}}, "ui://x", False),
        ({"ui/resourceUri": "ui://x"}, "ui://x", False),
        ({"ui": {"resourceUri": "https://evil.example"}}, "", False),
        ({"ui": {"resourceUri": "ui://" + "x" * 3000}}, "", False),
        ({"ui": {"resourceUri": 7}}, "", False),
        ({"ui": "ui://x"}, "", False),
        ({}, "", False),
    ],
)
def test_a_tool_and_a_call_name_an_app_alike(
    meta: dict[str, object], page: str, *, is_alone: bool
) -> None:
    definition = json.dumps({"name": "t", "_meta": meta}).encode()

    assert (page_of(definition), page_named(json.dumps(meta).encode())) == (page, page)
    assert is_for_apps_alone(definition) is is_alone


@pytest.mark.parametrize("definition", [b'{"ui', b'["ui"]', b'{"_meta":["ui"]}', b'"ui"', b""])
def test_what_is_no_definition_has_no_app(definition: bytes) -> None:
    assert (page_of(definition), is_for_apps_alone(definition)) == ("", False)
