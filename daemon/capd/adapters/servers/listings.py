"""What a server lists: tools, prompts, resources and resource templates, whole and bounded."""

from collections import Counter

import msgspec
import trio

from capd.adapters.servers.lane import Lane
from capd.adapters.servers.negotiation import HandshakeError
from capd.adapters.servers.server_lines import ERROR_CODE, PAGE
from capd.core.errors import CapdError
from capd.core.protocol.eras import Members, raw
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, ServerError
from capd.core.results.half_pairs import decoded
from capd.core.tools.tool_intake import MOST_PAGES, Intake
from capd_protos.codec import MalformedError
from capd_protos.types import ToolDefinition

LIST_TIMEOUT = 30.0
MOST_ENTRIES = 10_000
METHOD_NOT_FOUND = -32601
_REASONS_LOGGED = 5

_MEMBER = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resources/templates": "resource_templates",
}
KINDS = tuple(_MEMBER)


class ListingError(CapdError):
    """A list could not be had; the text says why."""


async def list_tools(lane: Lane) -> list[ToolDefinition]:
    """Return every tool that the server lists and clients can be shown, as it writes it.

    Raises:
        HandshakeError: no complete list within 30 s.
    """
    try:
        entries = await _all(lane, "tools")
    except ServerError as error:
        if "tools" not in lane.capabilities:
            return []
        text = error.error[:300].decode(errors="replace")
        raise HandshakeError(f"{lane.name} answered tools/list with error {text}") from None
    except ListingError as error:
        raise HandshakeError(str(error)) from None
    intake = Intake()
    for entry in entries:
        intake.take(entry)
        # Eight megabytes of definitions at a stretch would hold everybody else up.
        await trio.lowlevel.checkpoint()
    for reason in intake.left_out[:_REASONS_LOGGED]:
        lane.log.warning("tool_left_out", reason=reason)
    return intake.tools


class Listings:
    """The lists of one server beside its tools, kept until it says that they changed."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._kept: dict[str, list[bytes]] = {}
        # Counts what the server said: a list that was under way then may be the old one.
        self._changes: Counter[str] = Counter()
        self._fetching: dict[str, trio.Lock] = {kind: trio.Lock() for kind in KINDS}

    def changed(self, what: str) -> None:
        """Forget `prompts`, or `resources` with their templates."""
        for kind in KINDS:
            if kind.split("/")[0] == what:
                self._changes[kind] += 1
                self._kept.pop(kind, None)

    async def entries(self, kind: str) -> list[bytes]:
        """Return a list's entries as the server writes them; none of what it does not offer.

        A server that fails at it lists nothing, and is asked again the next time: one bad server
        must not cost the others' lists.
        """
        if kind.split("/", maxsplit=1)[0] not in self._lane.capabilities:
            return []
        async with self._fetching[kind]:
            if kind in self._kept:
                return self._kept[kind]
            changes = self._changes[kind]
            entries: list[bytes] = []
            try:
                entries = await _all(self._lane, kind)
            except ServerError as error:
                reason = error.error[:200].decode(errors="replace")
                self._lane.log.info("not_listed", kind=kind, reason=reason)
                # Many offer resources and no templates, and will not change their mind.
                if _code(error) != METHOD_NOT_FOUND:
                    return []
            except ListingError as error:
                self._lane.log.warning("not_listed", kind=kind, reason=str(error))
                return []
            if changes == self._changes[kind]:
                self._kept[kind] = entries
            return entries


def _code(error: ServerError) -> int:
    try:
        return ERROR_CODE.decode(error.error).code
    except MalformedError:
        return 0


async def _all(lane: Lane, kind: str) -> list[bytes]:
    """Return every entry of every page.

    Raises:
        ServerError: the server answered with an error.
        ListingError: no complete list within 30 s.
    """
    entries: list[bytes] = []
    cursor: str | None = None
    seen: set[str] = set()
    deadline = trio.current_time() + LIST_TIMEOUT
    for _ in range(MOST_PAGES):
        params: Members = {"cursor": raw(cursor)} if cursor is not None else {}
        timeout = max(0.01, deadline - trio.current_time())
        try:
            page = decoded(PAGE, await lane.ask(f"{kind}/list", params, timeout))
        except MalformedError as error:
            raise ListingError(f"{lane.name} answered {kind}/list with {error}") from None
        except (NotSentError, OutcomeUnknownError) as error:
            raise ListingError(str(error)) from None
        found: list[msgspec.Raw] = getattr(page, _MEMBER[kind])
        entries.extend(bytes(entry) for entry in found)
        cursor = page.next_cursor
        if cursor is None or cursor in seen or len(entries) >= MOST_ENTRIES:
            break
        seen.add(cursor)
    return entries[:MOST_ENTRIES]
