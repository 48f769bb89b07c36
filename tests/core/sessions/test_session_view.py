"""A session's view depends on the client's features and its observed behaviour."""

from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import BertWordPieceTokenizer

import capd.adapters.model
from capd.adapters.client_table import client_table
from capd.core.index.token_costs import TokenCosts
from capd.core.sessions.client_traits import ClientTraits, ModeSetting, traits_of
from capd.core.sessions.habits import Habits
from capd.core.sessions.hook_context import TURN_TOKENS, context
from capd.core.sessions.instructions import instructions
from capd.core.sessions.own_tool_list import definitions, offered
from capd.core.sessions.routing_switch import RoutingSwitch
from capd.core.sessions.session_record import SavedView
from capd.core.sessions.session_rules import SessionRules
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.surface import Surface
from capd.core.sessions.surface_mode import RelistWatch, SurfacePlan
from capd.core.sessions.whole_list import ToolTotals
from capd.core.tools.curation import CurationRules
from capd_protos.types import CapabilityName, WireName

TABLE, _ = client_table()


def tokens(text: str) -> int:
    vocabulary = Path(capd.adapters.model.__file__).with_name("minilm_vocab.txt")
    return len(BertWordPieceTokenizer(str(vocabulary), lowercase=True).encode(text).ids)


def view(client: str = "", mode: ModeSetting = "auto", habits: Habits | None = None) -> SessionView:
    rules = SessionRules(mode=mode, table=TABLE)
    return SessionView(rules, client=client, project="/src", habits=habits)


def settled(
    client: str, own_name: str = "", mode: ModeSetting = "auto", *, is_stateless: bool = False
) -> SessionView:
    made = view(client, mode)
    made.decide(Surface(()), own_name, is_stateless=is_stateless)
    return made


@pytest.mark.parametrize(
    ("client", "own_name", "is_stateless", "mode"),
    [
        ("somebody", "", False, "dynamic"),
        ("somebody", "", True, "stable"),
        ("claude", "claude-code", False, "dynamic"),
        ("claude", "claude-code", True, "dynamic"),
        ("node", "gemini-cli-mcp-client", False, "dynamic"),
        ("codex", "codex-mcp-client", False, "stable"),
        ("node", "cline", False, "stable"),
        ("opencode", "", False, "dynamic"),
    ],
)
def test_the_mode_is_chosen_by_what_the_client_does(
    client: str, own_name: str, *, is_stateless: bool, mode: ModeSetting
) -> None:
    assert settled(client, own_name, is_stateless=is_stateless).plan.mode == mode


BEFORE = SavedView("stable", "over 3000 tokens", "zed", has_deferred=False)


@pytest.mark.parametrize(
    ("client", "mode", "saved", "is_kept", "plan"),
    [
        ("zed", "auto", BEFORE, True, SurfacePlan("stable", "over 3000 tokens")),
        ("zed", "auto", None, False, SurfacePlan("dynamic", "the client lists again")),
        ("node", "auto", BEFORE, False, SurfacePlan("dynamic", "the client lists again")),
        ("zed", "dynamic", BEFORE, False, SurfacePlan("dynamic", "set by the user")),
        (
            *("zed", "auto"),
            SavedView("odd", "as before", "zed"),
            *(True, SurfacePlan("dynamic", "as before")),
        ),
    ],
)
def test_what_was_decided_for_a_client_holds_over_the_daemons_end(
    client: str, mode: ModeSetting, saved: SavedView | None, *, is_kept: bool, plan: SurfacePlan
) -> None:
    made = view(client, mode)

    got = made.keep(saved)
    made.decide(Surface(()))

    assert (got, made.plan) == (is_kept, plan)


def test_a_list_that_can_change_is_not_kept_for_a_client_of_the_other_generation() -> None:
    made = view("zed")
    made.keep(SavedView("dynamic", "the client lists again", "zed"))

    made.decide(Surface(()), is_stateless=True)

    assert made.plan.mode == "stable"


@pytest.mark.parametrize("mode", ["auto", "dynamic", "pass-through"])
def test_what_was_decided_is_saved_and_what_is_set_is_not(mode: ModeSetting) -> None:
    made = settled("zed", mode=mode)

    saved = made.saved()

    decided = SavedView("dynamic", "the client lists again", "zed")
    assert saved == (decided if mode == "auto" else None)


@pytest.mark.parametrize("mode", ["dynamic", "stable"])
def test_what_the_user_has_set_counts(mode: ModeSetting) -> None:
    assert settled("codex", mode=mode, is_stateless=True).plan.mode == mode


@pytest.mark.parametrize(
    ("tools", "size", "is_all", "mode"),
    [(10, 69_000, True, "pass-through"), (10, 71_000, True, "stable"), (129, 9, True, "dynamic"),
     (10, 9, False, "dynamic")],
)  # fmt: skip
def test_everything_is_listed_only_where_it_is_known_and_fits(
    tools: int, size: int, *, is_all: bool, mode: ModeSetting
) -> None:
    made = view("somebody", "pass-through")
    made.described(tools, size, is_all=is_all)

    made.decide(Surface(()))

    assert made.plan.mode == mode


@pytest.mark.parametrize(
    ("client", "known", "mode"),
    [
        ("opencode", 10_500, "dynamic"),
        ("opencode", 10_501, "stable"),
        ("somebody", 10_501, "stable"),
        ("claude", 10_500, "dynamic"),
        ("claude", 10_501, "stable"),
    ],
)
@pytest.mark.parametrize("is_all", [True, False])
def test_a_list_changes_only_where_there_is_little_that_could_come(
    client: str, known: int, mode: ModeSetting, *, is_all: bool
) -> None:
    made = view(client)
    made.described(200, known, is_all=is_all)

    made.decide(Surface(()))

    assert made.plan.mode == mode


@pytest.mark.parametrize(
    ("client", "at_border", "in_turn"),
    [("claude", True, True), ("gemini", True, False), ("copilot", False, False),
     ("codex", False, False), ("somebody", True, True)],
)  # fmt: skip
def test_a_model_is_told_to_call_through_what_its_list_lacks(
    client: str, *, at_border: bool, in_turn: bool
) -> None:
    made = settled(client)

    said = [made.lists_at_once(at_border=True), made.lists_at_once(at_border=False)]

    assert said == [at_border, in_turn]


def test_where_no_prefix_is_added_the_own_tools_have_one() -> None:
    assert list(settled("continue").own) == [
        "capd_capability",
        "capd_tool_search",
        "capd_tool_call",
        "capd_result_read",
    ]


@pytest.mark.parametrize(
    ("client", "limit"),
    [("claude", 53), ("gemini", 54), ("copilot", 59), ("continue", 64), ("somebody", 53)],
)
def test_names_leave_room_for_the_clients_prefix(client: str, limit: int) -> None:
    assert settled(client).traits.wire_limit == limit


def test_a_client_that_says_late_that_it_wants_everything_has_what_was_prepared() -> None:
    table = {"mine": ClientTraits(names=("my-editor",), mode="pass-through")}
    made = SessionView(SessionRules(table=table), client="somebody", project="/")
    made.described(4, 400, is_all=True)
    surface = Surface(())
    made.decide(surface)

    made.decide(surface, "my-editor")

    assert (made.plan.mode, made.plan.reason) == (
        "dynamic",
        "its client said who it is after the session began",
    )
    assert list(made.own) == ["capability", "tool_search", "tool_call", "result_read"]


def test_where_nothing_is_deferred_no_search_is_offered() -> None:
    made = view("somebody")
    made.described(0, 0, is_all=True)
    made.decide(Surface(()))

    assert list(made.own) == ["capability", "result_read"]


def test_a_client_that_lets_two_turns_pass_is_taken_not_to_list_again() -> None:
    habits = Habits()
    made = view("somebody", habits=habits)
    made.decide(Surface(()))
    made.listed()
    made.changed()

    for _ in range(RelistWatch.TURNS):
        made.turned()

    assert not made.lists_at_once(at_border=True)
    later = view("somebody", habits=habits)
    later.decide(Surface(()))
    assert (later.plan.mode, later.plan.reason) == (
        "stable",
        "the client was seen not to list again",
    )


def test_one_that_listed_after_a_change_is_never_taken_for_another() -> None:
    made = view("somebody")
    made.decide(Surface(()))
    made.changed()
    made.listed()
    made.changed()

    for _ in range(9):
        made.turned()

    assert made.lists_at_once(at_border=False)


def test_a_client_that_lists_with_every_turn_is_taken_to_list_again_though_nobody_told_it() -> None:
    habits = Habits()
    made = view("continue", habits=habits)
    made.decide(Surface(()))
    made.listed()

    for _ in range(RelistWatch.UNASKED):
        made.turned()
        made.listed()
        made.listed()

    assert habits.seen("continue") is True


@pytest.mark.parametrize("turns", [0, 1])
def test_lists_that_a_new_connection_asks_for_say_nothing_of_a_client(turns: int) -> None:
    habits = Habits()
    made = view("continue", habits=habits)
    made.decide(Surface(()))

    for _ in range(turns):
        made.turned()
    for _ in range(5):
        made.listed()

    assert habits.seen("continue") is None


@pytest.mark.parametrize(
    ("client", "seen", "is_asked"),
    [
        ("cursor", None, True),
        ("cursor", True, False),
        ("cursor", False, False),
        ("zed", None, False),
        ("somebody", None, False),
    ],
)
def test_only_who_is_said_never_to_list_again_and_was_not_seen_is_asked(
    client: str, *, seen: bool | None, is_asked: bool
) -> None:
    habits = Habits()
    habits.note(client, "", seen)
    made = view(client, habits=habits)
    made.decide(Surface(()))

    assert made.is_probe_due is is_asked


@pytest.mark.parametrize("own_word", ['relists = "never"', 'mode = "stable"'])
def test_who_is_as_the_user_says_is_not_asked(tmp_path: Path, own_word: str) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(f"[cursor]\n{own_word}\n")
    table, _ = client_table(file)
    made = SessionView(SessionRules(table=table), client="cursor", project="/")
    made.decide(Surface(()))

    assert not made.is_probe_due


def test_who_was_asked_is_not_asked_again() -> None:
    made = view("cursor")
    made.decide(Surface(()))

    made.changed()

    assert not made.is_probe_due


@pytest.mark.parametrize(
    ("client", "own_name", "line", "title"),
    [
        ("node", "gemini-cli-mcp-client", "gemini", "Gemini CLI"),
        ("Code", "Visual Studio Code - Insiders", "vscode", "VS Code"),
        ("zed", "", "zed", "Zed"),
        ("moon", "moon-client", "", ""),
    ],
)
def test_a_client_has_the_title_of_its_line(
    client: str, own_name: str, line: str, title: str
) -> None:
    made = settled(client, own_name)

    assert (made.line, made.traits.title) == (line, title)


def test_an_unknown_client_is_one_that_lists_again() -> None:
    assert traits_of(TABLE, ["", "nobody"]) == ("", ClientTraits())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("qwen-cli-mcp-client-capd", "qwen"),
        ("QWEN-cli-mcp-client-my[server]", "qwen"),
        ("gemini-cli-mcp-client", "gemini"),
        ("my-qwen-cli-mcp-client", ""),
    ],
)
def test_a_client_that_says_for_which_server_it_speaks_is_known_as_well(
    name: str, line: str
) -> None:
    assert traits_of(TABLE, [name])[0] == line


def test_every_line_of_the_table_is_found_by_each_of_its_names() -> None:
    found = {name: traits_of(TABLE, [name])[0] for line in TABLE.values() for name in line.names}

    assert all(name in TABLE[key].names for name, key in found.items())


@pytest.mark.parametrize("is_fixed", [True, False])
@pytest.mark.parametrize("is_prefixed", [True, False])
def test_the_instructions_are_short_and_name_the_tools_as_the_client_does(
    *, is_fixed: bool, is_prefixed: bool
) -> None:
    # A result that is cut says itself by what it is read.
    own = offered(is_prefixed=is_prefixed, has_results=False)

    text = instructions(own, is_fixed=is_fixed)

    assert tokens(text) <= 250
    assert all(f"`{name}`" in text for name in own)
    assert instructions({}, is_fixed=is_fixed) == ""


def test_the_instructions_say_how_a_script_is_run_where_no_list_does() -> None:
    own = offered(is_prefixed=True, has_results=False)

    with_scripts = instructions(own, is_fixed=True, has_scripts=True)

    assert (
        " For three or more calls, call `script_run` with `capd_tool_call`: its `code` is Python, "
        "`await server.tool(arg=1)`. "
    ) in with_scripts
    assert tokens(with_scripts) <= 275


def test_the_own_tools_cost_little() -> None:
    listed = Surface(definitions(offered().items())).listing().decode()

    assert tokens(listed) <= 1050


def test_what_a_turn_says_is_within_its_tokens_whatever_the_names() -> None:
    names = [WireName(f"server_name_{n}__" + "long_tool_name_"[:40] * 2) for n in range(30)]

    got = context(CapabilityName("something"), names, TokenCosts())

    assert tokens(got) <= TURN_TOKENS


def test_a_users_own_table_changes_single_facts(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(
        '[codex]\nrelists = "lag"\n[mine]\nnames = ["my-editor"]\n[bad]\nrelists = "often"\n'
    )

    table, problems = client_table(file)

    assert (table["codex"].relists, table["codex"].name_limit) == ("lag", 80)
    assert table["mine"].names == ("my-editor",)
    assert [problem.partition(" is not used")[0] for problem in problems] == [f"{file}: [bad]"]
    assert "bad" not in table
    assert {name for name, traits in table.items() if traits.is_relists_set} == {"codex"}


@pytest.mark.parametrize(
    ("own_word", "was_seen", "mode"),
    [("never", True, "stable"), ("mid_turn", False, "dynamic"), ("lag", False, "dynamic")],
)
def test_a_users_own_word_on_listing_again_outweighs_what_was_seen(
    tmp_path: Path, own_word: str, *, was_seen: bool, mode: str
) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(f'[mine]\nnames = ["somebody"]\nrelists = "{own_word}"\n')
    table, _ = client_table(file)
    habits = Habits()
    habits.note("mine", "", was_seen)
    made = SessionView(SessionRules(table=table), client="somebody", project="/", habits=habits)

    made.decide(Surface(()))

    assert made.plan.mode == mode


def test_a_users_own_word_also_outweighs_what_this_session_was_seen_to_do() -> None:
    table = {"mine": ClientTraits(names=("somebody",), is_relists_set=True)}
    made = SessionView(SessionRules(table=table), client="somebody", project="/")
    made.decide(Surface(()))
    made.changed()

    for _ in range(RelistWatch.TURNS):
        made.turned()

    assert made.lists_at_once(at_border=True)


@pytest.mark.parametrize("client", ["opencode", "claude-code", "gemini"])
def test_a_list_does_not_change_where_all_that_could_come_is_known(client: str) -> None:
    made = view(client)
    made.described(20, 9_000, is_all=True)

    made.decide(Surface(()))

    assert made.plan.mode == "stable"


# Everything listed, because it is little


def whole(client: str = "opencode", mode: ModeSetting = "auto") -> SessionView:
    made = view(client, mode)
    made.described(9, 3_000, is_all=True, catalog=ToolTotals(9, 2_000, is_all=True))
    made.decide(Surface(()))
    return made


@pytest.mark.parametrize("client", ["opencode", "claude-code", "codex", "copilot", "somebody"])
def test_a_few_tools_are_listed_all_in_every_client(client: str) -> None:
    made = whole(client)

    assert (made.plan.mode, made.plan.is_whole, dict(made.own)) == ("pass-through", True, {})


def test_a_few_tools_are_told_as_cards_to_a_client_that_keeps_listed_ones_back() -> None:
    made = whole("qwen")

    assert (made.plan.mode, made.plan.is_whole) == ("stable", False)
    assert "tool_call" in str(dict(made.own))


@pytest.mark.parametrize("mode", ["auto", "pass-through"])
def test_scripts_are_listed_beside_a_few_tools_where_the_user_says_so(mode: ModeSetting) -> None:
    made = view("opencode", mode)
    made.follow(replace(made.rules, lists_scripts=True))
    made.described(9, 3_000, is_all=True, catalog=ToolTotals(9, 2_000, is_all=True))

    made.decide(Surface(()))

    # Who sets a plain aggregator gets no tool that is not a server's.
    assert list(made.own) == (["script_run"] if mode == "auto" else [])
    assert bool(made.scripts_refusal) == (mode == "pass-through")


@pytest.mark.parametrize(("mode", "is_checked"), [("auto", True), ("pass-through", False)])
def test_arguments_are_checked_unless_the_user_wants_a_plain_aggregator(
    mode: ModeSetting, *, is_checked: bool
) -> None:
    assert whole(mode=mode).checks("git") is is_checked


def test_a_long_result_brings_the_tool_that_reads_it_and_more_tools_the_others() -> None:
    made = whole()

    first = made.late_own(for_results=True)
    then = made.late_own()
    again = made.late_own()

    assert [name for name, _ in first] == ["result_read"]
    assert [name for name, _ in then] == ["capability", "tool_search", "tool_call"]
    assert (again, made.reader, made.has_caller) == ([], "result_read", True)


@pytest.mark.parametrize(
    ("client", "for_results", "own"),
    [("gemini", True, 0), ("gemini", False, 4), ("codex", True, 0), ("codex", False, 0)],
)
def test_a_client_that_does_not_list_again_in_time_gets_no_further_tool(
    client: str, own: int, *, for_results: bool
) -> None:
    assert len(whole(client).late_own(for_results=for_results)) == own


def test_a_list_of_everything_is_decided_anew_after_the_daemons_end() -> None:
    assert whole().saved() is None


@pytest.mark.parametrize(
    ("curation", "own_routing", "may_compare"),
    [
        (CurationRules(), None, True),
        (CurationRules(scorer="keyword"), None, False),
        (CurationRules(kind="off"), None, False),
        (CurationRules(kind="off"), True, True),
        (CurationRules(), False, True),
    ],
)
def test_messages_need_the_model_for_routing_and_for_curation_by_meaning(
    curation: CurationRules, own_routing: bool | None, *, may_compare: bool
) -> None:
    rules = SessionRules(table=TABLE, routing=RoutingSwitch(is_on=False), curation=curation)
    made = SessionView(rules, client="zed", project="/src")
    made.own_routing = own_routing

    assert made.may_compare is may_compare


def test_a_client_whose_own_name_is_not_known_yet_may_be_one_that_routes() -> None:
    routing = RoutingSwitch(is_on=False, clients={"cline": True})
    rules = SessionRules(table=TABLE, routing=routing, curation=CurationRules(kind="off"))

    assert SessionView(rules, client="node", project="/src").may_compare
