"""Asks the curator, the actor that owns all sessions, about sessions, and changes them."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import CURATOR
from capd_protos import curator as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import SessionKey

_SESSION_OPENED: MsgpackCodec[messages.SessionOpened | messages.CuratorRefused] = MsgpackCodec(
    messages.SessionOpened | messages.CuratorRefused
)
_TURN_TAKEN: MsgpackCodec[messages.TurnTaken | messages.CuratorRefused] = MsgpackCodec(
    messages.TurnTaken | messages.CuratorRefused
)
_CAPABILITY_ANSWERED: MsgpackCodec[messages.CapabilityAnswered | messages.CuratorRefused] = (
    MsgpackCodec(messages.CapabilityAnswered | messages.CuratorRefused)
)
_TOOL_CALLED: MsgpackCodec[messages.ToolCalled | messages.CuratorRefused] = MsgpackCodec(
    messages.ToolCalled | messages.CuratorRefused
)
_TOOLS_LISTED: MsgpackCodec[messages.ToolsListed | messages.CuratorRefused] = MsgpackCodec(
    messages.ToolsListed | messages.CuratorRefused
)
_SESSIONS_LISTED: MsgpackCodec[messages.SessionsListed] = MsgpackCodec(messages.SessionsListed)
_REACH_DESCRIBED: MsgpackCodec[messages.ReachDescribed | messages.CuratorRefused] = MsgpackCodec(
    messages.ReachDescribed | messages.CuratorRefused
)
_SESSIONS_DRAINED: MsgpackCodec[messages.SessionsDrained] = MsgpackCodec(messages.SessionsDrained)
_TOKENS_DESCRIBED: MsgpackCodec[messages.TokensDescribed] = MsgpackCodec(messages.TokensDescribed)
_MEMORIES_DESCRIBED: MsgpackCodec[messages.MemoriesDescribed] = MsgpackCodec(
    messages.MemoriesDescribed
)
_PROJECT_LEFT: MsgpackCodec[messages.ProjectLeft] = MsgpackCodec(messages.ProjectLeft)
_APPROVALS_LISTED: MsgpackCodec[messages.ApprovalsListed] = MsgpackCodec(messages.ApprovalsListed)
_APPROVAL_ANSWERED: MsgpackCodec[messages.ApprovalAnswered | messages.CuratorRefused] = (
    MsgpackCodec(messages.ApprovalAnswered | messages.CuratorRefused)
)
_APPROVALS_FORGOTTEN: MsgpackCodec[messages.ApprovalsForgotten] = MsgpackCodec(
    messages.ApprovalsForgotten
)
_PROFILES_LISTED: MsgpackCodec[messages.ProfilesListed] = MsgpackCodec(messages.ProfilesListed)
_BRIDGE_ENDED: MsgpackCodec[messages.BridgeEnded] = MsgpackCodec(messages.BridgeEnded)
_TEXT_SAMPLED: MsgpackCodec[messages.TextSampled | messages.CuratorRefused] = MsgpackCodec(
    messages.TextSampled | messages.CuratorRefused
)


class CuratorClient(ActorClient):
    """Asks the curator about sessions, sends them turns, and changes what is active in them."""

    actor = CURATOR

    async def open_session(
        self, request: messages.OpenSession, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.SessionOpened | messages.CuratorRefused:
        """Open or resume the session for a client's connection.

        Call this only after the client's hello, the first line on the connection, was accepted.
        """
        return await self._ask(request, _SESSION_OPENED, timeout)

    async def end_bridge(
        self, bridge: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.BridgeEnded:
        """End every session of a bridge (a way in from another host), and delete their records."""
        return await self._ask(messages.EndBridge(bridge), _BRIDGE_ENDED, timeout)

    async def take_turn(
        self, request: messages.TakeTurn, *, timeout: float
    ) -> messages.TurnTaken | messages.CuratorRefused:
        """Send a user's message to a session; return what was decided and what has changed."""
        return await self._ask(request, _TURN_TAKEN, timeout)

    async def take_hook_turn(
        self, request: messages.TakeHookTurn, *, timeout: float
    ) -> messages.TurnTaken | messages.CuratorRefused:
        """Send a user's message from a prompt hook to the hook's session.

        The reply is as for `take_turn`.
        """
        return await self._ask(request, _TURN_TAKEN, timeout)

    async def enable(
        self, session: SessionKey, name: str, *, timeout: float
    ) -> messages.CapabilityAnswered | messages.CuratorRefused:
        """Switch a capability on in a session. Unlike `switch`, this teaches routing nothing."""
        return await self._ask(
            messages.EnableCapability(session, name), _CAPABILITY_ANSWERED, timeout
        )

    async def disable(
        self, session: SessionKey, name: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.CapabilityAnswered | messages.CuratorRefused:
        """Switch a capability or a tool off in a session, or cancel the start of a capability.

        Unlike `switch`, this teaches routing nothing.
        """
        return await self._ask(
            messages.DisableCapability(session, name), _CAPABILITY_ANSWERED, timeout
        )

    async def switch(
        self, session: SessionKey, name: str, *, is_on: bool, timeout: float
    ) -> messages.CapabilityAnswered | messages.CuratorRefused:
        """Switch a capability on or off in a session, as a person chose; routing learns from it."""
        request = messages.SwitchCapability(session, name, is_on)
        return await self._ask(request, _CAPABILITY_ANSWERED, timeout)

    async def switch_routing(
        self, session: SessionKey, *, is_on: bool, timeout: float = ANSWER_TIMEOUT
    ) -> messages.CapabilityAnswered | messages.CuratorRefused:
        """Set whether the session's messages may switch capabilities on automatically."""
        return await self._ask(
            messages.SwitchRouting(session, is_on), _CAPABILITY_ANSWERED, timeout
        )

    async def call_tool(
        self, request: messages.CallTool, *, timeout: float
    ) -> messages.ToolCalled | messages.CuratorRefused:
        """Call a tool for a session, as its client would; return how the call ended."""
        return await self._ask(request, _TOOL_CALLED, timeout)

    async def tools(
        self, session: SessionKey, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ToolsListed | messages.CuratorRefused:
        """Return the tools on a session's surface, which is the list that its client is shown."""
        return await self._ask(messages.ListTools(session), _TOOLS_LISTED, timeout)

    async def sessions(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.SessionsListed:
        """List every session."""
        return await self._ask(messages.ListSessions(), _SESSIONS_LISTED, timeout)

    async def reach(
        self, session: SessionKey, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ReachDescribed | messages.CuratorRefused:
        """Return a session's policy, the names of the secrets that it has, and its domain.

        A domain, such as `work`, limits which capabilities a session may use.
        """
        return await self._ask(messages.DescribeReach(session), _REACH_DESCRIBED, timeout)

    async def drain(self, within: float, *, is_for_good: bool, timeout: float) -> int:
        """Wait up to `within` seconds for calls to end, then close every connection.

        Return how many connections had unfinished calls. With `is_for_good`, clients are told not
        to reconnect.
        """
        reply = await self._ask(
            messages.DrainSessions(within, is_for_good), _SESSIONS_DRAINED, timeout
        )
        return reply.cut

    async def tokens(self, within: float, *, timeout: float) -> messages.TokensDescribed:
        """Return each session's token counts; wait up to `within` seconds for missing counts."""
        return await self._ask(messages.DescribeTokens(within), _TOKENS_DESCRIBED, timeout)

    async def memories(
        self, project: str = "", *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.MemoriesDescribed:
        """Return the memories of a project, with how often each was delivered and helped."""
        return await self._ask(messages.DescribeMemories(project), _MEMORIES_DESCRIBED, timeout)

    async def leave_project(self, project: str, *, timeout: float = ANSWER_TIMEOUT) -> None:
        """Make every session drop the capabilities that a project's files define."""
        await self._ask(messages.LeaveProject(project), _PROJECT_LEFT, timeout)

    async def profiles(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.ProfilesListed:
        """List the profiles, and the profile of each session."""
        return await self._ask(messages.ListProfiles(), _PROFILES_LISTED, timeout)

    async def use_profile(
        self, session: SessionKey, name: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.CapabilityAnswered | messages.CuratorRefused:
        """Give a session the profile called `name`; return the outcome."""
        return await self._ask(messages.UseProfile(session, name), _CAPABILITY_ANSWERED, timeout)

    async def approvals(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.ApprovalsListed:
        """List the calls that wait for a person's approval."""
        return await self._ask(messages.ListApprovals(), _APPROVALS_LISTED, timeout)

    async def approve(
        self, request: messages.AnswerApproval, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ApprovalAnswered | messages.CuratorRefused:
        """Send a person's answer to a call that waits for approval."""
        return await self._ask(request, _APPROVAL_ANSWERED, timeout)

    async def forget_approvals(
        self, name: str, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ApprovalsForgotten:
        """Withdraw the permanent approval of a tool (`server:tool`), or of all tools of a server.

        A person is asked again before these tools are called.
        """
        return await self._ask(messages.ForgetApprovals(name), _APPROVALS_FORGOTTEN, timeout)

    async def sample(
        self, request: messages.SampleText, *, timeout: float
    ) -> messages.TextSampled | messages.CuratorRefused:
        """Ask the model of a session's client a question; return its answer or a refusal."""
        return await self._ask(request, _TEXT_SAMPLED, timeout)
