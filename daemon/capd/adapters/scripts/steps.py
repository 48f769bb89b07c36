"""What the daemon asks of a script process, and what that answers.

A step runs the interpreter until it waits for calls, or ends. It is a function of what is sent:
the code, or a snapshot with answers. So a step whose process has died is done again by another one.

    Start or Resume ──> [Called] ──> Waiting, Ended or Damaged

`Called` is there first, so that the daemon checks the calls while their snapshot is made.
"""

from collections.abc import Callable

import msgspec

from capd.core.scripts.run import Answer, IssuedCall


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Begin a script."""

    script: str
    code: str
    inputs: bytes
    """A JSON object."""
    prelude: str
    stubs: str
    checks_types: bool = True


class Resume(msgspec.Struct, frozen=True, tag="resume"):
    """Go on with a script; `snapshot` counts where this process does not have it any more."""

    script: str
    snapshot: bytes
    answers: dict[int, Answer]


class Called(msgspec.Struct, frozen=True, tag="called"):
    """The script wants these calls made; they may be sent once its snapshot is kept."""

    calls: list[IssuedCall]


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """The script waits; `calls` are new ones, as `Called` has said."""

    snapshot: bytes
    calls: list[IssuedCall]
    printed: str = ""
    seconds: float = 0.0


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The script is over: with a value as JSON, or an error."""

    value: bytes = b""
    error: str = ""
    printed: str = ""
    seconds: float = 0.0
    is_refused: bool = False
    """Whether nothing of it has run: its types or its syntax are wrong."""


class Damaged(msgspec.Struct, frozen=True, tag="damaged"):
    """The snapshot cannot be used, and why."""

    reason: str


Step = Start | Resume
Stepped = Waiting | Ended | Damaged
OnCalls = Callable[[list[IssuedCall]], None]
