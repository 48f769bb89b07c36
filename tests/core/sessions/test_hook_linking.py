"""A prompt hook is linked to the right session, or to none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.sessions.hook_linking import HookLink, HookRun, SessionCandidate, link
from capd_protos.types import SessionKey


def session(
    key: str,
    *,
    client: str = "claude-code",
    ids: tuple[str, ...] = (),
    parent: int = 0,
    project: str = "/p",
    line: str = "",
) -> SessionCandidate:
    return SessionCandidate(SessionKey(key), client, frozenset(ids), parent, project, line)


def hook(
    *,
    client: str = "claude-code",
    session_id: str = "",
    ancestors: tuple[int, ...] = (),
    project: str = "/p",
    line: str = "",
) -> HookRun:
    return HookRun(client, session_id, ancestors, project, line)


TWO = (session("a", ids=("ida",), parent=10), session("b", ids=("idb",), parent=20))


@pytest.mark.parametrize(
    ("asked", "sessions", "expected"),
    [
        (hook(session_id="idb"), TWO, HookLink(SessionKey("b"), "session id")),
        (hook(session_id="idb", ancestors=(10,)), TWO, HookLink(SessionKey("b"), "session id")),
        (hook(ancestors=(99, 20, 10, 1)), TWO, HookLink(SessionKey("b"), "common parent")),
        (hook(ancestors=(99, 98, 1), project="/q"), TWO, HookLink(None, "none")),
        # Two editors in one terminal: the terminal started neither's shim.
        (hook(ancestors=(30, 5, 1), project="/q"), TWO, HookLink(None, "none")),
        (hook(ancestors=(30, 5, 1)), TWO, HookLink(None, "ambiguous")),
        (hook(), TWO[:1], HookLink(SessionKey("a"), "project")),
        (hook(client="other"), TWO[:1], HookLink(None, "none")),
        # A shim calls its client by the program's name, a hook by capd's.
        (
            hook(client="gemini", line="gemini"),
            (session("a", client="node", line="gemini"),),
            HookLink(SessionKey("a"), "project"),
        ),
        # Two clients that one editor has started, and one of them alone.
        (
            hook(client="cline", ancestors=(10,), line="cline"),
            (session("a", parent=10, line="vscode"), session("b", parent=10, line="cline")),
            HookLink(SessionKey("b"), "common parent"),
        ),
        (
            hook(client="cline", ancestors=(10,), line="cline"),
            (session("a", client="node", parent=10, line="vscode"),),
            HookLink(None, "none"),
        ),
        (
            hook(client="cline", ancestors=(10,), line="cline"),
            (session("a", client="mine", parent=10),),
            HookLink(SessionKey("a"), "common parent"),
        ),
        (hook(project=""), (session("a", project=""),), HookLink(None, "none")),
        (hook(ancestors=(1,)), (session("a", client="x", parent=1),), HookLink(None, "none")),
        (
            hook(ancestors=(10,), project="/q"),
            (session("a", parent=10), session("b", parent=10, project="/q")),
            HookLink(SessionKey("b"), "common parent"),
        ),
        (
            hook(ancestors=(10,)),
            (session("a", parent=10), session("b", parent=10)),
            HookLink(None, "ambiguous"),
        ),
        (
            hook(session_id="same"),
            (session("a", ids=("same",)), session("b", ids=("same",))),
            HookLink(None, "ambiguous"),
        ),
        (hook(), (), HookLink(None, "none")),
    ],
)
def test_a_hook_speaks_for(
    asked: HookRun, sessions: tuple[SessionCandidate, ...], expected: HookLink
) -> None:
    assert link(asked, sessions) == expected


_CANDIDATES = st.builds(
    session,
    st.sampled_from(["a", "b", "c"]),
    client=st.sampled_from(["x", "y"]),
    ids=st.sampled_from([(), ("1",), ("2",), ("1", "2")]),
    parent=st.integers(0, 4),
    project=st.sampled_from(["", "/p", "/q"]),
)
_HOOKS = st.builds(
    hook,
    client=st.sampled_from(["x", "y"]),
    session_id=st.sampled_from(["", "1", "2"]),
    ancestors=st.lists(st.integers(1, 4), max_size=4).map(tuple),
    project=st.sampled_from(["", "/p", "/q"]),
)


@given(_HOOKS, st.lists(_CANDIDATES, max_size=3, unique_by=lambda c: c.key))
def test_whatever_is_linked_shares_something_that_no_other_session_shares(
    asked: HookRun, sessions: list[SessionCandidate]
) -> None:
    found = link(asked, sessions)

    others = [c for c in sessions if c.key != found.key]
    (linked,) = [c for c in sessions if c.key == found.key] or (None,)
    if found.how == "session id":
        assert linked is not None
        assert asked.client_session in linked.client_sessions
        assert not any(asked.client_session in c.client_sessions for c in others)
    elif found.how == "common parent":
        assert linked is not None
        assert linked.parent in asked.ancestors
        assert not any(c.parent == linked.parent and c.project == linked.project for c in others)
    elif found.how == "project":
        assert linked is not None
        assert not any((c.client, c.project) == (linked.client, linked.project) for c in others)
    else:
        assert found.key is None
