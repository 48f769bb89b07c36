"""Runs a Python program and notes where its main thread is, each time it has used some CPU.

    python sampled.py OUTPUT -m MODULE [ARGUMENT...]
    python sampled.py OUTPUT SCRIPT [ARGUMENT...]

Writes a line for each sample: the monotonic time, then the stack from the outside in. A sample is
taken between two bytecodes, so what C code spends counts for the Python function that called it.
"""

import runpy
import signal
import sys
import time
from types import CodeType, FrameType

_INTERVAL = 0.001

samples: list[tuple[float, tuple[CodeType, ...]]] = []


def note(_: int, frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        stack.append(frame.f_code)
        frame = frame.f_back
    samples.append((time.monotonic(), tuple(reversed(stack))))


def main() -> None:
    output, target, *arguments = sys.argv[1:]
    # Each sample is a signal. It would wake the event loop that is sampled, and end the shim,
    # for which any signal is the end.
    signal.set_wakeup_fd = lambda *_, **__: -1
    vars(sys.modules["_signal"])["set_wakeup_fd"] = signal.set_wakeup_fd
    signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)
    try:
        if target == "-m":
            sys.argv = arguments
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [target, *arguments]
            runpy.run_path(target, run_name="__main__")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        with open(output, "w", encoding="utf-8") as file:  # noqa: PTH123 - a slim start, as the shim's
            for at, stack in samples:
                names = (f"{code.co_filename}:{code.co_qualname}" for code in stack)
                file.write(f"{at:.6f}\t{';'.join(names)}\n")


if __name__ == "__main__":
    main()
