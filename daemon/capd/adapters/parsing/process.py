"""The parser process: receives a job, runs it within limits, answers, and waits for the next.

    job      length of the job, the job in msgpack
    answer   length of the result, how the job ended, CPU seconds, the result in msgpack

The process starts no other process, opens no file but its own status, and shares only a socket pair
with the daemon. The kernel enforces its limits: a timer on the CPU time of each job, which ends the
process even inside a library call; a limit on its memory; and no permission to write files. The
process ends after a job that made it large, after 30 s of CPU time in all, or if it is idle for
some time; the daemon starts another one.
"""

import contextlib
import os
import resource
import signal
import socket
import struct
import sys
import time

import msgspec

from capd.adapters.parsing.jobs import AnyJob

JOB_HEAD = struct.Struct(">I")
RESULT_HEAD = struct.Struct(">IBd")
DONE, FAILED, TOO_LARGE = range(3)

LARGEST_RESULT_BYTES = 1 << 20
MEMORY_BYTES = 256 << 20
LARGEST_KEPT_KIB = 64 << 10
"""KiB of peak resident memory; a process that used more ends after its answer."""
_LIFE_CPU_SECONDS = 60
_STANDARD_INPUT = 0
_MOST_DESCRIPTORS = 64

_JOBS = msgspec.msgpack.Decoder(AnyJob)


def main(descriptor: int, longest: float, idle: float) -> None:
    """Do jobs that arrive on the socket `descriptor`, until it closes or is idle too long.

    Each job gets `longest` CPU seconds, and the process ends after `idle` seconds without one.
    """
    _bound()
    with socket.socket(fileno=descriptor) as channel:
        while True:
            job = _next(channel, idle)
            if job is None:
                return
            signal.setitimer(signal.ITIMER_PROF, longest)
            before = time.process_time()
            how, result = _done(job)
            signal.setitimer(signal.ITIMER_PROF, 0)
            head = RESULT_HEAD.pack(len(result), how, time.process_time() - before)
            channel.settimeout(None)
            channel.sendall(head + result)
            if how == TOO_LARGE or _has_grown() or time.process_time() > _LIFE_CPU_SECONDS / 2:
                return


def _bound() -> None:
    limits = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_CPU: _LIFE_CPU_SECONDS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: _MOST_DESCRIPTORS,
    }
    for kind, wanted in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # macOS refuses a memory limit below what the shared libraries take.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))
    # The daemon's parent may have ignored or blocked these signals, which is inherited.
    for number in (signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _next(channel: socket.socket, idle: float) -> bytes | None:
    channel.settimeout(idle)
    head = _received(channel, JOB_HEAD.size)
    return None if head is None else _received(channel, JOB_HEAD.unpack(head)[0])


def _received(channel: socket.socket, size: int) -> bytes | None:
    parts = []
    while size:
        try:
            part = channel.recv(min(size, 1 << 16))
        except (TimeoutError, ConnectionError):
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _done(job: bytes) -> tuple[int, bytes]:
    try:
        result = msgspec.msgpack.encode(_JOBS.decode(job).run())
    except MemoryError:
        return TOO_LARGE, b""
    except RecursionError:
        return FAILED, b"it is nested too deeply"
    # Whatever a library raises, the text is at fault.
    except Exception as error:  # noqa: BLE001
        return FAILED, f"it cannot be read: {type(error).__name__}".encode()
    if len(result) > LARGEST_RESULT_BYTES:
        return FAILED, b"it says too much"
    return DONE, result


def _has_grown() -> bool:
    return _peak_kib() > LARGEST_KEPT_KIB


def _peak_kib() -> int:
    """Return the peak of this process's resident memory, in KiB."""
    # Not `ru_maxrss`, which on Linux begins with that of the parent process: if the daemon took
    # 64 MB, every job would end the process, and the next would start another.
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as status:  # noqa: PTH123
        for line in status:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1])
    unit = 1024 if sys.platform == "darwin" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


def start(arguments: list[str]) -> None:
    """Start the parser process; `arguments` are two numbers of seconds, as `main` takes them."""
    longest, idle = arguments
    main(_STANDARD_INPUT, float(longest), float(idle))
    # Exit at once; there is nothing to clean up.
    os._exit(0)
