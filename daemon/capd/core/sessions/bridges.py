"""The rules for sessions over a bridge, which may do less than the user's own.

A bridge connects sessions in a container or on another host to this daemon. Whoever runs there is
not the user of this machine. So a session's key is put into the bridge's own namespace:

    `work-1` over the bridge `devbox` ──> `bridge:devbox:work-1`

Two bridges have no key in common, because a bridge's name has no colon.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd_protos.types import SessionKey

MOST_SHOWN_CHARACTERS = 200
"""Of a path of the far side, which is shown to a person."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_NOT_SHOWN = re.compile(r"[^\x20-\x7e]")
_PREFIX = "bridge"
_NOTHING = ("*",)


@dataclass(frozen=True, slots=True)
class BridgeRules:
    """The table of one bridge in the configuration."""

    policy: PolicyRules = field(default_factory=lambda: PolicyRules(""))
    """If it permits nothing by name, it permits nothing at all."""
    profile: str = ""
    """The profile of the bridge's sessions; empty for none, whatever the conditions of profiles
    say."""


def is_name(text: str) -> bool:
    """Tell whether a bridge may be called `text`."""
    return _NAME.fullmatch(text) is not None


def session_key(bridge: str, key: str) -> SessionKey:
    """Return the key of a session that uses `key` over a bridge.

    A key that is in the bridge's namespace already (the client got it in its welcome) is unchanged.
    """
    prefix = f"{_PREFIX}:{bridge}:"
    return SessionKey(key if key.startswith(prefix) else prefix + key)


def shown_path(path: str) -> str:
    """Return a path on the far side, for a line that a person reads."""
    return _NOT_SHOWN.sub("?", path[:MOST_SHOWN_CHARACTERS])


def with_bridge(
    rules: SessionRules, bridge: str, bridges: Mapping[str, BridgeRules]
) -> SessionRules:
    """Return the rules of a session over `bridge`; a bridge without a table denies everything.

    Routing learns nothing from such a session, and it may not run scripts.
    """
    table = bridges.get(bridge, BridgeRules()).policy
    place = f"[bridges.{bridge}]"
    if not table.allow and table.capabilities is None:
        table = PolicyRules(place, deny=_NOTHING)
    return replace(
        rules,
        added=(*rules.added, replace(table, place=place)),
        learns=False,
        has_scripts=False,
        lists_scripts=False,
    )
