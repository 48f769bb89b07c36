"""The script process: runs one step of a script at a time, without access to the daemon.

    python -E -P -X utf8 -m capd.adapters.scripts.process IDLE      its standard input is a socket

A step runs the script until it waits for calls of tools, or ends (`steps`).

The child of this process is an interpreter of `pydantic-monty`, in which the code runs: without
files, network, environment or imports, and with limits on time, memory, recursion and calls. A
script stays in the interpreter until another one runs here. While a script waits, the daemon has a
snapshot of it, from the answer to its last step. A second interpreter only checks types
(`type_checker`). The process ends when the socket closes, or after `IDLE` seconds without a step;
the interpreters end with it.
"""

import contextlib
import json
import math
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

import msgspec
import pydantic_monty as monty

from capd.adapters.platform.limits import limit_to
from capd.adapters.scripts.steps import (
    HEAD_BYTES,
    MOST_FRAME_BYTES,
    Called,
    Damaged,
    Ended,
    OnCalls,
    Resume,
    Start,
    Step,
    Stepped,
    Waiting,
)
from capd.adapters.scripts.type_checker import SCRIPT_NAME, TypeChecker
from capd.core.scripts.run import LONGEST_SLEEP, MOST_CALLS, SLEEP, Answer, IssuedCall
from capd.core.scripts.stubs import CALL, EXCEPTIONS
from capd_protos.types import WireName

MOST_ARGUMENT_BYTES = 1 << 20
MOST_PRINTED_BYTES = 64 << 10
MOST_VALUE_NODES = 200_000
DEEPEST_VALUE = 60
STEP_SECONDS = 2.0
"""The most seconds of computing between two waits for calls."""
WALL_SECONDS = 10.0
"""Seconds of real time for one step, on a busy machine; then its interpreter is killed."""
MEMORY_BYTES = 48 << 20
MOST_SNAPSHOT_BYTES = 16 << 20
_ADDRESS_BYTES = 4 << 30
_CPU_SECONDS = 300
_STEPS_OF_ONE_PROCESS = 10_000

_LIMITS: monty.ResourceLimits = {
    "max_turn_duration_secs": STEP_SECONDS,
    "max_feed_duration_secs": 20.0,
    "max_memory": MEMORY_BYTES,
    "max_recursion_depth": 400,
    "max_suspensions": 8 * MOST_CALLS,
}
_POLICY: monty.OSPolicy = {"sleep": "call_host"}
_STEPS: msgspec.msgpack.Decoder[Step] = msgspec.msgpack.Decoder(Step)
_NAMES = {inside: name for name, inside in EXCEPTIONS.items()}
_FUTURE: monty.ExternalFuture = {"future": ...}


class _TooMuchError(Exception):
    """The script exceeds a limit; the text says which."""


class Interpreter:
    """Runs the steps of scripts in an interpreter process, which keeps the last script loaded."""

    def __init__(self, on_calls: OnCalls = lambda _: None) -> None:
        """Open the pool of interpreter processes.

        `on_calls` is called with the calls of a step before the snapshot is made.
        """
        self._on_calls = on_calls
        self._pool = monty.Monty(
            min_processes=2, max_processes=2, request_timeout=WALL_SECONDS
        ).__enter__()
        self._checker = TypeChecker(self._pool, _LIMITS)
        self._session: monty.MontySession | None = None
        self._snapshot: monty.FunctionSnapshot | monty.FutureSnapshot | None = None
        self._open: set[int] | None = None
        """The ids of calls without an answer. None after a snapshot was loaded, because then they
        are not known."""
        self._held = ""
        self._dump = b""
        self._printed: list[str] = []
        self._printed_bytes = 0

    def close(self) -> None:
        """End the interpreter processes."""
        self._leave()
        self._checker.close()
        self._pool.__exit__(None, None, None)

    def run(self, step: Step) -> Stepped:
        """Run one step of a script; return how it ended: in calls, in a result or in an error."""
        self._printed, self._printed_bytes = [], 0
        began_at = time.perf_counter()
        try:
            stepped: Stepped
            match step:
                case Start():
                    stepped = self._started(step)
                case Resume():
                    stepped = self._resumed(step)
        except _TooMuchError as error:
            stepped = Ended(error=str(error))
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as error:
            stepped = Ended(error=_error_text(error))
        except monty.MontyCrashedError as error:
            why = "it takes too long" if getattr(error, "timed_out", False) else "it crashes"
            stepped = Ended(error=f"The script was ended: {why} in its interpreter.")
        except monty.MontyError as error:
            stepped = Ended(error=f"The script cannot be run: {str(error)[:500]}")
        if not isinstance(stepped, Waiting):
            self._leave()
        if isinstance(stepped, Damaged):
            return stepped
        seconds = time.perf_counter() - began_at
        return msgspec.structs.replace(stepped, printed="".join(self._printed), seconds=seconds)

    def _started(self, step: Start) -> Stepped:
        wrong = self._checker.errors(step.stubs, step.code) if step.checks_types else []
        if wrong:
            return Ended(error=_type_errors(wrong))
        session = self._enter(step.script)
        self._open = set()
        session.feed_run(step.prelude)
        inputs = {"inputs": json.loads(step.inputs)}
        return self._driven(
            session.feed_start(step.code, inputs=inputs, print_callback=self._print)
        )

    def _resumed(self, step: Resume) -> Stepped:
        if self._held != step.script or self._dump != step.snapshot or self._snapshot is None:
            session = self._enter(step.script)
            try:
                found = session.load_snapshot(step.snapshot, print_callback=self._print)
            except monty.MontyError as error:
                return Damaged(str(error)[:300])
            if isinstance(found, monty.MontyComplete | monty.NameLookupSnapshot):
                return Damaged("it waits for no call")
            self._snapshot = found
        self.prepare()
        snapshot, self._snapshot = self._snapshot, None
        if not isinstance(snapshot, monty.FutureSnapshot):
            return Damaged("it waits for no call")
        if self._open is not None:
            self._open -= step.answers.keys()
        results = {id_: _result(answer) for id_, answer in step.answers.items()}
        return self._driven(snapshot.resume(results))

    def prepare(self) -> None:
        """Run the script up to the point where it awaits its only call, before the answer arrives.

        Do nothing if it awaits its calls already.

        Raises:
            monty.MontyError: the interpreter has died, or the script has taken too long.
        """
        if isinstance(self._snapshot, monty.FunctionSnapshot):
            snapshot, self._snapshot = self._snapshot, None
            found = snapshot.resume(_FUTURE)
            self._snapshot = found if isinstance(found, monty.FutureSnapshot) else None

    def _driven(self, snapshot: monty.SyncSnapshot) -> Stepped:
        """Run the script from `snapshot` until it waits for calls or ends; return the outcome."""
        calls: list[IssuedCall] = []
        while True:
            match snapshot:
                case monty.MontyComplete():
                    return Ended(_json(snapshot.output))
                case monty.NameLookupSnapshot():
                    is_call = snapshot.variable_name == CALL and snapshot.object_id is None
                    snapshot = snapshot.resume(value=_call) if is_call else snapshot.resume()
                case monty.FunctionSnapshot():
                    call = _issued(snapshot)
                    if call is None:
                        snapshot = _not_handled(snapshot)
                        continue
                    calls.append(call)
                    if len(calls) > MOST_CALLS:
                        raise _TooMuchError(f"The script makes more than {MOST_CALLS} calls.")
                    # The script has no other task. So its call is sent at once, and `prepare` lets
                    # the script run on meanwhile.
                    is_alone = snapshot.allow_eager_await and self._open == set()
                    if self._open is not None:
                        self._open.add(call.id)
                    if is_alone:
                        return self._waiting(snapshot, calls)
                    snapshot = snapshot.resume(_FUTURE)
                case monty.FutureSnapshot():
                    return self._waiting(snapshot, calls)

    def _waiting(
        self, snapshot: monty.FunctionSnapshot | monty.FutureSnapshot, calls: list[IssuedCall]
    ) -> Waiting:
        self._on_calls(calls)
        dump = snapshot.dump()
        if len(dump) > MOST_SNAPSHOT_BYTES:
            raise _TooMuchError(
                f"The script holds {len(dump) >> 20} MiB while it waits for a call: "
                f"at most {MOST_SNAPSHOT_BYTES >> 20}. Keep less of each result."
            )
        self._snapshot, self._dump = snapshot, dump
        return Waiting(dump, calls)

    def _enter(self, script: str) -> monty.MontySession:
        self._leave()
        session = self._pool.checkout(
            script_name=SCRIPT_NAME,
            limits=_LIMITS,
            print_flush_interval=0.05,
            os_policy=_POLICY,
        )
        self._session = session.__enter__()
        self._held = script
        return self._session

    def _leave(self) -> None:
        session, self._session, self._snapshot, self._held = self._session, None, None, ""
        self._open = None
        if session is not None:
            with contextlib.suppress(monty.MontyError):
                session.__exit__(None, None, None)

    def _print(self, stream: str, text: str) -> None:
        del stream
        room = MOST_PRINTED_BYTES - self._printed_bytes
        self._printed_bytes += len(text)
        if room > 0:
            self._printed.append(text[:room])
        elif self._printed_bytes > 64 * MOST_PRINTED_BYTES:
            # Raised inside the script; otherwise only its time limit would end it.
            raise MemoryError("more is printed than a script may")


def _call(tool: str, arguments: dict[str, Any]) -> None:
    """Stand in for the tools' functions. It is never called: the interpreter stops at each call."""
    del tool, arguments


def _issued(snapshot: monty.FunctionSnapshot) -> IssuedCall | None:
    """Return the call at which a script has stopped; None if such a call is not allowed.

    Raises:
        _TooMuchError: the arguments are too large, or are not a name and a dict.
    """
    if snapshot.is_os_function:
        if snapshot.function_name != SLEEP:
            return None
        seconds = snapshot.args[0] if snapshot.args else 0
        is_number = isinstance(seconds, int | float) and math.isfinite(seconds)
        wait = min(max(0.0, float(seconds)), LONGEST_SLEEP) if is_number else 0.0
        return IssuedCall(snapshot.call_id, SLEEP, json.dumps(wait).encode())
    if snapshot.function_name != CALL or snapshot.object_id is not None:
        return None
    match snapshot.args:
        case (str() as tool, dict() as arguments) if not snapshot.kwargs:
            written = _json(arguments)
        case _:
            raise _TooMuchError(f"{CALL} takes the name of a tool and its arguments.")
    if len(written) > MOST_ARGUMENT_BYTES:
        raise _TooMuchError(f"The arguments of {tool[:80]} are larger than 1 MiB.")
    return IssuedCall(snapshot.call_id, WireName(tool[:200]), written)


def _not_handled(snapshot: monty.FunctionSnapshot) -> monty.SyncSnapshot:
    if not snapshot.is_os_function:
        text = f"name {str(snapshot.function_name)[:80]!r} is not defined"
        return snapshot.resume({"exc_type": "NameError", "message": text})
    if snapshot.function_name == "time.sleep":
        text = "time.sleep holds everything up: use await asyncio.sleep"
        return snapshot.resume({"exc_type": "RuntimeError", "message": text})
    return snapshot.resume_not_handled()


def _result(answer: Answer) -> monty.ExternalSettledResult:
    if answer.kind == "value":
        return {"return_value": json.loads(answer.value)}
    text = f"{answer.kind}: {answer.value.decode(errors='replace')}"
    inside: Any = EXCEPTIONS[answer.kind]
    return {"exc_type": inside, "message": text}


def _json(value: object) -> bytes:
    nodes = [MOST_VALUE_NODES]
    try:
        written = json.dumps(_plain(value, nodes, 0), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise _TooMuchError(f"The value cannot be written as JSON: {str(error)[:200]}") from None
    return written.encode(errors="replace")


def _plain(value: object, nodes: list[int], depth: int) -> Any:
    """Return a value of the interpreter as plain data that JSON can encode.

    `nodes` counts down how many values are left, to limit the size. `depth` is how deep the value
    is nested.
    """
    nodes[0] -= 1
    if nodes[0] < 0 or depth > DEEPEST_VALUE:
        raise _TooMuchError("The value is too large, or nested too deeply, to be passed on.")
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {_key(key): _plain(each, nodes, depth + 1) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each, nodes, depth + 1) for each in value]
        case bytes():
            return value.decode(errors="replace")
    isoformat = getattr(value, "isoformat", None)
    if callable(isoformat):
        return isoformat()
    attributes = getattr(value, "attributes", None)
    if isinstance(attributes, dict):
        return _plain(attributes, nodes, depth + 1)
    return repr(value)[:200]


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(key)[:200]


def _type_errors(lines: list[str]) -> str:
    shown = "\n".join(lines[:20])
    return f"The script was not run, and no call was made: its types are wrong.\n{shown[:4000]}"


def _error_text(error: monty.MontySyntaxError | monty.MontyRuntimeError) -> str:
    """Return an exception's text, with the number of the script's line that raised it."""
    text = error.display("type-msg")[:3000]
    for inside, name in _NAMES.items():
        if text.startswith(f"{inside}:"):
            # The message of a failed call begins with the exception's name already.
            text = name + text.removeprefix(inside).removeprefix(f": {name}")
    frames = error.traceback()
    # The first feed is the prelude, the second one the script.
    own = [frame for frame in frames if frame.filename.endswith("-1>") or len(frames) == 1]
    if not own:
        return text
    at = own[-1]
    source = (at.source_line or "").strip()[:160]
    return f"Line {at.line}: {text}" + (f"\n    {source}" if source else "")


def main(channel: socket.socket, idle: float) -> None:
    """Run the steps that arrive on the socket `channel`.

    Return when the socket closes, or after `idle` seconds without a step.
    """
    _bound()
    interpreter: Interpreter | None = None
    for _ in range(_STEPS_OF_ONE_PROCESS):
        channel.settimeout(idle)
        data = received(channel)
        if data is None:
            break
        if interpreter is None:
            interpreter = Interpreter(lambda calls: _send(channel, Called(calls)))
        channel.settimeout(None)
        _send(channel, interpreter.run(_STEPS.decode(data)))
        with contextlib.suppress(monty.MontyError):
            # An error here appears again in the next step, which reports it.
            interpreter.prepare()
    if interpreter is not None:
        interpreter.close()


def _send(channel: socket.socket, frame: Called | Stepped) -> None:
    data = msgspec.msgpack.encode(frame)
    channel.sendall(len(data).to_bytes(HEAD_BYTES, "big") + data)


def received(channel: socket.socket) -> bytes | None:
    """Return the next frame that arrives on the socket; None at the end of the stream."""
    head = _exactly(channel, HEAD_BYTES)
    if head is None:
        return None
    size = int.from_bytes(head, "big")
    return _exactly(channel, size) if size <= MOST_FRAME_BYTES else None


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            part = channel.recv(min(size - len(data), 1 << 18))
        except (TimeoutError, ConnectionError):
            return None
        if not part:
            return None
        data += part
    return bytes(data)


def _bound() -> None:
    # The interpreter process inherits these limits.
    limit_to(resource.RLIMIT_AS, _ADDRESS_BYTES)
    limit_to(resource.RLIMIT_CPU, _CPU_SECONDS)
    limit_to(resource.RLIMIT_CORE, 0)
    limit_to(resource.RLIMIT_FSIZE, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def start() -> None:
    """Start the script process, with standard input as its socket."""
    with socket.socket(fileno=os.dup(0)) as channel:
        main(channel, float(sys.argv[1]))
    # Exit at once; there is nothing to clean up.
    os._exit(0)


if __name__ == "__main__":
    start()
