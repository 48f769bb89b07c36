"""Measure the embedder as the daemon runs it: a process of its own, asked over its socket pair.

    python bench/embedder.py [--against CHECKOUT] [--messages 500]

It prints how long a message takes, and the embedder's memory after the model is loaded, after
single messages of mixed lengths, and after full batches. RSS counts shared pages in full, PSS a
share of them. With --against, the embedder of another checkout gets each message just before or
after, and the largest difference between the vectors is printed. MB are 10^6 bytes. The last line
has the same as JSON.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

# This replaces the folder of this file, which would hide a package of the same name.
HERE = Path(__file__).parents[1]
sys.path[0] = str(HERE)

import numpy as np  # noqa: E402 - its path
import numpy.typing as npt  # noqa: E402
import trio  # noqa: E402

from capd.runtime.frame_channel import FrameClient  # noqa: E402
from capd_protos import embedder as messages  # noqa: E402
from capd_protos.codec import MsgpackCodec  # noqa: E402

REPLIES: MsgpackCodec[messages.Reply] = MsgpackCodec(messages.Reply)
PATIENCE = 30.0
BATCH = 64
SENTENCE = (
    "please find the open issues about flaky tests in our repository and tell me which of them"
    " were there before the release of last week because somebody has to write to the customer"
)


@dataclass
class Embedder:
    """One embedder process and its measurements."""

    checkout: Path
    client: FrameClient
    pid: int = 0
    megabytes: dict[str, float] = field(default_factory=dict)
    taken: list[float] = field(default_factory=list)
    vectors: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def weigh(self, moment: str) -> None:
        """Record the embedder's present memory under the name `moment`."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            kind, _, value = line.partition(":")
            if kind in {"Rss", "Pss"}:
                self.megabytes[f"{moment}_{kind.lower()}_mb"] = round(
                    int(value.split()[0]) * 1024 / 1e6, 1
                )

    def figures(self) -> dict[str, float | str]:
        """Return all that was measured."""
        taken = sorted(self.taken)
        return {
            "checkout": str(self.checkout),
            **self.megabytes,
            "p50_ms": round(taken[len(taken) // 2] * 1000, 2),
            "p99_ms": round(taken[len(taken) * 99 // 100] * 1000, 2),
        }


def mixed(count: int) -> list[str]:
    """Return `count` different texts of 4 to 201 words, most of them short."""
    words = SENTENCE.split()
    lengths = [(3, 6, 9, 12, 18, 25, 40, 8, 15, 200)[number % 10] for number in range(count)]
    return [
        " ".join(words[(number + at) % len(words)] for at in range(length)) + f" {number}"
        for number, length in enumerate(lengths)
    ]


@contextmanager
def running(checkout: Path) -> Iterator[Embedder]:
    """Run the embedder of a checkout."""
    ours, theirs = socket.socketpair()
    sources = os.pathsep.join(str(checkout / part) for part in ("daemon", "protos"))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "capd", "embedder", "600"],
        stdin=theirs.fileno(),
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": sources, "ORT_DISABLE_TELEMETRY": "1", "CAPD_DEBUG": "1"},
    )
    theirs.close()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    try:
        yield Embedder(checkout, FrameClient(stream), process.pid)
    finally:
        process.kill()
        process.wait()


async def ask(embedder: Embedder, request: messages.Request) -> messages.Reply:
    """Return the reply to a request."""
    with trio.fail_after(PATIENCE):
        return REPLIES.decode(await embedder.client.ask(request, PATIENCE))


async def embed(embedder: Embedder, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Request the vectors of texts."""
    match await ask(embedder, messages.EmbedTexts(list(texts))):
        case messages.TextsEmbedded(vectors, dimensions):
            return np.frombuffer(vectors, np.float32).reshape(-1, dimensions)
        case reply:
            raise SystemExit(f"{embedder.checkout}: {reply}")


async def measure(embedders: Sequence[Embedder], count: int) -> None:
    """Send the same texts to every embedder, in turns."""
    for embedder in embedders:
        await ask(embedder, messages.WarmUp())
        embedder.weigh("loaded")
    for number, text in enumerate(mixed(count)):
        for embedder in embedders if number % 2 else reversed(embedders):
            started_at = time.perf_counter()
            embedder.vectors.append(await embed(embedder, [text]))
            embedder.taken.append(time.perf_counter() - started_at)
    for embedder in embedders:
        embedder.weigh("messages")
        for first in range(0, 8 * BATCH, BATCH):
            texts = mixed(9 * BATCH)[first : first + BATCH]
            embedder.vectors.append(await embed(embedder, texts))
        embedder.weigh("batches")


async def main(arguments: argparse.Namespace) -> None:
    checkouts = [HERE, *([arguments.against.resolve()] if arguments.against else [])]
    with ExitStack() as processes:
        embedders = [processes.enter_context(running(checkout)) for checkout in checkouts]
        async with trio.open_nursery() as nursery:
            for embedder in embedders:
                nursery.start_soon(embedder.client.run)
            await measure(embedders, arguments.messages)
            nursery.cancel_scope.cancel()
    found = [embedder.figures() for embedder in embedders]
    for name in found[0]:
        print(f"{name:18}", *(f"{figures[name]!s:>20}" for figures in found), file=sys.stderr)
    ours, theirs = (np.concatenate(embedder.vectors) for embedder in (embedders[0], embedders[-1]))
    difference = float(np.abs(ours - theirs).max())
    print(f"largest difference of {len(ours)} vectors: {difference:g}", file=sys.stderr)
    print(json.dumps({"embedders": found, "largest_difference": difference}))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--against", type=Path)
    options.add_argument("--messages", type=int, default=500)
    trio.run(main, options.parse_args())
