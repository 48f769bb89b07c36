"""Decides which tools a session's client is shown: the mode of its surface.

The surface is the tools that the client may call; the mode says which of them its list has. In mode
`stable` the list never changes, in `dynamic` it follows what is on, and in `pass-through` it has
all tools (docs/surface.md).
"""

from dataclasses import dataclass
from typing import Literal

from capd.core.sessions.client_traits import ClientTraits, ModeSetting

Mode = Literal["dynamic", "stable", "pass-through"]

BYTES_PER_TOKEN = 3.5
"""An estimate for tool definitions in JSON. Only the choice of a mode depends on it."""
CHANGING_TOKENS = 3_000
"""If the known tools have more tokens than this, and not every tool is known, a list that changes
costs more than a stable one (bench/tokens). A tool that is added is part of every later prompt, and
a client that puts tools first in its prompt loses the cached rest of that prompt."""


@dataclass(frozen=True, slots=True)
class SurfacePlan:
    """Which tools a session's client is shown (its mode), and why."""

    mode: Mode
    reason: str
    is_from_table_alone: bool = False
    """Whether the mode follows only from capd's own table of clients, and not from an observation
    or a setting of the user's. A later version of the client may behave differently."""
    is_whole: bool = False
    """For `pass-through`: whether capd chose it because it costs least; False if the user did."""


def set_mode(wanted: ModeSetting, traits: ClientTraits) -> ModeSetting:
    """Return the mode that the user has set: for all clients (`wanted`), or else for this one."""
    return wanted if wanted != "auto" else traits.mode


def surface_plan(
    wanted: ModeSetting,
    traits: ClientTraits,
    *,
    is_stateless: bool = False,
    was_seen: bool | None = None,
    size_bytes: int | None = None,
    known_bytes: int = 0,
    share: float = 0.1,
    is_whole: bool = False,
) -> SurfacePlan:
    """Return which tools a session's client is shown (the mode), and why.

    `wanted` is the user's mode for all clients. `is_stateless` says that the client speaks the
    stateless generation of MCP. `was_seen` tells whether the client was seen to list again after a
    change; None if that is not known yet. `size_bytes` is the size of all tools' definitions. It is
    None if not every server's tools are known, or if the client's list does not take that many.
    `known_bytes` is the size of the known definitions. `share` is the part of the client's context
    that `pass-through` may fill. `is_whole` says that listing every tool costs least
    (`whole_list`).
    """
    was_seen = None if traits.is_relists_set else was_seen
    chosen = set_mode(wanted, traits)
    if chosen == "pass-through":
        limit = traits.context * share
        if size_bytes is not None and size_bytes / BYTES_PER_TOKEN <= limit:
            return SurfacePlan("pass-through", f"everything fits into {limit:.0f} tokens")
        why = "not every server's tools are known, or they are too many for this client"
        if size_bytes is not None:
            why = "too much for it"
        automatic = _automatic(
            *(traits, size_bytes, known_bytes), is_stateless=is_stateless, was_seen=was_seen
        )
        return SurfacePlan(automatic.mode, f"pass-through was set: {why}; {automatic.reason}")
    if chosen == "dynamic":
        return SurfacePlan("dynamic", "set by the user")
    if chosen == "stable":
        return SurfacePlan("stable", "set by the user")
    # Where the client hides the list from its model, the model gets call cards instead.
    if is_whole and not traits.defers_tools:
        reason = "all tools cost less than capd's own and searches would"
        return SurfacePlan("pass-through", reason, is_whole=True)
    return _automatic(
        *(traits, size_bytes, known_bytes), is_stateless=is_stateless, was_seen=was_seen
    )


def _automatic(
    traits: ClientTraits,
    size_bytes: int | None,
    known_bytes: int,
    *,
    is_stateless: bool,
    was_seen: bool | None,
) -> SurfacePlan:
    if is_stateless and not traits.stateless_relists:
        return SurfacePlan("stable", "this client does not list again in the stateless generation")
    if was_seen is False:
        return SurfacePlan("stable", "the client was seen not to list again")
    if traits.relists == "never" and not was_seen:
        reason = "the client is known not to list again"
        return SurfacePlan("stable", reason, is_from_table_alone=not traits.is_relists_set)
    if size_bytes:
        # Where listing every tool costs least, `is_whole` has decided before.
        return SurfacePlan("stable", "all tools are known: a changing list would cost more")
    if known_bytes / BYTES_PER_TOKEN > CHANGING_TOKENS:
        many = f"over {CHANGING_TOKENS} tokens of tools"
        return SurfacePlan("stable", f"{many}: a changing list would cost more")
    return SurfacePlan("dynamic", "the client lists again")


class RelistWatch:
    """Learns whether a client sends `tools/list` again after it was told of a change.

    A client that sends `tools/list` in two turns without a notification also counts as one that
    lists again.
    """

    # Slots save memory: every idle session has one of these objects.
    __slots__ = ("_has_turned", "_is_behind", "_turns", "_unasked", "was_seen")

    TURNS = 2
    """After this many turns without a `tools/list`, the client is one that does not list again. One
    turn is not enough: its hook may arrive before the client has reacted."""
    UNASKED = 2
    """After this many `tools/list` without a notification, each in another turn, the client is one
    that lists again. One is not enough: it may belong to a new connection."""

    def __init__(self) -> None:
        self.was_seen: bool | None = None
        """True if the client has listed again, False if it did not for `TURNS` turns after a
        notification, None if neither is known yet."""
        self._is_behind = False
        self._turns = 0
        self._has_turned = False
        self._unasked = 0

    @property
    def is_behind(self) -> bool:
        """Whether the client was notified of a change and has not sent `tools/list` since."""
        return self._is_behind

    def changed(self) -> None:
        """Note that the client was sent `notifications/tools/list_changed`."""
        if not self._is_behind:
            self._is_behind, self._turns = True, 0

    def listed(self) -> None:
        """Note that the client has sent `tools/list`."""
        self._unasked += self._has_turned and not self._is_behind
        self._has_turned = False
        if self._is_behind or self._unasked >= self.UNASKED:
            self._is_behind, self.was_seen = False, True

    def turned(self) -> None:
        """Note that a message of the user has arrived."""
        self._turns += 1
        self._has_turned = True
        if self._is_behind and self._turns >= self.TURNS and self.was_seen is None:
            self.was_seen = False
