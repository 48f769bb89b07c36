"""Counts the tokens of texts for the daemon and exits, which frees the vocabulary's 60 MB.

    python -E -P -m capd.adapters.tokens.counting_process [DAEMON]  <texts  >counts

DAEMON is the pid of the daemon. If that process ends, this one does too, because its counts are
no longer needed, and loading the vocabulary alone may take long on a busy machine.

A text is preceded by its length in bytes, as four bytes; a count is one line.
"""

import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Iterator

from capd.adapters.platform.limits import limit_to
from capd.adapters.tokens.token_counts import VocabularyError, count

FAILED = 1
_LENGTH = struct.Struct(">I")
_NICENESS = 5
"""On a busy machine, the process gets a third of the CPU time of an ordinary one. It gets no less,
because some commands wait for counts, `capd index` for example."""
_CPU_SECONDS = 120
_MEMORY_BYTES = 2 << 30
_LOOK = 1.0
"""Seconds between two checks that the daemon still runs."""


def written(texts: Iterable[bytes]) -> bytes:
    """Return `texts` in the format of the counting process's input."""
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def read(counts: bytes) -> list[int]:
    """Return the numbers in `counts`, the output of the counting process.

    Raises:
        ValueError: the output has anything else.
    """
    return [int(line) for line in counts.split()]


def _texts(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        start = position + _LENGTH.size
        position = start + _LENGTH.unpack_from(data, position)[0]
        yield data[start:position]


def _end_without(daemon: int) -> None:
    def look(*_: object) -> None:
        if os.getppid() != daemon:
            os._exit(FAILED)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)


def main() -> int:
    """Print the number of tokens of each text on standard input; return the exit code."""
    if sys.argv[1:]:
        _end_without(int(sys.argv[1]))
    os.nice(_NICENESS)
    limit_to(resource.RLIMIT_CPU, _CPU_SECONDS)
    limit_to(resource.RLIMIT_AS, _MEMORY_BYTES)
    try:
        for text in _texts(sys.stdin.buffer.read()):
            sys.stdout.write(f"{count(text)}\n")
    except (VocabularyError, ImportError) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    finally:
        # Switched off: at its end, Python restores the default action, which kills the process.
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
