"""The project that every server finds in its working directory, made anew for each run."""

import base64
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

COMMITTED_AT = "2026-01-02T03:04:05+00:00"
_TOUCHED_AT = 1_767_323_045
_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADU"
    "lEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# A server on fastmcp whose list of tools changes: a berth that is opened is a tool.
_HARBOUR_SERVER = """import mcp_types
from fastmcp import Context, FastMCP

mcp = FastMCP("harbour")


@mcp.tool
async def open_berth(number: int, context: Context) -> str:
    def berth(boat: str) -> str:
        return f"{boat} lies at berth {number}"

    mcp.tool(berth, name=f"berth_{number}", description=f"Moor a boat at berth {number}.")
    await context.send_notification(mcp_types.ToolListChangedNotification())
    return f"berth {number} is open"


@mcp.tool
async def close_berth(number: int, context: Context) -> str:
    mcp.local_provider.remove_tool(f"berth_{number}")
    await context.send_notification(mcp_types.ToolListChangedNotification())
    return f"berth {number} is closed"
"""
_FILES = {
    "notes.txt": "keep the count of boats\nžluťoučký kůň 🛶\u2028and a line separator\n",
    "sub/todo.md": "# To do\n\n- paint the harbour wall\n- light the lamp at dusk\n",
    "page.html": "<html><body><h1>Harbour</h1><p>Three <b>boats</b> today.</p></body></html>\n",
    "boats.csv": "name,berth\nHeron,1\nTern,2\n",
    "boats.py": "def count(boats: list[str]) -> int:\n    return len(boats)\n",
    "boats.js": "const unused = 1;\nlet count = 3;\nconsole.log(count)\n",
    "eslint.config.js": "export default [{rules: {'no-unused-vars': 'error'}}];\n",
    "harbour_server.py": _HARBOUR_SERVER,
    # A megabyte, so that an answer is longer than one read of a pipe.
    "long.txt": "".join(f"line {number} of many\n" for number in range(50_000)),
}


def made_project(folder: Path) -> None:
    """Empty `folder` and put the project there: files, a database, a picture, a git history."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (folder / "pixel.png").write_bytes(base64.b64decode(_PIXEL))
    (folder / "one.pdf").write_bytes(_pdf("Three boats today."))
    _database(folder / "boats.db")
    for path in folder.rglob("*"):
        os.utime(path, (_TOUCHED_AT, _TOUCHED_AT))
    repository = folder / "repository"
    repository.mkdir()
    _git(repository, "init", "--quiet", "--initial-branch", "main")
    for name, value in {"name": "Ada", "email": "ada@example.org"}.items():
        _git(repository, "config", f"user.{name}", value)
    for number, subject in enumerate(("keep the count of boats", "paint the harbour wall")):
        (repository / "boats.txt").write_text(f"{number} boats\n")
        _git(repository, "add", "boats.txt")
        _git(repository, "commit", "--quiet", "--message", subject)
    (repository / "boats.txt").write_text("many boats\n")


def _git(folder: Path, *arguments: str) -> None:
    env = {"GIT_AUTHOR_DATE": COMMITTED_AT, "GIT_COMMITTER_DATE": COMMITTED_AT}
    subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **env}, check=True, timeout=60
    )


def _database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table boats (name text primary key, berth integer not null)")
    connection.executemany("insert into boats values (?, ?)", [("Heron", 1), ("Tern", 2)])
    connection.commit()
    connection.close()


def _pdf(text: str) -> bytes:
    """Return a document of one page with one line on it."""
    drawn = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode()
    fonts = b"/Resources << /Font << /F1 5 0 R >> >>"
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R %s >>" % fonts,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    document = b"%PDF-1.4\n"
    places = []
    for number, body in enumerate(bodies, start=1):
        places.append(len(document))
        document += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(bodies) + 1
    return document + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n"
        b"%%%%EOF\n" % (count, table, count, len(document))
    )
