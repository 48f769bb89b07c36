"""docs/servers.md agrees with the table of servers."""

from pathlib import Path

from .conversation import Call, Server
from .table import SERVERS
from .test_everything import EVERYTHING, NOT_COMPARED, OF_THEMSELVES, THAT_ASK_THE_CLIENT

PAGE = Path(__file__).parents[2] / "docs" / "servers.md"


def row(server: Server, calls: int) -> str:
    package, version = server.package.split()
    generations = f"{server.speaks}, 2026-07-28" if server.is_modern else server.speaks
    cells = (
        server.name,
        f"`{package}`",
        version,
        server.registry,
        generations,
        server.tools,
        calls,
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def calls(server: Server) -> int:
    return len([step for step in server.steps if isinstance(step, Call)])


def test_the_page_has_each_server_with_its_version_and_what_is_asked_of_it() -> None:
    everything = row(EVERYTHING, len(OF_THEMSELVES) + len(THAT_ASK_THE_CLIENT))

    rows = [everything, *(row(server, calls(server)) for server in SERVERS)]

    lines = PAGE.read_text().splitlines()
    assert [line for line in lines if " | npm | " in line or " | PyPI | " in line] == rows


def test_the_page_gives_the_reason_of_each_exclusion() -> None:
    masks = [(s.name, mask.reason) for s in (EVERYTHING, *SERVERS) for mask in s.masks]

    left_out = [(f"`{tool}` of everything", reason) for tool, reason in NOT_COMPARED.items()]
    rows = [f"| {name} | {reason} |" for name, reason in [*masks, *left_out]]

    lines = PAGE.read_text().splitlines()
    assert [row for row in rows if row not in lines] == []
