"""Tool names after each client's own renaming rule are valid and unique."""

import hashlib
import re
from collections.abc import Callable, Iterable
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.adapters.client_table import client_table
from capd.core.sessions.active_set import Grant
from capd.core.sessions.client_traits import ClientTraits
from capd.core.sessions.own_tool_list import definitions, offered
from capd.core.sessions.surface import Surface
from capd_protos.types import (
    ServerIdentity,
    ServerName,
    ToolDefinition,
    ToolName,
)

TABLE = {**client_table()[0], "somebody": ClientTraits()}
PROVIDERS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What OpenAI, Anthropic and Google all take."""


def _gemini(name: str) -> str:
    whole = "mcp_capd_" + re.sub(r"[^A-Za-z0-9_.:-]", "_", name)
    return whole if len(whole) <= 63 else whole[:30] + "..." + whole[-30:]


def _qwen(name: str) -> str:
    whole = re.sub(r"[^A-Za-z0-9_.-]", "_", f"mcp__capd__{name}")
    return whole if len(whole) <= 63 else whole[:28] + "___" + whole[-32:]


def _plain(prefix: str) -> Callable[[str], str]:
    return lambda name: prefix + re.sub(r"[^A-Za-z0-9_-]", "_", name)


CLIENTS: dict[str, Callable[[str], str]] = {
    "claude-code": _plain("mcp__capd__"),
    "codex": lambda name: "mcp__capd__" + re.sub(r"[^A-Za-z0-9_]", "_", name),
    "gemini": _gemini,
    "qwen": _qwen,
    "opencode": _plain("capd_"),
    "kilo": _plain("capd_"),
    "copilot": lambda name: ("capd-" + re.sub(r"[^A-Za-z0-9_-]", "-", name))[:64],
    "vscode": lambda name: f"mcp_capd_{name}".replace(".", "_")[:64],
    "cursor": lambda name: f"capd-{name}"[:60],
    "zed": lambda name: name[:64],
    "goose": _plain("capd__"),
    # Of two dashes: it keeps single ones apart from its own as three underscores.
    "roo": lambda name: "mcp--capd--" + name.replace("-", "___"),
    "cline": lambda name: f"capd__{name}"[:64],
    "continue": lambda name: name,
    "codecompanion": lambda name: f"capd_{name}",
    "mcphub": lambda name: f"capd__{re.sub(r'[^A-Za-z0-9_-]', '_', name)}",
    "gptel": lambda name: name,
}
"""What clients send their models for a tool of the server `capd`, as far as that is known."""


def rewritten(client: str, name: str) -> str:
    """Return the name that a model sees; with the longest prefix if the rule is not known."""
    known = CLIENTS.get(client)
    if known is not None:
        return known(name)
    return ((TABLE[client].prefix or "mcp__capd__") + re.sub(r"[^a-z0-9_]", "_", name.lower()))[:64]


def surface(client: str) -> Surface:
    traits = TABLE[client]
    own = definitions(offered(is_prefixed=traits.prefix == "").items())
    return Surface(own, limit=10_000, name_limit=traits.wire_limit)


def grant(server: str, name: str) -> Grant:
    return Grant(ServerIdentity(hashlib.sha256(server.encode()).hexdigest()[:16]), ToolName(name))


def show(made: Surface, tools: Iterable[tuple[str, str]]) -> list[str]:
    """Add tools as (server, name); return the names that they got."""
    for server, name in tools:
        one = grant(server, name)
        json = msgspec.json.encode({"name": name})
        made.add([one], {one.server: ServerName(server)}, {one: ToolDefinition(one.tool, json)})
    return [shown.name for shown in made.shown]


def check(client: str, made: Surface, tools: list[tuple[str, str]]) -> None:
    """Assert that the model sees each tool by a name of its own, and that it leads back to it."""
    names = [*made.own, *(shown.name for shown in made.shown)]
    seen = {rewritten(client, name): name for name in names}
    assert len(seen) == len(names) == len(tools) + len(made.own)
    assert [name for name in seen if not PROVIDERS.fullmatch(name)] == []
    assert [name for name in names if not re.fullmatch("[a-z0-9_]{1,64}", name)] == []
    found = [made.find(name) for name in names[len(made.own) :]]
    assert [each.grant for each in found if each] == [grant(*each) for each in tools]


def odd_tools() -> list[tuple[str, str]]:
    """Return 500 tools that a rule on names may make one of two of."""
    servers = ("git", "Brave-Search", "brave_search", "1password", "käse.example", "s" * 70, "-")
    stems = ["", "_", "-", "--", "...", "::", "é", "e\u0301", "xn--caf-dma", "日本語", "a" * 200]
    stems += ["getEnv", "getenv", "GETENV", "list-files", "list_files", "list.files", "list:files"]
    stems += [
        "list/files",
        "list files",
        "\u212aelvin",
        "kelvin",
        "\U0001f600",
        "0",
        "00",
        "tool_search",
    ]
    stems += ["b" * length + tail for length in (40, 52, 53, 58, 59, 63) for tail in "xyz"]
    stems += [f"create{'Part' * 14}{end}" for end in ("One", "Two")]
    stems += [f"{start}{'Part' * 14}" for start in ("create", "delete")]
    found = dict.fromkeys((server, stem) for stem in stems for server in servers)
    random = Random(8)
    while len(found) < 500:
        name = "".join(random.choices("aA._-é/ :0", k=random.choice((1, 2, 3, 45, 60, 200))))
        found.setdefault((random.choice(servers), name))
    return list(found)[:500]


@pytest.mark.parametrize("client", TABLE)
def test_a_client_makes_valid_and_unique_names_of_500_odd_tools(client: str) -> None:
    made = surface(client)
    tools = odd_tools()

    show(made, tools)

    assert len(tools) == 500
    check(client, made, tools)


_TEXTS = st.text(st.sampled_from("aAbB01._-:/ é日\u212a"), max_size=70)
_TOOLS = st.lists(st.tuples(_TEXTS, _TEXTS), max_size=40, unique=True)


@given(st.sampled_from(sorted(TABLE)), _TOOLS)
def test_a_client_makes_valid_and_unique_names_of_any_tools(
    client: str, tools: list[tuple[str, str]]
) -> None:
    made = surface(client)

    show(made, tools)

    check(client, made, tools)


@pytest.mark.parametrize("client", TABLE)
def test_names_are_the_same_after_a_restart_in_whatever_order_the_tools_come(client: str) -> None:
    tools = odd_tools()
    before = surface(client)
    show(before, tools)
    after = surface(client)
    after.restore(before.names)

    show(after, reversed(tools))

    assert after.names == before.names


@pytest.mark.parametrize("client", TABLE)
def test_names_are_the_same_when_a_server_comes_back_with_a_tool_more(client: str) -> None:
    tools = odd_tools()
    made = surface(client)
    first = show(made, tools)
    made.remove([grant(*each) for each in tools])

    again = show(made, [("git", "list---files"), *tools])

    assert again[1:] == first
