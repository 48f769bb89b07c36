"""The project that the day works on, always in the same folder and with the same bytes.

Its path is part of arguments and results, so another path would mean other tokens.
"""

import functools
import http.server
import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path("/tmp/capd-tokens")
"""Fixed, as said above. It is made for a run; a run is refused if it exists already."""
PROJECT = FOLDER / "harbour"
PORT = 18_765
WEB = f"http://127.0.0.1:{PORT}"
_SOURCES = Path(__file__).with_name("project")
_BERTHS = ((1, 8, "A"), (2, 8, "A"), (3, 10, "A"), (4, 10, "A"), (5, 10, "B"), (6, 12, "B"))
_MORE = ((7, 12, "B"), (8, 12, "B"), (9, 15, "C"), (10, 15, "C"), (11, 15, "C"), (12, 15, "C"))
_BOATS = ("Heron", "Tern", "Gull", "Puffin", "Skua", "Fulmar", "Dunlin", "Eider", "Grebe", "Knot")
_PARTS = (
    ("berths and boats over HTTP", ("src/harbour/__init__.py", "src/harbour/api.py", "README.md")),
    ("stays from the database", ("src/harbour/stays.py", "src/harbour/nights.py", "tests")),
    ("prices by length", (".",)),
)


def made_project() -> None:
    """Make the project anew: sources, a database, a history, and one unfinished change."""
    shutil.rmtree(PROJECT, ignore_errors=True)
    shutil.copytree(_SOURCES, PROJECT, ignore=shutil.ignore_patterns("web"))
    for source in PROJECT.rglob("*.py.txt"):
        # They are kept as `.py.txt`, or linters and tests would take them for modules of capd.
        source.rename(source.with_suffix(""))
    (PROJECT / "data").mkdir()
    _database(PROJECT / "data" / "harbour.db")
    (PROJECT / ".gitignore").write_text("data/\n", encoding="utf-8")
    _git("init", "--quiet", "--initial-branch", "main")
    for day, (subject, paths) in enumerate(_PARTS, start=5):
        _git("add", *paths)
        _git("commit", "--quiet", "--message", subject, when=f"2026-10-{day:02}T08:00:00+00:00")
    with (PROJECT / "docs" / "ops.md").open("a", encoding="utf-8") as file:
        file.write("A second copy goes to the office at noon.\n")


@contextmanager
def served_web() -> Iterator[None]:
    """Serve the project's web pages on loopback.

    Raises:
        OSError: the port is taken.
    """
    handler = functools.partial(_Quiet, directory=str(_SOURCES / "web"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass


def _git(*arguments: str, when: str = "2026-10-05T08:00:00+00:00") -> None:
    who = {"NAME": "Ada", "EMAIL": "ada@example.org", "DATE": when}
    env = {
        f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()
    }
    subprocess.run(
        ["git", *arguments],
        cwd=PROJECT,
        # Without the git settings of the person who runs this: they would change the hashes.
        env={**os.environ, **env, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
        check=True,
        timeout=60,
    )


def _database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(
        "create table berths (number integer primary key, length_m real, pontoon text,"
        " closed_from text);"
        "create table boats (name text primary key, length_m real);"
        "create table stays (id integer primary key, boat text references boats,"
        " berth integer references berths, arrived_at text, left_at text);"
    )
    berths = (*_BERTHS, *_MORE)
    connection.executemany("insert into berths values (?, ?, ?, null)", berths)
    connection.executemany(
        "insert into boats values (?, ?)", [(name, 7 + i / 2) for i, name in enumerate(_BOATS)]
    )
    taken = [number for number, _, _ in berths if number not in {7, 11}]
    number = 0
    for month in range(4, 10):
        for at, berth in enumerate(taken):
            number += 1
            first = 1 + (at * month) % 9
            last = first + 4 + (at * 7 + month) % 14
            stay = (
                number,
                _BOATS[(at + month) % len(_BOATS)],
                berth,
                f"2026-{month:02}-{first:02}T17:30:00",
                f"2026-{month:02}-{last:02}T09:15:00",
            )
            connection.execute("insert into stays values (?, ?, ?, ?, ?)", stay)
    connection.commit()
    connection.close()
