"""Draw docs/pictures from a real daemon: what `status`, `why`, `search` and `top` show.

`make pictures` runs it. A daemon of its own is started in a temporary folder, a few messages are
handed over, and what the commands print on a terminal becomes SVG (rich, textual). The pictures
fetch no font and have no path of this machine in them.
"""

import asyncio
import io
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.text import Text

from capd_client.agent import connect
from capd_client.top.app import TopApp

OUT = pathlib.Path(__file__).parent / "pictures"
COLUMNS = 92
MESSAGES = (
    "what time is it in Tokyo right now?",
    "thanks a lot",
    "show me the git log for this repo",
)
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_AS_LIBRARY = [sys.executable, "-P", "-m", "capd_client.entry"]


def main() -> None:
    """Write every picture anew."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="capd"))
    project = folder / "shop"
    project.mkdir()
    os.environ.update({"CAPD_HOME": str(folder / "home"), "COLUMNS": str(COLUMNS)})
    os.environ.update({"TERM": "xterm-256color"})
    os.environ.pop("NO_COLOR", None)
    os.chdir(project)
    subprocess.run(["git", "init", "-q", "."], check=True)  # noqa: S607 - any git will do
    OUT.mkdir(exist_ok=True)
    try:
        _wait_for_the_model()
        # A session that stays open while the pictures are drawn, as an editor's does.
        opened = connect(
            client="claude-code", version="2", project=str(project), session="claude-1"
        )
        with opened.open():
            for message in MESSAGES:
                _said(["turn", "--session", "claude-1", message])
            hide = {str(project): "/home/ada/shop", str(folder / "home"): "/home/ada/.capd"}
            for name, words in (
                ("status", ["status"]),
                ("why", ["why"]),
                ("search", ["search", "read a pdf"]),
            ):
                _draw(name, words, hide)
            asyncio.run(_draw_top(hide))
    finally:
        subprocess.run([*_AS_LIBRARY, "stop"], check=False, capture_output=True)
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_the_model() -> None:
    """Start the daemon and wait for its model, which embeds some thousand phrases first."""
    subprocess.run([*_AS_LIBRARY, "discover", "read a pdf"], check=True, capture_output=True)
    for _ in range(300):
        if (json.loads(_status()).get("embedder") or {}).get("state") == "ready":
            return
        time.sleep(1)
    raise SystemExit("the model was not ready within five minutes")


def _status() -> bytes:
    command = [*_AS_LIBRARY, "status", "--json"]
    return subprocess.run(command, capture_output=True, check=False).stdout


def _said(words: list[str]) -> str:
    """Return what a command prints on a terminal, with its colours."""
    shown, terminal = pty.openpty()
    process = subprocess.Popen([*_AS_LIBRARY, *words], stdout=terminal, stderr=terminal)
    os.close(terminal)
    read = b""
    try:
        while chunk := os.read(shown, 65536):
            read += chunk
    except OSError:
        # How Linux says that the other side of a terminal is closed.
        pass
    finally:
        os.close(shown)
    process.wait()
    # What a command said while it waited is gone from the screen.
    lines = read.decode().replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\x1b[K")[2] for line in lines)


def _draw(name: str, words: list[str], hide: dict[str, str]) -> None:
    text = f"\x1b[1m$ capd {' '.join(words)}\x1b[0m\n{_said(words)}".rstrip()
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    console.print(Text.from_ansi(_hidden(text, hide)))
    svg = console.export_svg(title=f"capd {words[0]}", unique_id=f"capd-{name}")
    _write(name, svg, hide)


async def _draw_top(hide: dict[str, str]) -> None:
    app = TopApp(os.path.join(os.environ["CAPD_HOME"], "run", "capd.sock"), 0.5)  # noqa: PTH118
    async with app.run_test(size=(COLUMNS + 20, 34)) as pilot:
        for _ in range(40):
            await pilot.pause(0.1)
            if app.query_one("#sessions").row_count:  # type: ignore[attr-defined]
                break
        svg = app.export_screenshot(title="capd top")
    _write("top", svg, hide)


def _hidden(text: str, hide: dict[str, str]) -> str:
    for path, shown in hide.items():
        text = text.replace(path, shown)
    return text


def _write(name: str, svg: str, hide: dict[str, str]) -> None:
    # The fonts are on another host; the reader's own monospace will do.
    svg = _FONTS.sub("", svg).replace("Fira Code", "monospace")
    (OUT / f"{name}.svg").write_text(_hidden(svg, hide) + "\n", encoding="utf-8")
    print(OUT / f"{name}.svg")  # noqa: T201 - what a person wants to know


if __name__ == "__main__":
    main()
