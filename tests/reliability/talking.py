"""A world with scripted servers, and an honest session beside them."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .world import Session, World, world_of_its_own

TALKING_SERVER = Path(__file__).parent / "talking_server.py"


class TalkingWorld:
    """A daemon, servers that say what they are told, and what they did."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.home = world.home

    def server(self, name: str, **options: Any) -> None:
        """Define a server with the options of `talking_server`."""
        argv = [sys.executable, "-I", "-S", str(TALKING_SERVER), name, str(self._journal(name))]
        self.home.capability(name, [*argv, json.dumps(options), self.home.tag])

    def did(self, name: str) -> list[str]:
        """Return what a server was asked to do, call by call."""
        journal = self._journal(name)
        return journal.read_text().splitlines() if journal.exists() else []

    def _journal(self, name: str) -> Path:
        return self.home.folder / f"{name}.journal"


@contextlib.contextmanager
def talking_world() -> Iterator[TalkingWorld]:
    """Make a world; it is closed, and unharmed, at its end."""
    with world_of_its_own() as world:
        yield TalkingWorld(world)


def reply(session: Session, rest: str, server: str = "evil") -> tuple[dict[str, Any], bytes]:
    """Have a server's tool answer with `rest`; return what the client gets, and its line."""
    asked = session.begin(f"{server}__reply", {"rest": rest})
    answer = session.answer(asked)
    return answer, session.lines[asked]
