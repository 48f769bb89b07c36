"""The tool search's answers if it finds nothing."""

from capd.core.tools.search_answers import missed, searched, unresolved
from capd.core.tools.tool_search import RankedTools, Restriction, Selected, ToolIndex, Withheld
from capd.core.tools.tool_text import Tool
from capd_protos.types import ServerName, ToolName, WireName

DENIED = Restriction("denied", "denied by the policy of this project")
ISSUE = Tool(WireName("github__create_issue"), ToolName("create_issue"), "github")
MAIL = Tool(WireName("mail__send"), ToolName("send"), "mail")
WHERE = searched(ToolIndex([ISSUE, MAIL]))


def test_a_miss_says_what_was_searched_and_near_names() -> None:
    got = missed("pigeons", RankedTools((), (), (MAIL.wire_name,), is_lexical=False), WHERE)

    assert got == (
        "Nothing among the 2 known tools of 2 servers fits 'pigeons': names, titles, descriptions, "
        "arguments and capabilities were searched. Near names: mail__send. Try other words, or "
        "the capability tool with action discover."
    )


def test_a_miss_names_what_lacks_a_secret_and_only_counts_what_is_denied() -> None:
    lacking = Restriction("missing_secrets", "GITHUB_TOKEN is missing")
    withheld = (Withheld(ISSUE, lacking), Withheld(MAIL, DENIED))

    got = missed("issue", RankedTools((), withheld, (), is_lexical=True), WHERE)

    assert got == (
        "Nothing among the 2 known tools of 2 servers fits 'issue': names, titles, descriptions, "
        "arguments and capabilities were searched. Only words were compared, because the "
        "embedding model is not ready (model_not_ready). What fits is withheld from this session: "
        "github__create_issue (GITHUB_TOKEN is missing); 1 tool (denied by the policy of this "
        "project). Try other words, or the capability tool with action discover."
    )


def test_a_miss_names_servers_that_were_never_asked() -> None:
    where = searched(ToolIndex([MAIL]), [ServerName(f"s{n}") for n in range(7)])

    got = missed("x" * 500, RankedTools((), (), (), is_lexical=False), where)

    assert f"fits '{'x' * 199}…':" in got
    assert (
        "Not searched, because they were never asked for their tools: s0, s1, s2, s3, s4 and 2 "
        "more (capd index asks them)."
    ) in got


def test_a_selection_says_the_real_reason_of_what_it_lacks() -> None:
    selected = Selected(
        (), (Withheld(ISSUE, DENIED),), (MAIL.wire_name,), {"send_mail": (MAIL.wire_name,)}
    )

    got = unresolved(selected, WHERE)

    assert got == (
        "No known tool has the exact name 'send_mail' (near names: mail__send). "
        "github__create_issue is withheld: denied by the policy of this project. "
        "Over the limit, left out: mail__send."
    )


def test_a_whole_selection_leaves_nothing_to_say() -> None:
    got = unresolved(Selected((MAIL,), (), (), {}), WHERE)

    assert got == ""
