"""Results that are too long: stored whole, passed on short, and read by handle.

A handle is the name under which a model reads the rest of a stored result.

    result ── within its limit ──────────────────────────────> passed on, byte for byte
           └─ over it ── stored ── shortened ────────────────> summary, first parts, handle
                          └─ not stored (a full disk) ──────> passed on, with a warning

No error here may lose a result: if shortening fails, the result passes unchanged
(docs/design/outcomes.md).
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import structlog
import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.clients.conversation import UnknownNameError
from capd.adapters.result_store import NotKeptError, ResultStore, StoredResult
from capd.adapters.servers.results_in_memory import FREE_BYTES
from capd.core.protocol.generations import input_required, is_stateless
from capd.core.results import reading
from capd.core.results.any_value import with_object
from capd.core.results.blocks import ResultParts, parts_of
from capd.core.results.handles import Readers, linked
from capd.core.results.json_cut import cut_json
from capd.core.results.large_results import LargeResult, Result
from capd.core.results.limits import SHORTEST, Limits
from capd.core.results.summary import missing_lines
from capd.core.sessions.surface import ShownTool
from capd_protos.codec import MalformedError
from capd_protos.curator import ResultCompacted
from capd_protos.types import ClientFacts, SessionKey, WireName

if TYPE_CHECKING:
    from capd.core.results.compaction import Compacted, CompactionOptions

T = TypeVar("T")

BEGINNING_BYTES = 256 * 1024
"""How many bytes of a result that is too large for memory are examined."""
_LINKS_SINCE = "2025-06-18"
_CONTINUATION = range(0x80, 0xC0)


class NoResultStore:
    """Stands in for the store of long results if results are never shortened."""

    async def sweep(self) -> None:
        """Do nothing."""
        await trio.lowlevel.checkpoint()


NO_STORE = NoResultStore()


@dataclass(slots=True)
class ResultStorage:
    """The store, the limits and the settings that all sessions use for long results."""

    store: ResultStore | NoResultStore
    limits: Limits = field(default_factory=Limits)
    readers: Readers = field(default_factory=Readers)
    threads: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(2))
    """Limits the threads that examine results. A result of 16 MB takes a tenth of a second."""
    large: trio.Lock = field(default_factory=trio.Lock)
    """Held while a large result is shortened, because that takes several times its size in memory.
    Results that wait are counted by their server's connection, so one server cannot queue many."""

    @property
    def is_on(self) -> bool:
        """Whether long results are stored."""
        return not isinstance(self.store, NoResultStore)


@dataclass(slots=True)
class ResultCounts:
    """How many of one session's results were shortened, and by how much."""

    compacted: int = 0
    characters_in: int = 0
    characters_out: int = 0
    not_kept: int = 0
    """How many results over the limit were passed on whole, because they could not be stored."""


class SessionResults:
    """Stores and shortens the long results of one session, and reads them by handle."""

    def __init__(
        self,
        storage: ResultStorage,
        store: ResultStore,
        session: SessionKey,
        publish: Callable[[msgspec.Struct], None],
        reader: Callable[[], WireName | None] = lambda: reading.RESULT_READ,
    ) -> None:
        """Create it. `reader` returns the name by which the client calls `result_read`.

        If it returns None, nothing is shortened, because the model could not read the rest.
        """
        self._reader = reader
        self.counts = ResultCounts()
        self._storage = storage
        self._store = store
        self._session = session
        self._publish = publish

    @property
    def _log(self) -> FilteringBoundLogger:
        # Most sessions log nothing here, and a kept logger is 200 bytes.
        log: FilteringBoundLogger = structlog.get_logger(actor="curator", session=self._session)
        return log

    # Results of servers

    async def passed(
        self, result: Result, shown: ShownTool, server: str, client: ClientFacts
    ) -> Result:
        """Return a server's result as the client gets it: shortened if it is too long.

        For a client of the handshake generation, structured content that is not an object is put
        into one.
        """
        passed = await self._shortened(result, shown, server, client)
        if shown.may_give_any_value and isinstance(passed, bytes) and not is_stateless(client):
            return with_object(passed)
        return passed

    async def _shortened(
        self, result: Result, shown: ShownTool, server: str, client: ClientFacts
    ) -> Result:
        # `_reader` may add `result_read` to the list of tools, so it is called only when needed.
        reader = None if self._is_short(result, shown, server) else self._reader()
        if reader is None:
            return result
        # Imported with the first long result, because shortening takes 12 modules.
        from capd.core.results.compaction import CompactionOptions  # noqa: PLC0415

        limits = self._storage.limits
        limit = limits.of(server, shown.grant.tool, shown.definition)
        wanted = CompactionOptions(
            tool=shown.name,
            limit=limit,
            handle="",
            reader=reader,
            media_limit=limits.media,
            is_promised=not shown.whole,
            knows_links=not client.version or client.version >= _LINKS_SINCE,
        )
        is_large = isinstance(result, bytes) and len(result) > FREE_BYTES
        try:
            async with self._storage.large if is_large else contextlib.nullcontext():
                short = await self._short(result, wanted, shown.definition)
        except (OSError, NotKeptError) as error:
            self.counts.not_kept += 1
            self._log.warning("result_not_kept", tool=shown.name, reason=str(error))
            return result
        except Exception as error:  # noqa: BLE001 - the call has run, its result is at hand
            self._log.error("result_not_compacted", tool=shown.name, reason=type(error).__name__)
            return result
        if short is None:
            return result
        self._note(shown.name, short)
        return short.result

    def is_unchanged(self, result: Result, shown: ShownTool, server: str) -> bool:
        """Tell, without reading it, whether a result will certainly be passed on unchanged."""
        return not shown.may_give_any_value and self._is_short(result, shown, server)

    def _is_short(self, result: Result, shown: ShownTool, server: str) -> bool:
        if isinstance(result, bytes) and len(result) <= SHORTEST:
            return True
        limits = self._storage.limits
        limit = limits.of(server, shown.grant.tool, shown.definition)
        return not limit or (isinstance(result, bytes) and len(result) <= min(limit, limits.media))

    async def _short(
        self, result: Result, wanted: "CompactionOptions", definition: bytes
    ) -> "Compacted | None":
        """Return a shortened result; None if it is short enough or cannot be shortened.

        `wanted` has the limits, and `definition` is the tool's definition as JSON.

        Raises:
            OSError, NotKeptError: the result cannot be stored.
        """
        from capd.core.results.compaction import (  # noqa: PLC0415 - as above
            compacted,
            compacted_beginning,
        )

        if isinstance(result, LargeResult):
            size_bytes = min(BEGINNING_BYTES, result.size_bytes)
            beginning = await result.spooled.read(result.start, size_bytes)
            handle = await self._store.keep(result, self._session, wanted.tool)
            wanted = replace(wanted, handle=handle, beyond_bytes=result.size_bytes - size_bytes)
            is_error = not result.is_success
            return await self._in_thread(
                lambda: compacted_beginning(
                    beginning, _checking(wanted, definition), is_error=is_error
                )
            )
        parts = await self._in_thread(partial(_parts_over, result, wanted))
        if parts is None:
            return None
        wanted = replace(wanted, handle=await self._store.keep(result, self._session, wanted.tool))
        return await self._in_thread(lambda: compacted(parts, _checking(wanted, definition)))

    def _note(self, tool: str, short: "Compacted") -> None:
        self.counts.compacted += 1
        self.counts.characters_in += short.characters_in
        self.counts.characters_out += short.characters_out
        self._log.info(
            "result_compacted",
            tool=tool,
            characters_in=short.characters_in,
            characters_out=short.characters_out,
        )
        self._publish(
            ResultCompacted(self._session, tool, short.characters_in, short.characters_out)
        )

    # Reading by handle

    async def read(self, arguments: msgspec.Raw) -> bytes:
        """Return the result of the tool `result_read`; a failure is an error result."""
        from capd.adapters import json_paths  # noqa: PLC0415 - as above

        try:
            wanted = reading.arguments_of(arguments)
            record = await self._record(wanted.handle)
            if record.size_bytes > reading.PARSED_BYTES:
                return await self._page_of_bytes(record, wanted)
            data = await self._whole(record)
            if wanted.json_path:
                return await self._path(data, wanted)
            return await self._in_thread(partial(_read, data, wanted))
        except (reading.BadReadError, NotKeptError, json_paths.BadPathError) as error:
            return reading.answer(str(error), is_error=True)
        except OSError as error:
            text = f"The stored result cannot be read: {error.strerror or error}. Try again."
            return reading.answer(text, is_error=True)

    async def media(self, uri: str) -> bytes | None:
        """Return the result of `resources/read` for a link made by capd; None for any other link.

        Raises:
            UnknownNameError: the link leads to nothing, or to another session's result.
        """
        link = linked(uri)
        if link is None:
            return None
        handle, index = link
        try:
            record = await self._record(handle)
            data = await self._whole(record)
        except (reading.BadReadError, NotKeptError, OSError) as error:
            raise UnknownNameError(str(error)) from None
        blocks = (await self._in_thread(partial(parts_of, data))).blocks
        if not 0 <= index < len(blocks) or not blocks[index].media:
            raise UnknownNameError(f"{uri[:200]} is not an image or audio of that result")
        return reading.contents(uri, blocks[index].mime, blocks[index].base64())

    async def _record(self, handle: str) -> StoredResult:
        record = await self._store.record(handle)
        if not self._storage.readers.may_read(self._session, record.session):
            raise reading.BadReadError(reading.foreign())
        return record

    async def _whole(self, record: StoredResult) -> bytes:
        if record.size_bytes > reading.PARSED_BYTES:
            raise reading.BadReadError(reading.too_large(record.size_bytes))
        return await self._store.read(record, 0, record.size_bytes)

    async def _page_of_bytes(self, record: StoredResult, wanted: reading.Arguments) -> bytes:
        if wanted.query or wanted.json_path or wanted.part not in {"", reading.RAW}:
            raise reading.BadReadError(reading.too_large(record.size_bytes))
        page = reading.page(wanted, record.size_bytes, "bytes")
        data = await self._store.read(record, page.start, page.end - page.start + 3)
        # A page begins and ends with a whole character.
        start = 0
        while start < len(data) and data[start] in _CONTINUATION:
            start += 1
        end = page.end - page.start
        while end < len(data) and data[end] in _CONTINUATION:
            end += 1
        end = max(start, min(end, len(data)))
        said = reading.ResultPage(page.start + start, page.start + end, page.whole, "bytes")
        return reading.answer(said.head(), data[start:end].decode(errors="replace"))

    async def _path(self, data: bytes, wanted: reading.Arguments) -> bytes:
        text = await self._in_thread(partial(_part, data, wanted.part))
        room = wanted.length or reading.LENGTH
        from capd.adapters import json_paths  # noqa: PLC0415 - as above

        found = await json_paths.find(text.encode(), wanted.json_path, room)
        if not found.count:
            head = f"[capd] Nothing is at {wanted.json_path[:200]!r}."
            return reading.answer(head)
        is_one = found.count == 1
        body = bytes(found.values[0]) if is_one else reading.values(found.values)
        cut = cut_json(body, room)
        shown, lines = (cut.data, missing_lines(cut.omissions)) if cut is not None else (b"", [])
        more = found.count - len(found.values)
        head = "[capd] 1 value." if is_one else f"[capd] {found.count:,} values, as a list."
        head += f" The last {more:,} are left out." if more else ""
        head += "".join(f"\nLeft out ($ is what is shown): {line}" for line in lines)
        return reading.answer(head, shown.decode())

    async def _in_thread(self, what: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(what, limiter=self._storage.threads)


class NoResults:
    """Passes every result on unchanged, for a session whose results are not stored."""

    def __init__(self) -> None:
        self.counts = ResultCounts()

    async def passed(
        self, result: Result, shown: ShownTool, server: str, client: ClientFacts
    ) -> Result:
        """Return the result unchanged."""
        del shown, server, client
        await trio.lowlevel.checkpoint()
        return result

    def is_unchanged(self, result: Result, shown: ShownTool, server: str) -> bool:
        """Return True."""
        del result, shown, server
        return True

    async def read(self, arguments: msgspec.Raw) -> bytes:
        """Return an error result: nothing is stored."""
        del arguments
        await trio.lowlevel.checkpoint()
        return reading.answer("No results are stored in this session.", is_error=True)

    async def media(self, uri: str) -> None:
        """Return None: no media are stored."""
        del uri


def _checking(wanted: "CompactionOptions", definition: bytes) -> "CompactionOptions":
    """Return `wanted` with a check that the short result fits the tool's output schema."""
    from capd.adapters.output_schemas import objections_of  # noqa: PLC0415 - as above

    return replace(wanted, objections=objections_of(definition))


def _parts_over(result: bytes, wanted: "CompactionOptions") -> ResultParts | None:
    """Return the parts of a result that is too long; None if it has to pass unchanged."""
    from capd.core.results.compaction import is_over  # noqa: PLC0415 - as above

    if input_required(result) is not None:
        return None
    try:
        parts = parts_of(result)
    except MalformedError:
        return None
    return parts if is_over(parts, wanted.limit, wanted.media_limit) else None


def _part(data: bytes, part: str | int) -> str:
    return reading.part_of(parts_of(data), data, str(part))


def _read(data: bytes, wanted: reading.Arguments) -> bytes:
    text = _part(data, wanted.part)
    if not wanted.query:
        page = reading.page(wanted, len(text))
        return reading.answer(page.head(), text[page.start : page.end])
    from capd.core.results.word_search import search  # noqa: PLC0415 - as above

    found = search(text, wanted.query, wanted.length or reading.LENGTH)
    return reading.answer(*reading.found(wanted.query, found.count, found.shown, found.what))
