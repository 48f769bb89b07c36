"""The requests to a script process, and its answers.

A step runs the interpreter until the script waits for calls, or ends. Its result depends only on
the request: the code, or a snapshot with answers. So if the process dies, another one can repeat
the step.

    Start or Resume ──> [Called] ──> Waiting, Ended or Damaged

`Called` is sent first, so that the daemon checks the calls while the snapshot is being made.
"""

from collections.abc import Callable

import msgspec

from capd.core.scripts.run import Answer, IssuedCall

HEAD_BYTES = 4
"""The size of the length that stands before each request and each answer."""
MOST_FRAME_BYTES = 24 << 20


class Start(msgspec.Struct, frozen=True, tag="start"):
    """A request to a script process: begin a script.

    `script` is its id, and `code` its text. `prelude` is run before the code. `stubs` declare the
    script's tools, for the check of types.
    """

    script: str
    code: str
    inputs: bytes
    """A JSON object."""
    prelude: str
    stubs: str
    checks_types: bool = True


class Resume(msgspec.Struct, frozen=True, tag="resume"):
    """A request to a script process: continue a script.

    `snapshot` is used if the process no longer has the script.
    """

    script: str
    snapshot: bytes
    answers: dict[int, Answer]


class Called(msgspec.Struct, frozen=True, tag="called"):
    """The first answer to a step: the script wants to make these calls.

    They may be sent once the snapshot is saved.
    """

    calls: list[IssuedCall]


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """The outcome of a step: the script waits for answers. `calls` are the new calls."""

    snapshot: bytes
    calls: list[IssuedCall]
    printed: str = ""
    seconds: float = 0.0


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The outcome of a step: the script has ended, with a value as JSON or with an error."""

    value: bytes = b""
    error: str = ""
    printed: str = ""
    seconds: float = 0.0


class Damaged(msgspec.Struct, frozen=True, tag="damaged"):
    """The outcome of a step: the snapshot cannot be used; `reason` says why."""

    reason: str


Step = Start | Resume
Stepped = Waiting | Ended | Damaged
OnCalls = Callable[[list[IssuedCall]], None]
