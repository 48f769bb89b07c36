"""How many moves between files a request takes: calls of a function in another file of the daemon.

Run as: python bench/journeys.py [--moves]. It needs a checkout: the daemon's actors run in this
process, with the fake machine of the tests. A profiler counts each start of a function whose caller
is in another file of the daemon. Resuming a coroutine does not count, nor do calls of other
libraries or of the messages' classes. These journeys are counted, each once it is warm:

    call         a client's `tools/call` of a listed tool whose server runs, until its answer
    queued call  the same, if the server's pipe takes nothing at once, so that a task has to wait
    waking call  the first call after a silence, for which the connection gets a task again
    activation   a prompt hook's message that switches on a capability, whose server has to start

Prints the counts, and with `--moves` each move. The counts are the same in every run of one
checkout, except for a few moves of timers.
"""

import json
import opcode
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import structlog
import trio
import trio.testing

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import capd  # noqa: E402
from actors import fakes  # noqa: E402
from actors.world import World, running_world  # noqa: E402

DAEMON = str(Path(capd.__file__).parent) + "/"
RESUME = opcode.opmap["RESUME"]
STREAMS = "memory_stream_one_way_pair"
"""The name in `fakes` of the function that makes a process's streams. This program replaces it."""
MOST_CALLS, MOST_ACTIVATIONS = 60, 300
"""The most moves that a call and an activation should take."""
QUIET = 3.0
"""Seconds until everything has ended that earlier requests set off, such as a new index."""


def is_start(frame: FrameType) -> bool:
    """Tell whether `frame` starts a function, and does not resume a coroutine or generator."""
    code, at = frame.f_code.co_code, frame.f_lasti
    # The operand of RESUME is 0 at a start (docs.python.org/3/library/dis.html).
    return not (at >= 0 and code[at] == RESUME and code[at + 1] & 3)


@contextmanager
def moves_counted() -> Iterator[Counter[tuple[str, str]]]:
    """Count moves between files of the daemon while the block runs; yield them by their ends."""
    moves: Counter[tuple[str, str]] = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_back is None:
            return
        callee, caller = frame.f_code.co_filename, frame.f_back.f_code.co_filename
        is_move = caller != callee and callee.startswith(DAEMON) and caller.startswith(DAEMON)
        if is_move and is_start(frame):
            back = frame.f_back.f_code.co_qualname
            key = (
                f"{caller.removeprefix(DAEMON)} {back}",
                f"{callee.removeprefix(DAEMON)} {frame.f_code.co_qualname}",
            )
            moves[key] += 1

    sys.setprofile(profile)
    try:
        yield moves
    finally:
        sys.setprofile(None)


def pipe() -> tuple[trio.lowlevel.FdStream, trio.lowlevel.FdStream]:
    """Return both ends of a pipe, as a real server's process has them: to send, to receive."""
    receive, send = os.pipe()
    return trio.lowlevel.FdStream(send), trio.lowlevel.FdStream(receive)


async def call(world: World, *, is_waking: bool = False) -> Counter[tuple[str, str]]:
    """Count the moves of a warm call that comes after another, or after a silence."""
    client = await world.session("call")
    await client.capability("enable", "alpha")
    await client.tools()
    for _ in range(3):
        await client.call("alpha__echo")
    await trio.sleep(QUIET)
    if not is_waking:
        await client.call("alpha__echo")
    with moves_counted() as moves:
        await client.call("alpha__echo")
    return moves


async def activation(world: World) -> Counter[tuple[str, str]]:
    """Count the moves from a hook's message until its answer."""
    client = await world.session("hook", client={"name": "hooked"})
    control = await world.controller()
    await client.tools()
    hook = {"client": "hooked", "session": "hook"}
    await control.result("hook", text="nothing of any kind", **hook)
    await trio.sleep(QUIET)
    with moves_counted() as moves:
        answer = await control.result("hook", text="beta things", **hook)
    assert answer["changed"]["added"] == ["beta__echo", "beta__die"], answer
    return moves


def main() -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    found: dict[str, Counter[tuple[str, str]]] = {}

    async def run() -> None:
        memory = trio.testing.memory_stream_one_way_pair
        for name, streams, journey in (
            ("call", pipe, call),
            ("queued call", memory, call),
            ("waking call", pipe, partial(call, is_waking=True)),
            ("activation", pipe, activation),
        ):
            setattr(fakes, STREAMS, streams)
            with tempfile.TemporaryDirectory(prefix="capd") as folder:
                async with running_world(Path(folder)) as world:
                    found[name] = await journey(world)

    trio.run(run)
    if "--moves" in sys.argv[1:]:
        for name, moves in found.items():
            print(f"== {name}")
            for (caller, callee), count in moves.most_common():
                print(f"{count:4}  {caller}  ->  {callee}")
    most = {"call": MOST_CALLS, "activation": MOST_ACTIVATIONS}
    for name, moves in found.items():
        wanted = f", at most {most[name]} are wanted" if name in most else ""
        print(f"{name:12} {moves.total():4} moves{wanted}")
    print(json.dumps({name: moves.total() for name, moves in found.items()}))


if __name__ == "__main__":
    main()
