"""Which calls a person has to approve, and how long an approval lasts.

    call ──no `ask` rule matches──────────────> sent
      ├──its tool is approved already─────────> sent
      └──a rule matches──> open ──once────────> sent
                             ├──session───────> sent; so is every later call of the tool in the
                             │                  session
                             ├──always────────> sent; so is every later call of the tool
                             ├──refuse────────> refused
                             └──no answer─────> refused

An approval is for one tool of one server definition. A server with another definition is another
server, even under the same name.
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from capd.core.definitions.hidden_text import cleaned, revealed
from capd.core.lazy_patterns import lazy_pattern
from capd.core.protocol.elicitation import is_secret
from capd.core.protocol.generations import raw
from capd.core.redaction import MARK
from capd_protos.types import ServerIdentity, ServerName, SessionKey, ToolName, WireName

Hint = Literal["destructive", "not said", "not destructive", "read-only"]
"""What a tool's annotations say about its effects. `not said` counts as destructive."""
Answer = Literal["once", "session", "always", "refuse"]
ANSWERS: tuple[Answer, ...] = ("once", "session", "always", "refuse")

ASK_TIMEOUT = 120.0
"""Seconds for which a call waits for a person, unless `[policy] ask_timeout` says otherwise."""
DESTRUCTIVE = "destructive"
"""The name in a rule that stands for every tool that counts as destructive."""
MOST_CHARACTERS = 2000
"""A person is shown at most this many characters of a call's arguments."""
MOST_PARSED_BYTES = 64 << 10
"""Longer arguments are not parsed for the question, and a person is told only how long they are."""
MOST_LASTING = 1000
"""How many tools may have a permanent approval. The oldest approval is dropped first."""

_MEANINGS: dict[Hint, str] = {
    "destructive": "that it may destroy or overwrite something",
    "not said": "nothing of whether it destroys something, which counts as yes",
    "not destructive": "that it changes something, and destroys nothing",
    "read-only": "that it changes nothing",
}
_BREAKS = lazy_pattern(r"[\r\n\u2028\u2029]+")


class _Annotations(msgspec.Struct):
    readOnlyHint: bool | None = None  # noqa: N815 - MCP's name
    destructiveHint: bool | None = None  # noqa: N815


class _Tool(msgspec.Struct):
    annotations: _Annotations | None = None


class _Content(msgspec.Struct):
    answer: str = "once"


class _Elicited(msgspec.Struct):
    action: str
    content: _Content | None = None


_TOOL = msgspec.json.Decoder(_Tool)


def hint_of(definition: bytes) -> Hint:
    """Return what a tool's definition says about its effects; `not said` if it is unreadable.

    By MCP 2025-11-25, "ToolAnnotations", a tool that is not read-only is destructive unless its
    server sets `destructiveHint` to false.
    """
    try:
        annotations = _TOOL.decode(definition).annotations or _Annotations()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "not said"
    if annotations.readOnlyHint:
        return "read-only"
    if annotations.destructiveHint is None:
        return "not said"
    return "destructive" if annotations.destructiveHint else "not destructive"


def counts_as_destructive(hint: Hint) -> bool:
    """Tell whether a rule for destructive tools matches a tool with this hint."""
    return hint in {"destructive", "not said"}


@dataclass(frozen=True, slots=True)
class AskRule:
    """A rule by which a person has to approve calls, and the configuration table that it is in."""

    pattern: str
    place: str


@dataclass(frozen=True, slots=True)
class ToolKey:
    """A tool, by the identity of its server and its name there."""

    server: ServerIdentity
    tool: ToolName


@dataclass(frozen=True, slots=True)
class PermanentApproval:
    """A tool that may be called without asking a person (the answer `always`)."""

    key: ToolKey
    server: ServerName
    """The server's name at the time of the approval, for a person."""

    @property
    def name(self) -> str:
        """The tool as a person writes it: `server:tool`."""
        return f"{self.server}:{self.key.tool}"


@dataclass(frozen=True, slots=True)
class Question:
    """One call that waits for a person's approval."""

    session: SessionKey
    client: str
    project: str
    server: ServerName
    key: ToolKey
    name: WireName
    """The tool's name in the session."""
    arguments: str
    """The arguments of the call, in the form that a person is shown."""
    hint: Hint
    rule: AskRule
    is_far: bool = False
    """Whether its session came over a bridge, from another host or a container. Permanent approvals
    do not apply to such a session, and `always` counts as `session`."""

    def text(self) -> str:
        """Return the question for a person, a few lines of plain text."""
        client = shown_word(self.client) or "a client"
        lines = (
            f"capd: {client} wants to call {self.key.tool} of the server {self.server}.",
            f"Arguments: {self.arguments}",
            f"Its server says {_MEANINGS[self.hint]}.",
            f"You are asked because of the rule '{self.rule.pattern}' in {self.rule.place}.",
        )
        return cleaned("\n".join(_BREAKS.sub(" ", line) for line in lines)).text


def shown_word(text: str) -> str:
    """Return the first 60 characters of a client's name, on one line, without hidden characters."""
    return cleaned(_BREAKS.sub(" ", text[:60])).text


class Approvals:
    """The calls of all sessions that wait for a person, and the approvals that were given."""

    def __init__(self, lasting: Iterable[PermanentApproval] = ()) -> None:
        self._lasting = {each.key: each for each in lasting}
        self._of_sessions: dict[SessionKey, set[ToolKey]] = {}
        self._open: dict[int, Question] = {}
        self._answered: dict[int, Answer] = {}
        self._last = 0

    @property
    def open(self) -> dict[int, Question]:
        """The calls that wait for approval, by number, the oldest first."""
        return dict(self._open)

    @property
    def lasting(self) -> tuple[PermanentApproval, ...]:
        """The permanently approved tools, oldest first."""
        return tuple(self._lasting.values())

    def is_approved(self, session: SessionKey, key: ToolKey, *, is_far: bool = False) -> bool:
        """Tell whether a tool may be called in a session without a question.

        Permanent approvals do not count in a session over a bridge (`is_far`).
        """
        of_session = self._of_sessions.get(session, ())
        return key in of_session or (key in self._lasting and not is_far)

    def ask(self, question: Question) -> int:
        """Add a call that waits for approval; return the number of its question."""
        self._last += 1
        self._open[self._last] = question
        return self._last

    def answer(self, number: int, answer: Answer) -> Collection[int]:
        """Record a person's answer; return the numbers of the questions that it closes.

        No number is returned if the question is not open. `session` and `always` also close the
        other open questions that they cover.
        """
        question = self._open.pop(number, None)
        if question is None:
            return ()
        if answer == "always" and question.is_far:
            answer = "session"
        self._answered[number] = answer
        if answer == "session":
            self._of_sessions.setdefault(question.session, set()).add(question.key)
        elif answer == "always":
            self.put(PermanentApproval(question.key, question.server))
        others = [
            n for n, q in self._open.items() if self.is_approved(q.session, q.key, is_far=q.is_far)
        ]
        if answer in {"session", "always"}:
            for other in others:
                del self._open[other]
                self._answered[other] = answer
            return (number, *others)
        return (number,)

    def close(self, number: int) -> Answer | None:
        """Remove a question; return the person's answer to it, or None if there is none yet."""
        self._open.pop(number, None)
        return self._answered.pop(number, None)

    def put(self, lasting: PermanentApproval) -> None:
        """Approve a tool permanently."""
        self._lasting.pop(lasting.key, None)
        self._lasting[lasting.key] = lasting
        while len(self._lasting) > MOST_LASTING:
            del self._lasting[next(iter(self._lasting))]

    def forget(self, name: str) -> list[PermanentApproval]:
        """Withdraw the permanent approvals of `name`; return them.

        `name` is `server:tool`, or a server's name for all of its tools. Approvals of these tools
        for single sessions are withdrawn as well.
        """
        forgotten = [each for each in self._lasting.values() if name in {each.name, each.server}]
        for each in forgotten:
            del self._lasting[each.key]
            for approved in self._of_sessions.values():
                approved.discard(each.key)
        return forgotten

    def end_session(self, session: SessionKey) -> None:
        """Forget what was approved for a session that has ended."""
        self._of_sessions.pop(session, None)


def shown_arguments(written: bytes, redact: Callable[[str], str]) -> str:
    """Return a call's arguments in the form for a person: one line, short, without secrets.

    `written` is their JSON. `redact` removes the secrets that capd knows from a text. Hidden
    characters are shown as escapes. A name that an object has twice is shown twice, because a
    server may read either value.
    """
    if not written.strip():
        return "none"
    if len(written) > MOST_PARSED_BYTES:
        return f"{len(written)} bytes, too many to be shown"
    try:
        value = msgspec.json.decode(written)  # which is stricter than `json.loads`
        if _repeats_a_name(written):
            value = json.loads(written, object_pairs_hook=_Pairs)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "not readable"
    try:
        text = msgspec.json.encode(_without_secrets(value)).decode()
    except RecursionError:
        return "nested too deeply to be shown"
    text = revealed(redact(text))
    if len(text) > MOST_CHARACTERS:
        more = len(text) - MOST_CHARACTERS
        text = f"{text[:MOST_CHARACTERS]}... and {more} more characters"
    return text


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in which a name may occur twice."""


def _repeats_a_name(written: bytes) -> bool:
    is_repeated = False

    def note(pairs: list[tuple[str, Any]]) -> None:
        nonlocal is_repeated
        is_repeated = is_repeated or len({name for name, _ in pairs}) < len(pairs)

    json.loads(written, object_pairs_hook=note)
    return is_repeated


def _without_secrets(value: Any) -> Any:
    if isinstance(value, _Pairs):
        members = (b"%s:%s" % (raw(name), raw(_shown_member(name, it))) for name, it in value)
        return msgspec.Raw(b"{%s}" % b",".join(members))
    if isinstance(value, dict):
        return {key: _shown_member(key, inner) for key, inner in value.items()}
    return [_without_secrets(each) for each in value] if isinstance(value, list) else value


def _shown_member(name: str, value: Any) -> Any:
    return MARK if isinstance(value, str) and is_secret(name) else _without_secrets(value)


def answer_in(result: bytes) -> Answer | None:
    """Return what a client's user answered (the result of `elicitation/create`).

    The result is None if the question was dismissed (`cancel`): by MCP 2025-11-25, "Response
    Actions", no choice was made then. Clients that run without a person dismiss each question
    immediately. Any other answer than a clear yes is a refusal. A yes without a duration approves
    this call only.
    """
    try:
        elicited = msgspec.json.decode(result, type=_Elicited)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "refuse"
    if elicited.action == "cancel":
        return None
    if elicited.action != "accept":
        return "refuse"
    match (elicited.content or _Content()).answer:
        case "once" | "session" | "always" as chosen:
            return chosen
        case _:
            return "refuse"
