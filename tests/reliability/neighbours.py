"""Two servers that run any Python, side by side at one level of the sandbox."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from .world import Session, World, world_of_its_own

OBEYING_SERVER = Path(__file__).parent / "obeying_server.py"
Level = Literal["guard", "strict", "landlock"]
"""`landlock` is `strict` on a machine without bubblewrap."""


class Neighbours:
    """A thief and its victim, each in the sandbox, and the project that they work in."""

    def __init__(self, world: World, level: Level) -> None:
        self.world = world
        self.level = level
        home = world.home
        self.project = home.folder / "shop"
        self.project.mkdir()
        script = str(shutil.copy(OBEYING_SERVER, self.project))
        config = home.folder / "config"
        config.mkdir(exist_ok=True)
        word = "guard" if level == "guard" else "strict"
        (config / "config.toml").write_text(
            f'[sandbox.servers.thief]\nlevel = "{word}"\n'
            f'[sandbox.servers.victim]\nlevel = "{word}"\n'
        )
        if level == "landlock":
            programs = home.folder / "programs"
            programs.mkdir()
            (programs / "bwrap").write_text("#!/bin/sh\nexit 1\n")
            (programs / "bwrap").chmod(0o755)
            home.env["PATH"] = f"{programs}:{home.env['PATH']}"
        for each in ("thief", "victim"):
            home.capability(each, [sys.executable, "-I", script, home.tag, each])
        world.start()
        self._session: Session = world.session("one", "thief", "victim", folder=self.project)

    def thief(self, source: str) -> str:
        """Return what the thief makes of a piece of Python."""
        return self._session.said("thief__run", source)

    def victim(self, source: str) -> str:
        return self._session.said("victim__run", source)


@contextmanager
def neighbours(level: Level) -> Iterator[Neighbours]:
    with world_of_its_own() as world:
        yield Neighbours(world, level)
