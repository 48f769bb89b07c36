"""A scripted day of 50 turns on ten real servers, priced: see docs/tokens.md."""

import argparse
import functools
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.relay.running import end_on_signals
from bench.tokens.catalog import SERVERS, Server
from bench.tokens.day import day
from bench.tokens.figures import Line, floor, lines, table, verdicts
from bench.tokens.project_folder import FOLDER, PROJECT, WEB, made_project, served_web
from bench.tokens.rows import AGGREGATOR, ROWS, Day50, Row, direct, played
from bench.tokens.token_price import Rates

from capd.adapters.tokens.token_counts import token_ids

PLACES = {"P": str(PROJECT), "WEB": WEB}


@functools.cache
def tokens(text: str) -> tuple[int, ...]:
    return tuple(token_ids(text))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write_transcripts(folder: Path, day50: Day50) -> None:
    """Write a row's conversations to a file."""
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[str] = []
    for number, conversation in enumerate(day50.played, start=1):
        last = conversation.requests[-1]
        parts.append(f"===== conversation {number}: {len(conversation.requests)} requests")
        parts += [last.system, *last.messages, last.answered]
    name = "".join(sign if sign.isalnum() else "-" for sign in day50.row.name)
    (folder / f"{name}.txt").write_text("\n-----\n".join(parts), encoding="utf-8")


def run(
    servers: Sequence[Server], rows: Sequence[Row], rates: Rates, transcripts: Path | None
) -> list[Line]:
    """Play every row on these servers; return the results."""
    script = day(PLACES)
    names = {server.name for server in servers}
    if len(servers) < len(SERVERS):
        script = script.limited(names)
    made_project()
    with direct(servers, PLACES) as clients:
        counts = {name: len(client.tools) for name, client in clients.items()}
    tools = sum(counts.values())
    print(f"\n{tools} tools of {len(servers)} servers: {counts}\n", flush=True)
    shown: list[Line] = []
    for row in rows:
        began = time.monotonic()
        through = played(row, script, servers, PLACES, tools)
        shown += lines(through, tokens, rates)
        if row is AGGREGATOR:
            shown.append(floor(through, tokens, rates))
        if transcripts is not None:
            write_transcripts(transcripts, through)
        for conversation in through.played:
            for trouble in (*conversation.lost, *conversation.failed):
                say(f"{row.name}: {trouble}")
        line = shown[-1]
        say(f"{row.name}: {line.units(rates):.0f} units, {time.monotonic() - began:.0f} s")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tokens", description=__doc__)
    parser.add_argument("--servers", default="", help="these of the ten alone, by name: git,files")
    parser.add_argument("--rows", default="", help="rows whose name has one of these texts")
    parser.add_argument("--transcripts", type=Path, help="write what was said into this folder")
    for name, value in (("write", 1.25), ("read", 0.1), ("output", 5.0)):
        parser.add_argument(f"--{name}", type=float, default=value, help="price of a token")
    asked = parser.parse_args()
    wanted = [each for each in asked.servers.split(",") if each]
    if unknown := set(wanted) - {server.name for server in SERVERS}:
        parser.error(f"no such server: {', '.join(sorted(unknown))}")
    servers = [server for server in SERVERS if not wanted or server.name in wanted]
    parts = [each for each in asked.rows.split(",") if each]
    # The first row is what all others are compared with.
    rows = [row for row in ROWS if row is ROWS[0] or not parts or any(p in row.name for p in parts)]
    rates = Rates(write=asked.write, read=asked.read, output=asked.output)
    end_on_signals()
    try:
        FOLDER.mkdir(mode=0o700)
    except FileExistsError:
        say(f"{FOLDER} is there: another run has it, or left it. Remove it, and try again.")
        return 1
    try:
        with served_web():
            shown = run(servers, rows, rates, asked.transcripts)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    print(table(shown, rates))
    if len(rows) == len(ROWS):
        is_whole = len(servers) == len(SERVERS)
        print("\n" + "\n".join(verdicts(shown, rates, is_whole=is_whole)))
    return 1 if any(line.lost for line in shown) else 0


if __name__ == "__main__":
    sys.exit(main())
