"""Asks a person before a call is sent, if a rule of the policy says so.

    a call that a rule matches ──> a question ──> the client's own dialog (elicitation)
                                            └───> capd approve, capd top

The first answer decides. The client is asked only if its connection does not come from a server or
a bridge. `capd approve` takes only the answer of a person at a terminal. A dialog that is dismissed
in the client leaves the question open for `capd approve`. The rules are in
`core/sessions/approval`.
"""

from typing import Any

import msgspec
import structlog

from capd.actors.session.services import SessionContext
from capd.adapters.clients.conversation import Request
from capd.core.protocol import elicitation
from capd.core.protocol.generations import Members, offers
from capd.core.protocol.outcomes import CallFailedError, RefusedError, ServerError
from capd.core.sessions.admission import ActiveTool, denied
from capd.core.sessions.approval import (
    Answer,
    AskRule,
    Question,
    ToolKey,
    answer_in,
    hint_of,
    shown_arguments,
)
from capd_protos.codec import MalformedError

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "Allow it",
            "oneOf": [
                {"const": "once", "title": "This once"},
                {"const": "session", "title": "For this session"},
                {"const": "always", "title": "Always"},
            ],
            "default": "once",
        }
    },
}
"""The form of the question. It has no value for a refusal: the client has a button for that."""

log = structlog.get_logger(actor="curator")


class SessionApprovals:
    """Asks a person before certain calls of one session."""

    # Slots save memory: every idle session has one of these objects.
    __slots__ = ("_context", "_service")

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._service = context.services.approvals

    def rule(self, listed: ActiveTool) -> AskRule | None:
        """Return the rule of the policy that requires approval for a call of this tool.

        None if no rule does, or if the tool is approved for the session or for always.
        """
        policy, shown = self._context.state.policy, listed.shown
        if not policy.asks:
            return None
        grant = shown.grant
        hint = hint_of(shown.definition)
        rule = policy.ask_rule(listed.lease.spec.name, grant.tool, hint)
        key = ToolKey(grant.server, grant.tool)
        place = self._context.place
        is_approved = self._service.approvals.is_approved(place.key, key, is_far=bool(place.bridge))
        return None if rule is None or is_approved else rule

    async def check(self, listed: ActiveTool, request: Request, sent: Members) -> bool:
        """Have a person approve a call, if a rule says so; return whether a person was asked.

        The person is shown what is `sent` to the server, not the client's form of an edited tool.

        Raises:
            RefusedError: the person refused, nobody answered, or policy denies the call by now.
        """
        rule = self.rule(listed)
        if rule is None:
            return False
        name, server = listed.shown.name, listed.lease.spec.name
        within = self._context.view.rules.ask_timeout
        question = self._question(listed, sent, rule)
        in_client: Answer | None = None

        async def elicit(number: int) -> Answer | None:
            nonlocal in_client
            in_client = await self._elicit(number, question, request)
            return in_client

        answer = await self._service.ask(question, within, elicit)
        by = f"rule '{rule.pattern}' in {rule.place}"
        if answer is None:
            raise RefusedError(
                f"{name} was not sent: the user has to approve it ({by}), and did not answer "
                f"within {within:g} s. They answer in their editor, or with: capd approve"
            )
        if in_client == "refuse":
            # Some clients decline by themselves (docs/approval.md): the user may not have seen
            # the question.
            raise RefusedError(
                f"{name} was not sent: it was declined in {question.client}, by the user or by "
                f"their settings ({by})."
            )
        if answer == "refuse":
            raise RefusedError(f"{name} was not sent: the user refused it ({by}).")
        restriction = self._context.state.policy.restriction(server, listed.shown.grant.tool)
        if restriction is not None:
            raise RefusedError(denied(name, restriction.reason))
        return True

    def _question(self, listed: ActiveTool, sent: Members, rule: AskRule) -> Question:
        place, shown = self._context.place, listed.shown
        arguments = bytes(sent.get("arguments", b""))
        return Question(
            place.key,
            f"{f'bridge {place.bridge}: ' if place.bridge else ''}"
            f"{self._context.view.traits.title or place.client}",
            place.project,
            listed.lease.spec.name,
            ToolKey(shown.grant.server, shown.grant.tool),
            shown.name,
            shown_arguments(arguments, self._service.redact),
            hint_of(shown.definition),
            rule,
            is_far=bool(place.bridge),
        )

    async def _elicit(self, number: int, question: Question, request: Request) -> Answer | None:
        """Ask the client's user; return the answer.

        None if nobody can be asked in the client, or nobody made a choice.
        """
        caller = request.caller
        progress = {"progress": 0, "message": f"waits for your approval: capd approve {number}"}
        caller.progress(msgspec.json.encode(progress))
        connection = self._context.connection
        is_users = not (connection.may_be_servers or connection.is_far)
        if not is_users or not offers(caller.client, elicitation.METHOD):
            return None
        params = {"message": question.text(), "requestedSchema": _SCHEMA}
        try:
            written = await caller.ask(
                elicitation.METHOD, msgspec.json.encode(params), lambda _: None
            )
        except (ServerError, CallFailedError, MalformedError) as error:
            log.info("approval_not_asked", session=question.session, reason=str(error))
            return None
        answer = answer_in(written)
        if answer is None:
            log.info("approval_dismissed", session=question.session, tool=question.name)
        return answer
