"""The copies of registries in the cache folder, and how capd refreshes them.

    absent ──all pages of the latest versions──> whole ──`updated_since`, or an ETag──> whole
      │ interrupted                                 │ the registry cannot be reached
      v                                             v
    partial, with the cursor to continue from      unchanged, with its age

If a registry's list is one page, capd requests it with its ETag. From any other registry it
requests what was updated since the last refresh; that includes deleted servers (docs/find.md).
"""

import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlencode

import trio

from capd.adapters.mcp_registry.fetching import Fetcher, FetchError
from capd.adapters.state_file import StateFile, of_version
from capd.core.mcp_registry.server_json import Entry, EntryError, read_entry, read_page
from capd.core.mcp_registry.summaries import MOST_BYTES, VERSION, Copy, updated
from capd_protos.codec import MsgpackCodec

FOLDER = "mcp-registries"
FRESH = 3600.0
"""Seconds for which a copy is not refreshed: the registry's guide asks for once an hour."""
PAGE = 100
MOST_PAGES = 2000
MOST_PAGE_BYTES = 16 << 20
_OVERLAP = 120.0
"""Seconds by which the periods of two refreshes overlap, because clocks differ."""
_COPY: MsgpackCodec[Copy] = MsgpackCodec(Copy)

OnRead = Callable[[int], None]
"""Called with the number of servers read so far."""


class CopyFiles:
    """Reads and writes the local copies of registries. Every method blocks."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / FOLDER

    def read(self, url: str) -> Copy:
        """Return the saved copy of the registry at `url`; an empty copy if there is none."""
        found = self._file(url).read()
        return found if found is not None and found.url == url else Copy(url)

    def write(self, copy: Copy) -> None:
        """Write the copy of a registry to its file.

        Raises:
            OSError: the file cannot be written.
        """
        self._file(copy.url).write(copy)

    def _file(self, url: str) -> StateFile[Copy]:
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return StateFile(
            self._folder / f"{name}.copy",
            _COPY,
            most_bytes=MOST_BYTES,
            refuse=of_version(VERSION),
            is_private=True,
        )


def is_fresh(copy: Copy, now: float) -> bool:
    """Tell whether a copy needs no refresh at the time `now`.

    A clock that was set back makes it stale.
    """
    return 0 <= now - copy.synced_at < FRESH


async def refresh(
    copy: Copy, fetcher: Fetcher, save: Callable[[Copy], None], on_read: OnRead
) -> str:
    """Bring a copy of a registry up to date; return a note for a person, empty if there is none.

    `save` is called at the end. In a first refresh it is also called after every tenth page, so
    that an interruption loses little. `on_read` is called with the number of servers read so far.

    Raises:
        FetchError, EntryError: the registry does not answer, or not as the API specifies. The pages
            of a first refresh that were read stay in `copy`.
    """
    began = time.time()
    since = datetime.fromtimestamp(began - _OVERLAP, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    is_first = copy.synced_at == 0
    query = {"limit": str(PAGE), "version": "latest"}
    headers: dict[str, str] = {}
    if copy.etag and not is_first:
        headers["if-none-match"] = copy.etag
    elif not is_first:
        query["updated_since"] = copy.since
    cursor = copy.cursor if is_first else ""
    left_out = unreadable = read = pages = 0
    fresh: Copy | None = Copy(copy.url) if headers else None
    etag = ""
    while True:
        asked = {**query, "cursor": cursor} if cursor else query
        url = f"{_base(copy.url)}/servers?{urlencode(asked)}"
        asked_headers = headers if pages == 0 else {}
        answer = await fetcher.get(url, MOST_PAGE_BYTES, asked_headers, (200, 304))
        if answer.status == 304:  # noqa: PLR2004
            break
        page = await trio.to_thread.run_sync(read_page, answer.body)
        pages += 1
        left_out += updated(fresh if fresh is not None else copy, page.entries)
        unreadable += page.unreadable
        read += len(page.entries)
        on_read(read)
        if pages == 1 and not page.next_cursor:
            etag = answer.headers.get("etag", "")[:200]
        is_last = not page.next_cursor or page.next_cursor == cursor or pages >= MOST_PAGES
        cursor = "" if is_last else page.next_cursor
        copy.cursor = cursor if is_first else ""
        if is_last:
            if fresh is not None:
                copy.entries = fresh.entries
            copy.etag = etag if "updated_since" not in query else copy.etag
            break
        if is_first and pages % 10 == 0:
            await trio.to_thread.run_sync(save, copy)
    copy.synced_at, copy.since = began, since
    await trio.to_thread.run_sync(save, copy)
    notes = []
    if unreadable:
        notes.append(f"{unreadable} entries are not as the schema has them, and are left out")
    if left_out:
        notes.append(f"the copy is full: {left_out} entries are left out")
    return "; ".join(notes)


async def entry(url: str, name: str, version: str, fetcher: Fetcher) -> tuple[Entry, bytes]:
    """Return the entry of the server `name` in the registry at `url`, and the entry's bytes.

    `version` is an exact version, or `latest`.

    Raises:
        FetchError: the registry cannot be asked, or has no such version.
        EntryError: the answer is not an entry, or is another server's.
    """
    path = f"servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
    address = f"{_base(url)}/{path}?include_deleted=true"
    answer = await fetcher.get(address, MOST_PAGE_BYTES)
    found = await trio.to_thread.run_sync(read_entry, answer.body)
    if found.server.name != name or version not in {"latest", found.server.version}:
        raise EntryError("is answered with another entry")
    return found, answer.body


def is_absent(error: FetchError) -> bool:
    """Tell whether an error means that the registry has no such server."""
    return error.status in {404, 410}


def _base(url: str) -> str:
    return f"{url.rstrip('/')}/v0.1"
