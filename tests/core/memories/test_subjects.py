"""Which capability or server a memory is about; one without a subject is reported."""

import pytest

from capd.core.memories.subjects import Subjects
from capd_protos.types import CapabilityId, CapabilityName, ServerName, TapName

SUBJECTS = Subjects(
    [CapabilityId(TapName("mine"), CapabilityName("git-history"))],
    [ServerName("git-history"), ServerName("db")],
)


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("git_history", "git-history"),
        ("Git-History", "git-history"),
        ("Mine/git history", "mine/git-history"),
        ("git-historie", "git-historie"),
    ],
)
def test_a_capability_is_written_down_as_it_is_spelled(wanted: str, meant: str) -> None:
    assert SUBJECTS.capability(wanted) == meant


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("git_history:echo", "git-history:echo"),
        ("git*:echo", "git*:echo"),
        ("git_history__echo", "git_history__echo"),
        ("none:echo", "none:echo"),
    ],
)
def test_a_tool_has_its_server_as_that_is_spelled(wanted: str, meant: str) -> None:
    assert SUBJECTS.tool(wanted) == meant


@pytest.mark.parametrize(
    ("capability", "tool", "said"),
    [
        ("git-history", "", ""),
        ("", "git*:echo", ""),
        ("", "git__echo", ""),
        (
            "git-historie",
            "",
            "it is never told: no capability is named 'git-historie'. Near names: git-history.",
        ),
        (
            "",
            "git_history:echo",
            "it is never told: server 'git-history' is not named 'git_history'",
        ),
        ("", "none*:echo", "it is never told: no server is named 'none*'"),
    ],
)
def test_what_nothing_has_is_said_with_near_names(capability: str, tool: str, said: str) -> None:
    assert SUBJECTS.unmatched(capability, tool) == said
