"""Fetches the whole lists of a server, within limits: tools, prompts, resources, templates."""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NoReturn, Protocol

import trio

from capd.adapters.fair_share import FairShare
from capd.adapters.servers.negotiation import HandshakeError
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.servers.server_lines import (
    ERROR_CODE,
    MOST_PAGE_BYTES,
    MOST_PAGE_VALUES,
    PAGE,
    ListPage,
)
from capd.core.definitions.entries import EntryIntake
from capd.core.errors import CapdError
from capd.core.protocol.generations import Members, raw
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, ServerError
from capd.core.results.half_pairs import decoded
from capd.core.tools.tool_intake import MOST_PAGES, AcceptedTool, ToolIntake
from capd_protos.codec import MalformedError
from capd_protos.socket import METHOD_NOT_FOUND

LIST_TIMEOUT = 30.0
LONGEST_KEPT = 3600.0
"""Seconds after which a list is requested again, however long a stateless server says it is valid.
"""
_SHORTEST_KEPT = 2.0
"""The least seconds for which a list is cached. A list with a validity of 0 would otherwise be
requested at every use."""
SLOW_PAUSE = 30.0
"""Seconds for which a list that did not come in time counts as empty; then it is requested again.
"""
MOST_PAGE_ENTRIES = 20_000
_LONGEST_CURSOR = 64 * 1024
_MOST_FETCHES = 3
"""How often a list is fetched, at most, if it changes during each fetch."""
_REASONS_LOGGED = 5

_MEMBER = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resources/templates": "resource_templates",
}
KINDS = tuple(_MEMBER)


class ListingError(CapdError):
    """A list could not be fetched; the text says why."""

    def __init__(self, text: str, *, is_slow: bool = False) -> None:
        super().__init__(text)
        self.is_slow = is_slow
        """Whether the server did not answer in time."""


async def list_tools(server_connection: ServerConnection) -> list[AcceptedTool]:
    """Return every tool that the server lists and that can be shown to clients.

    Raises:
        HandshakeError: the list was not complete within 30 s, or a page is an error or unreadable.
    """
    intake = ToolIntake()
    try:
        await _take_list(server_connection, "tools", intake)
    except ServerError as error:
        if "tools" not in server_connection.capabilities:
            return []
        text = error.error[:300].decode(errors="replace")
        raise HandshakeError(
            f"{server_connection.name} answered tools/list with error {text}"
        ) from None
    except ListingError as error:
        raise HandshakeError(str(error)) from None
    server_connection.findings["tools"] = intake.finding
    for reason in intake.left_out[:_REASONS_LOGGED]:
        server_connection.log.warning("tool_left_out", reason=reason)
    for reason in intake.cleaned[:_REASONS_LOGGED]:
        server_connection.log.warning("tool_cleaned", reason=reason)
    return intake.taken


class Listings:
    """The lists of one server besides its tools; `follow` them in a task of its own.

    A list is cached until the server announces a change or, for a stateless server, until its
    validity ends. A task of the server fetches it. So if a session stops waiting, the next session
    may find the list.
    """

    def __init__(
        self, server_connection: ServerConnection, on_late: Callable[[str], None] = lambda _: None
    ) -> None:
        """Create the lists of the server behind `server_connection`; none is fetched yet.

        `on_late` is called with `prompts` or `resources` when a list arrives after a session has
        given up waiting for it.
        """
        self._server_connection = server_connection
        self._on_late = on_late
        self._cached: dict[str, tuple[float, dict[str, bytes]]] = {}
        # Counts the changes that the server announced. If the count changes during a fetch, the
        # fetched list may be outdated.
        self._changes: Counter[str] = Counter()
        self._wanted = {kind: trio.Event() for kind in KINDS}
        self._fetched = {kind: trio.Event() for kind in KINDS}
        self._outdated: dict[str, dict[str, bytes]] = {}
        """By kind: the fetched list, if the server announced a change while it was fetched."""
        self._timed_out: set[str] = set()
        self._is_over = False

    def changed(self, what: str) -> None:
        """Drop the cached list of `prompts`, or of `resources` and their templates."""
        for kind in KINDS:
            if kind.split("/")[0] == what:
                self._changes[kind] += 1
                self._cached.pop(kind, None)

    def cached(self, kind: str) -> dict[str, bytes] | None:
        """Return the cached list `kind`, as `entries` does; None if it has to be fetched first."""
        if kind.split("/", maxsplit=1)[0] not in self._server_connection.capabilities:
            return {}
        good_until, cached = self._cached.get(kind, (0.0, {}))
        return cached if trio.current_time() < good_until else None

    async def entries(self, kind: str, patience: float = LIST_TIMEOUT) -> dict[str, bytes]:
        """Return the entries of the list `kind` as JSON, by name or by URI.

        Prompts have names; resources and templates have URIs. There are no entries if the server
        does not offer the list. If a server fails, its list is empty and is fetched again the next
        time, so that one bad server does not affect the others. If there is no answer within
        `patience` seconds, an empty list is returned for now.
        """
        with trio.move_on_after(patience):
            for _ in range(_MOST_FETCHES):
                cached = self.cached(kind)
                if cached is not None or self._is_over:
                    return cached or {}
                changes = self._changes[kind]
                self._wanted[kind].set()
                await self._fetched[kind].wait()
                outdated = self._outdated.get(kind)
                # Sessions are notified of a change during the fetch, and list again.
                if self.cached(kind) is None and (
                    outdated is None or changes != self._changes[kind]
                ):
                    return outdated or {}
            return self.cached(kind) or {}
        self._timed_out.add(kind)
        return {}

    async def follow(self) -> None:
        """Until cancelled, fetch the lists that sessions request."""
        try:
            async with trio.open_nursery() as nursery:
                for kind in KINDS:
                    if kind != "tools":
                        nursery.start_soon(self._follow, kind)
        finally:
            self._is_over = True
            for fetched in self._fetched.values():
                fetched.set()

    async def _follow(self, kind: str) -> NoReturn:
        while True:
            await self._wanted[kind].wait()
            self._wanted[kind] = trio.Event()
            if self.cached(kind) is None:
                await self._fetch(kind)
            fetched, self._fetched[kind] = self._fetched[kind], trio.Event()
            fetched.set()
            if kind in self._timed_out and self.cached(kind):
                self._on_late(kind.split("/", maxsplit=1)[0])
            self._timed_out.discard(kind)

    async def _fetch(self, kind: str) -> None:
        changes = self._changes[kind]
        found = await self._fetch_list(kind)
        self._cached.pop(kind, None)
        self._outdated.pop(kind, None)
        if found is None:
            return
        intake, good_for = found
        self._server_connection.findings[kind] = intake.finding
        if changes == self._changes[kind]:
            self._cached[kind] = (trio.current_time() + good_for, intake.entries)
        else:
            self._outdated[kind] = intake.entries

    async def _fetch_list(self, kind: str) -> tuple[EntryIntake, float] | None:
        """Fetch the list `kind`; return its entries, and the seconds for which it is valid.

        A list that is too slow, or that the server does not know, counts as empty. Return None if
        the list could not be fetched for another reason.
        """
        intake = EntryIntake(kind)
        try:
            seconds = await _take_list(self._server_connection, kind, intake)
        except ServerError as error:
            reason = error.error[:200].decode(errors="replace")
            self._server_connection.log.info("not_listed", kind=kind, reason=reason)
            # Many servers offer resources and do not know templates; that does not change.
            if _code(error) != METHOD_NOT_FOUND:
                return None
            intake, seconds = EntryIntake(kind), LONGEST_KEPT
        except ListingError as error:
            self._server_connection.log.warning("not_listed", kind=kind, reason=str(error))
            # Cached as empty for a while, or the next session would wait as long.
            return (EntryIntake(kind), SLOW_PAUSE) if error.is_slow else None
        is_timed = self._server_connection.is_stateless
        return intake, max(_SHORTEST_KEPT, seconds) if is_timed else float("inf")


def _code(error: ServerError) -> int:
    try:
        return ERROR_CODE.decode(error.error).code
    except MalformedError:
        return 0


class _TakesEntries(Protocol):
    """Accepts the entries of a list, one by one."""

    @property
    def is_full(self) -> bool:
        """Whether no further entries are accepted."""
        ...

    def take(self, entry: bytes) -> None:
        """Accept or reject the next entry."""
        ...


async def _take_list(
    server_connection: ServerConnection, kind: str, intake: _TakesEntries
) -> float:
    """Fetch all pages of the list `kind`, and give each entry to `intake`.

    Return the seconds for which the list is valid.

    Raises:
        ServerError: the server answered with an error.
        ListingError: the list was not complete within 30 s, or a page is too large or unreadable.
    """
    seconds = LONGEST_KEPT
    cursor: str | None = None
    seen: set[str] = set()
    deadline = trio.current_time() + LIST_TIMEOUT
    share = FairShare()
    for _ in range(MOST_PAGES):
        params: Members = {"cursor": raw(cursor)} if cursor is not None else {}
        timeout = max(0.01, deadline - trio.current_time())
        page = await _page(server_connection, kind, params, timeout, share)
        for entry in islice(getattr(page, _MEMBER[kind]), MOST_PAGE_ENTRIES):
            intake.take(bytes(entry))
            await share.give_way()
        if type(page.ttl_ms) in {int, float}:
            # Compared before it is divided: a number may be too large for a float.
            seconds = max(0.0, min(seconds * 1000, page.ttl_ms)) / 1000
        cursor = page.next_cursor
        # Some servers write an empty cursor after the last page.
        if not cursor or cursor in seen or intake.is_full or len(cursor) > _LONGEST_CURSOR:
            break
        seen.add(cursor)
    return seconds


async def _page(
    server_connection: ServerConnection,
    kind: str,
    params: Members,
    timeout: float,
    share: FairShare,
) -> ListPage:
    try:
        written = await server_connection.ask(f"{kind}/list", params, timeout)
        share.resume()
        # The number of commas bounds the number of values, and so the time to decode them.
        if len(written) > MOST_PAGE_BYTES or written.count(b",") > MOST_PAGE_VALUES:
            raise ListingError(
                f"{server_connection.name} answered {kind}/list with a page of"
                f" {len(written)} bytes, which is too much to be read"
            )
        page = decoded(PAGE, written)
    except MalformedError as error:
        raise ListingError(f"{server_connection.name} answered {kind}/list with {error}") from None
    except NotSentError as error:
        raise ListingError(str(error)) from None
    except OutcomeUnknownError as error:
        raise ListingError(str(error), is_slow=True) from None
    await share.give_way()
    return page
