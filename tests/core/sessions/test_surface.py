"""The surface: order, exact bytes, and definitions passed on unchanged."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.sessions.active_set import Grant
from capd.core.sessions.surface import MOST_NAMES, PROMPT, Surface, renamed
from capd_protos.types import (
    ServerIdentity,
    ServerName,
    ToolDefinition,
    ToolEdit,
    ToolName,
    WireName,
)

GIT, DB = ServerIdentity("1" * 16), ServerIdentity("2" * 16)
NAMES = {GIT: ServerName("git"), DB: ServerName("db")}
LOG, PUSH = Grant(GIT, ToolName("log")), Grant(GIT, ToolName("push"))
QUERY = Grant(DB, ToolName("query"))
OWN = (WireName("capability"), b'{"name":"capability"}')


def definition(grant: Grant, rest: str = "") -> ToolDefinition:
    return ToolDefinition(grant.tool, f'{{"name":"{grant.tool}"{rest}}}'.encode())


DEFINITIONS = {grant: definition(grant) for grant in (LOG, PUSH, QUERY)}


def surface(*grants: Grant) -> Surface:
    made = Surface([OWN])
    made.add(grants, NAMES, DEFINITIONS)
    return made


def test_own_tools_come_first_and_the_rest_in_the_order_in_which_it_was_added() -> None:
    shown = surface(QUERY, LOG)
    shown.add([LOG, PUSH, QUERY], NAMES, DEFINITIONS)

    listing = shown.listing()

    assert listing == (
        b'{"tools":[{"name":"capability"},{"name":"db__query"},{"name":"git__log"},'
        b'{"name":"git__push"}]}'
    )
    assert len(shown) == 4


def test_an_own_tool_that_comes_later_stands_at_the_end_of_what_was_listed() -> None:
    shown = Surface((), limit=3)
    shown.add([LOG, PUSH], NAMES, DEFINITIONS)

    shown.append_own([OWN])

    assert shown.listing() == (
        b'{"tools":[{"name":"git__log"},{"name":"git__push"},{"name":"capability"}]}'
    )
    assert (len(shown), shown.room, shown.own) == (3, 0, ("capability",))


def test_what_comes_with_too_much_at_once_is_not_listed_and_can_be_called() -> None:
    shown = Surface([OWN])
    shown.most_at_once = 2 * len(DEFINITIONS[PUSH].json) - 2

    added = shown.add([QUERY, LOG, PUSH], NAMES, DEFINITIONS)

    assert added == ["db__query", "git__log", "git__push"]
    assert [each.name for each in shown.listed] == ["db__query"]
    assert shown.find("git__push") is not None


def test_a_pinned_tool_is_listed_whatever_comes_with_it() -> None:
    shown = Surface([OWN])
    shown.most_at_once = 1
    shown.pin([LOG])

    shown.add([LOG, PUSH], NAMES, DEFINITIONS)

    assert [each.name for each in shown.listed] == ["git__log"]


def test_a_tool_that_went_and_comes_back_alone_is_listed() -> None:
    shown = Surface([OWN])
    shown.most_at_once = len(DEFINITIONS[LOG].json) + 1
    shown.add([LOG, PUSH], NAMES, DEFINITIONS)
    shown.remove([LOG, PUSH])

    shown.add([LOG], NAMES, DEFINITIONS)

    assert [each.name for each in shown.listed] == ["git__log"]


def test_only_what_was_not_shown_is_added_and_only_what_was_shown_is_removed() -> None:
    shown = surface(LOG)

    added = shown.add([LOG, PUSH], NAMES, DEFINITIONS)
    removed = shown.remove([QUERY, LOG])

    assert (added, removed) == (["git__push"], ["git__log"])


def test_a_removed_tool_is_not_found_and_comes_back_at_the_end_under_the_same_name() -> None:
    shown = surface(LOG, PUSH)
    shown.remove([LOG])
    before = shown.find("git__log")

    shown.add([LOG], NAMES, DEFINITIONS)

    assert before is None
    assert [tool.name for tool in shown.shown] == ["git__push", "git__log"]


def test_a_changed_definition_is_taken_over_in_its_place_and_an_unchanged_one_is_not_told() -> None:
    shown = surface(LOG, PUSH)
    changed = {
        LOG: definition(LOG, ',"title":"Log"'),
        PUSH: DEFINITIONS[PUSH],
        QUERY: DEFINITIONS[QUERY],
    }

    names = shown.redefine(changed)

    assert names == ["git__log"]
    assert shown.definitions()[1:] == [
        b'{"name":"git__log","title":"Log"}',
        b'{"name":"git__push"}',
    ]
    found = shown.find("git__log")
    assert found is not None
    assert found.json == b'{"name":"git__log","title":"Log"}'


def test_tools_of_two_servers_of_one_name_have_names_of_their_own() -> None:
    shown = Surface([OWN])
    fork = Grant(DB, LOG.tool)
    names = {GIT: ServerName("git"), DB: ServerName("git")}

    added = shown.add([LOG, fork], names, {LOG: DEFINITIONS[LOG], fork: DEFINITIONS[LOG]})

    found = [shown.find(name) for name in added]
    assert [tool.grant for tool in found if tool is not None] == [LOG, fork]
    assert (added[0], added[1].startswith("git__log_")) == ("git__log", True)


def test_a_name_that_a_model_may_have_in_mind_is_not_given_to_another_servers_tool() -> None:
    fork = Grant(DB, LOG.tool)
    names = {GIT: ServerName("git"), DB: ServerName("git")}
    shown = surface(LOG)
    shown.remove([LOG])

    (name,) = shown.add([fork], names, {fork: definition(fork)})

    assert name != "git__log"
    assert shown.find("git__log") is None
    assert shown.add([LOG], names, DEFINITIONS) == ["git__log"]


def test_a_server_whose_definition_was_edited_keeps_the_names_of_its_tools() -> None:
    edited = Grant(ServerIdentity("4" * 16), LOG.tool)
    names = {GIT: ServerName("git"), edited.server: ServerName("git")}
    shown = surface(LOG)
    shown.remove([LOG])

    shown.replace_server(LOG.server, edited.server)
    added = shown.add([edited], names, {edited: definition(edited)})

    assert added == ["git__log"]
    assert shown.known("git__log") == edited


def test_a_tool_that_is_shown_keeps_its_name_from_the_one_that_replaces_its_server() -> None:
    edited = Grant(ServerIdentity("4" * 16), LOG.tool)
    shown = surface(LOG)

    shown.replace_server(LOG.server, edited.server)
    (name,) = shown.add([edited], {edited.server: ServerName("git")}, {edited: definition(edited)})

    assert (name != "git__log", shown.known("git__log")) == (True, LOG)


def test_ten_thousand_names_are_given_in_steps_in_proportion_to_their_number() -> None:
    class Counted(dict[Grant, WireName]):
        looks = 0

        def items(self) -> Any:
            Counted.looks += len(self)
            return super().items()

    shown = surface()
    shown._names = Counted()

    for number in range(10_000):
        shown.name(Grant(GIT, ToolName(f"{PROMPT}p{number}")), ServerName("git"), f"p{number}")

    assert len(set(shown.names.values())) == 10_000
    assert Counted.looks < 20_000


def test_a_server_whose_tools_have_other_names_each_time_fills_no_memory() -> None:
    shown = surface(LOG, PUSH, QUERY)
    shown.remove([PUSH, QUERY])
    old: list[Grant] = []
    for first in range(0, 2 * MOST_NAMES, 1000):
        new = [Grant(GIT, ToolName(f"t{first + number}")) for number in range(1000)]
        shown.remove(old)
        shown.add(new, NAMES, {grant: definition(grant) for grant in new})
        if shown.has_too_many_names:
            shown.forget_old_names({PUSH})
        old = new

    assert len(shown.names) <= MOST_NAMES
    # What is shown, kept or new, and what another server had, is known by its name.
    assert {LOG, PUSH, QUERY, *old} <= shown.names.keys()
    assert shown.known("git__t0") is None


def test_a_pinned_tool_keeps_its_name_beside_a_session_that_comes_back() -> None:
    other = Grant(ServerIdentity("3" * 16), LOG.tool)
    made = Surface([OWN])
    made.add([LOG], NAMES, DEFINITIONS)

    made.restore({other: WireName("git__log"), PUSH: WireName("git__push")})
    made.add([other], {other.server: ServerName("git")}, {other: definition(other)})

    names = [each.name for each in made.shown]
    assert names[0] == "git__log"
    assert len(set(names)) == 2
    assert made.names[PUSH] == "git__push"


def test_a_tool_that_would_take_the_name_of_an_own_one_gets_another() -> None:
    shown = Surface([(WireName("git__log"), b'{"name":"git__log"}')])

    (name,) = shown.add([LOG], NAMES, DEFINITIONS)

    assert (name != "git__log", name.startswith("git__log_"), shown.find("git__log")) == (
        True,
        True,
        None,
    )


@pytest.mark.parametrize(
    ("written", "passed_on"),
    [
        pytest.param(
            b'{"x-odd": {"b":1, "a" :[1.0,1e2,100000000000000000000]},"name":"a"}',
            b'{"name":"s__a","x-odd":{"b":1, "a" :[1.0,1e2,100000000000000000000]}}',
            id="numbers, spaces and order inside of a member",
        ),
        pytest.param(
            rb'{"name":"a","description":"\u00e9\/\ud83d\ude00"}',
            rb'{"name":"s__a","description":"\u00e9\/\ud83d\ude00"}',
            id="escapes",
        ),
        pytest.param(
            b'{"name":"a","inputSchema":{"name":"inner"},"_meta":null}',
            b'{"name":"s__a","inputSchema":{"name":"inner"},"_meta":null}',
            id="a name further inside",
        ),
        pytest.param(b'{"n\\u0061me":"a","x":1}', b'{"name":"s__a","x":1}', id="an escaped key"),
    ],
)
def test_all_but_the_name_is_passed_on_byte_for_byte(written: bytes, passed_on: bytes) -> None:
    got = renamed(written, WireName("s__a"))

    assert got == passed_on


@given(
    st.dictionaries(
        st.text().filter(lambda key: key != "name"),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    )
)
@settings(deadline=None)
def test_any_definition_keeps_its_members(members: dict[str, object]) -> None:
    written = json.dumps({"name": "a", **members}).encode()

    got = renamed(written, WireName("s__a"))

    assert json.loads(got) == {"name": "s__a", **members}


def test_a_bare_surface_is_what_its_one_server_lists_byte_for_byte() -> None:
    shown = Surface([], is_bare=True)
    written = {LOG: ToolDefinition(LOG.tool, b'{"title":"Log", "name":"log"}')}

    added = shown.add([LOG], NAMES, written)

    assert added == ["log"]
    assert shown.definitions() == [written[LOG].json]


def called(name: str, grant: Grant = LOG) -> dict[Grant, ToolDefinition]:
    edit = ToolEdit(ServerName("git"), grant.tool, name=name)
    return {grant: ToolDefinition(grant.tool, f'{{"name":"{name}"}}'.encode(), edit)}


def test_an_edited_tool_has_its_new_name_behind_its_servers() -> None:
    shown = Surface([OWN])

    added = shown.add([LOG], NAMES, called("history"))

    found = shown.find("git__history")
    assert added == ["git__history"]
    assert found is not None
    assert (found.grant, found.shown_name) == (LOG, "history")
    assert shown.find("git__log") is None


def test_a_tool_that_is_renamed_while_it_is_listed_keeps_its_name() -> None:
    shown = surface(LOG)

    shown.redefine(called("history"))

    assert [each.name for each in shown.shown] == ["git__log"]
    assert shown.name(LOG, NAMES[GIT], "history") == "git__log"


def test_a_tool_that_is_renamed_while_it_is_off_is_known_by_both_names() -> None:
    shown = surface(LOG)
    shown.remove([LOG])

    added = shown.add([LOG], NAMES, called("history"))
    other = shown.add([PUSH], NAMES, called("log", PUSH))
    shown.remove([LOG])
    back = shown.add([LOG], NAMES, DEFINITIONS)

    assert added == ["git__history"]
    # A name is never given to another tool, also if its own one has another by now.
    assert other != ["git__log"]
    assert (shown.known("git__log"), shown.known("git__history")) == (LOG, LOG)
    assert back == ["git__log"]


def test_a_restored_session_keeps_the_name_of_an_edited_tool() -> None:
    shown = Surface([OWN])
    shown.restore({LOG: WireName("git__history")})

    added = shown.add([LOG], NAMES, called("history"))

    assert added == ["git__history"]
    assert shown.names == {LOG: "git__history"}
