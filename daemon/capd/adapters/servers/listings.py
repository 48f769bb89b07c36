"""What a server lists: tools, prompts, resources and resource templates, whole and bounded."""

from collections import Counter

import msgspec
import trio

from capd.adapters.servers.lane import Lane
from capd.adapters.servers.negotiation import HandshakeError
from capd.adapters.servers.server_lines import ERROR_CODE, PAGE
from capd.core.definitions.entries import cleaned_entries
from capd.core.errors import CapdError
from capd.core.protocol.eras import Members, raw
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, ServerError
from capd.core.results.half_pairs import decoded
from capd.core.tools.tool_intake import MOST_PAGES, Intake, Taken
from capd_protos.codec import MalformedError

LIST_TIMEOUT = 30.0
LONGEST_KEPT = 3600.0
"""Seconds after which a server of the stateless era is asked again, whatever it says (80, B10)."""
_SHORTEST_KEPT = 2.0
"""Seconds, so that a list which is good for no time is not asked for at every use."""
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


async def list_tools(lane: Lane) -> list[Taken]:
    """Return every tool that the server lists and clients can be shown.

    Raises:
        HandshakeError: no complete list within 30 s.
    """
    try:
        entries, _ = await _all(lane, "tools")
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
    for reason in intake.cleaned[:_REASONS_LOGGED]:
        lane.log.warning("tool_cleaned", reason=reason)
    return intake.taken


class Listings:
    """The lists of one server beside its tools.

    They are kept until it says that they changed; those of the stateless era, which give their
    time, for this time as well.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._kept: dict[str, tuple[float, list[bytes]]] = {}
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
            good_until, kept = self._kept.get(kind, (0.0, []))
            if trio.current_time() < good_until:
                return kept
            changes = self._changes[kind]
            entries: list[bytes] = []
            seconds = LONGEST_KEPT
            try:
                written, seconds = await _all(self._lane, kind)
                entries = list(cleaned_entries(kind, written))
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
                is_timed = self._lane.is_stateless
                good_for = max(_SHORTEST_KEPT, seconds) if is_timed else float("inf")
                self._kept[kind] = (trio.current_time() + good_for, entries)
            return entries


def _code(error: ServerError) -> int:
    try:
        return ERROR_CODE.decode(error.error).code
    except MalformedError:
        return 0


async def _all(lane: Lane, kind: str) -> tuple[list[bytes], float]:
    """Return every entry of every page, and the seconds for which they are good.

    Raises:
        ServerError: the server answered with an error.
        ListingError: no complete list within 30 s.
    """
    entries: list[bytes] = []
    seconds = LONGEST_KEPT
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
        if type(page.ttl_ms) in {int, float}:
            seconds = min(seconds, page.ttl_ms / 1000)
        cursor = page.next_cursor
        if cursor is None or cursor in seen or len(entries) >= MOST_ENTRIES:
            break
        seen.add(cursor)
    return entries[:MOST_ENTRIES], seconds
