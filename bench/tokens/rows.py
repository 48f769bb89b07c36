"""The rows of the table (a client, and how it reaches the servers), and the day, played by each."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.tokens.capd_day import CapdDay
from bench.tokens.catalog import Server
from bench.tokens.day import Day, filled
from bench.tokens.mcp_client import Follows, McpClient
from bench.tokens.project_folder import FOLDER, PROJECT, made_project
from bench.tokens.prompts import Kind
from bench.tokens.scripted_model import Played, ScriptedModel
from bench.tokens.search_proxy import SearchProxy
from bench.tokens.toolboxes import Aggregator, CapdSession, Toolbox
from uv import find_uv_bin

from capd.actors.session import recent_uses
from capd_client.mcp_host import without_capd


@dataclass(frozen=True, slots=True)
class Row:
    """A client and how it reaches the servers; `mode` is capd's mode, empty without capd."""

    name: str
    mode: str = ""
    client: str = ""
    follows: Follows = "never"
    kinds: tuple[Kind, ...] = ("tools first",)
    """How its client puts tools into a prompt; two where clients of both kinds exist."""
    hands_over_turns: bool = True
    is_stateless: bool = False
    writes_scripts: bool = False


@dataclass(slots=True)
class Day50:
    """A row's day, conversation by conversation."""

    row: Row
    played: list[Played] = field(default_factory=list)
    mode: str = ""
    """The mode that capd chose."""


AGGREGATOR = Row("all tools")
PROXY = Row("search-and-call proxy")
MODES = (
    Row("capd dynamic, tools first", "dynamic", "opencode", "at once"),
    Row("capd dynamic, appends", "dynamic", "claude-code", "after results", ("appends",)),
    Row("capd stable", "stable", "opencode", "at once"),
    Row("capd stable + scripts", "stable", "opencode", "at once", writes_scripts=True),
    Row("capd stable, no prompt hook", "stable", "opencode", "at once", hands_over_turns=False),
    # A client that takes a million tokens: everything fits.
    Row("capd pass-through", "pass-through", "gemini", "each turn"),
)
AUTO = (
    Row("auto: lists again, tools first", "auto", "opencode", "at once"),
    Row("auto: lists again, appends", "auto", "claude-code", "after results", ("appends",)),
    Row("auto: ignores list_changed", "auto", "codex"),
    Row("auto: stateless", "auto", "some-client", is_stateless=True, hands_over_turns=False),
)
ROWS = (AGGREGATOR, PROXY, *MODES, *AUTO)


@contextmanager
def direct(servers: Sequence[Server], places: dict[str, str]) -> Iterator[dict[str, McpClient]]:
    """Start every server, connected and listed, for a whole day."""
    uv = str(Path(find_uv_bin()).parent)
    base = {**without_capd(), "PATH": os.pathsep.join((os.environ["PATH"], uv))}
    clients: dict[str, McpClient] = {}
    try:
        for server in servers:
            clients[server.name] = McpClient(
                filled(list(server.argv), places),
                env={**base, **filled(server.env, places)},
                folder=PROJECT,
                name="capd-bench",
            )
        for client in clients.values():
            client.open()
        yield clients
    finally:
        for client in clients.values():
            client.close()


def played(
    row: Row, day: Day, servers: Sequence[Server], places: dict[str, str], tools: int
) -> Day50:
    """Play the day for one row, on a fresh project."""
    made_project()
    if not row.mode:
        with direct(servers, places) as clients:
            return _played(row, day, lambda: _plain(row, clients))
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    capd = CapdDay(folder, servers, places, mode=row.mode, kept=FOLDER / "cache")
    try:
        capd.prepare(tools)

        def opened() -> Toolbox:
            client = capd.client(row.client, row.follows, is_stateless=row.is_stateless)
            return CapdSession(client, hands_over_turns=row.hands_over_turns)

        return _played(row, day, opened, capd)
    finally:
        capd.close()
        shutil.rmtree(folder, ignore_errors=True)


def _played(
    row: Row, day: Day, opened: Callable[[], Toolbox], capd: CapdDay | None = None
) -> Day50:
    whole = Day50(row)
    for conversation in day.conversations:
        if capd is not None and whole.played:
            # A person's conversations are minutes apart, so capd knows what the last one used.
            time.sleep(recent_uses.REFRESH)
        toolbox = opened()
        try:
            model = ScriptedModel(toolbox, day.wants, writes_scripts=row.writes_scripts)
            whole.played.append(model.play(conversation))
            if capd is not None:
                whole.mode = "+".join(sorted(capd.modes()))
        finally:
            toolbox.close()
    return whole


def _plain(row: Row, clients: Mapping[str, McpClient]) -> Toolbox:
    return Aggregator(clients) if row is AGGREGATOR else SearchProxy(clients)
