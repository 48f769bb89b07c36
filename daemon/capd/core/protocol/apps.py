"""MCP Apps (`io.modelcontextprotocol/ui`, SEP-1865): finds the app that makes a call.

A tool's definition names the page of its app in `_meta.ui.resourceUri`. The client reads the page
and shows it, and the page calls tools through the client. The page uses the server's own tool
names, not those under which clients know the tools, so capd has to find the server. The
candidates are the servers that have a tool of the called name. If the call names a page in
`_meta.ui.resourceUri`, only servers with this page are candidates. The first line that is true
decides:

    the call names a page, and there is one candidate        ──>  this candidate
    an app's tool was called at one or more candidates       ──>  the one; ambiguous if several
    an app's page was read from one or more candidates       ──>  the one; ambiguous if several
    the call names a page, and there are several candidates  ──>  ambiguous
    anything else                                            ──>  no app makes the call
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from capd_protos.types import ServerIdentity

EXTENSION = "io.modelcontextprotocol/ui"
SCHEME = "ui://"
MOST_PAGES = 1000
_MOST_URI = 2048


class _Ui(msgspec.Struct):
    resourceUri: str = ""  # noqa: N815 - the protocol's names
    visibility: list[str] | None = None


class _Meta(msgspec.Struct):
    ui: _Ui | None = None
    flat: str = msgspec.field(name="ui/resourceUri", default="")
    """The page's URI, where the drafts of the extension had it."""


class _Tool(msgspec.Struct):
    meta: _Meta | None = msgspec.field(name="_meta", default=None)


_TOOL = msgspec.json.Decoder(_Tool)
_META = msgspec.json.Decoder(_Meta)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_MARK = b'"ui'


def page_of(definition: bytes) -> str:
    """Return the URI of the app page that a tool's definition names; empty if it names none."""
    meta = _meta_of(definition)
    return _page(meta) if meta is not None else ""


def is_for_apps_alone(definition: bytes) -> bool:
    """Tell whether `visibility` in a tool's definition leaves out models."""
    meta = _meta_of(definition)
    visibility = meta.ui.visibility if meta is not None and meta.ui is not None else None
    return visibility is not None and "model" not in visibility


def page_named(meta: bytes) -> str:
    """Return the URI of the app page that a call's `_meta` names; empty if it names none."""
    if _MARK not in meta:
        return ""
    try:
        return _page(_META.decode(meta))
    except _UNREADABLE:
        return ""


def _meta_of(definition: bytes) -> _Meta | None:
    if _MARK not in definition:
        return None
    try:
        return _TOOL.decode(definition).meta
    except _UNREADABLE:
        return None


def _page(meta: _Meta) -> str:
    page = (meta.ui.resourceUri if meta.ui is not None else "") or meta.flat
    return page if page.startswith(SCHEME) and len(page) <= _MOST_URI else ""


@dataclass(frozen=True, slots=True)
class AppCaller:
    """The server whose app makes a call, or the servers that could be meant.

    `rivals` are set if several servers could be meant. Both are empty if no app makes the call.
    """

    server: ServerIdentity | None = None
    rivals: tuple[ServerIdentity, ...] = ()


class OpenApps:
    """The apps that the client of one session may be showing to its user."""

    def __init__(self) -> None:
        self._called: dict[str, ServerIdentity] = {}
        """For each page, the server whose tool with this page was called last."""
        self._read: dict[str, ServerIdentity] = {}
        """For each page, the server that it was read from last."""

    def __bool__(self) -> bool:
        """Whether the client may be showing any app."""
        return bool(self._called or self._read)

    def on_called(self, page: str, server: ServerIdentity) -> None:
        """Note that the client called a tool of `server` whose definition names `page`."""
        _put(self._called, page, server)

    def on_read(self, page: str, server: ServerIdentity) -> None:
        """Note that the client has read `page` from `server`."""
        _put(self._read, page, server)

    def caller(
        self, having: Sequence[ServerIdentity], named: Container[ServerIdentity] | None = None
    ) -> AppCaller:
        """Return the server whose app makes a call.

        `having` are the servers that have a tool of the called name. `named` are those with the app
        page that the call names; None if it names none.
        """
        if named is not None:
            having = [each for each in having if each in named]
            if len(having) == 1:
                return AppCaller(having[0])
        for shown in (set(self._called.values()), {*self._called.values(), *self._read.values()}):
            among = tuple(each for each in having if each in shown)
            if among:
                return AppCaller(among[0]) if len(among) == 1 else AppCaller(rivals=among)
        return AppCaller(rivals=tuple(having)) if named is not None and having else AppCaller()

    def server_of(self, page: str) -> ServerIdentity | None:
        """Return the server whose tool with this page was called last; None if none was."""
        return self._called.get(page)

    def saved(self) -> list[dict[str, ServerIdentity]]:
        """Return what is saved of the apps of a session.

        It has two mappings to servers: from the pages of called tools, and from pages that were
        read.
        """
        return [dict(self._called), dict(self._read)] if self else []

    def restore(self, saved: Sequence[Mapping[str, ServerIdentity]]) -> None:
        """Restore the apps of an earlier session with the same key."""
        for known, before in zip((self._called, self._read), saved, strict=False):
            for page, server in before.items():
                _put(known, page, server)


def _put(known: dict[str, ServerIdentity], page: str, server: ServerIdentity) -> None:
    known.pop(page, None)
    known[page] = server
    while len(known) > MOST_PAGES:
        del known[next(iter(known))]
