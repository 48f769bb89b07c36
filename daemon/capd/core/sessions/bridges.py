"""What a session over a bridge may use: less than its user, and by rules of the bridge's own.

A bridge carries sessions of a container or of another host to this daemon. Whoever is over there is
not the user. So its session's key is put into the bridge's own namespace:

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
    are."""


def is_name(text: str) -> bool:
    """Tell whether a bridge may be called `text`."""
    return _NAME.fullmatch(text) is not None


def session_key(bridge: str, key: str) -> SessionKey:
    """Return the key of a session that calls itself `key` over a bridge.

    A key that is in the bridge's own namespace already (the client has it from its welcome) stays
    as it is.
    """
    prefix = f"{_PREFIX}:{bridge}:"
    return SessionKey(key if key.startswith(prefix) else prefix + key)


def shown_path(path: str) -> str:
    """Return a path of the far side for a line that a person reads."""
    return _NOT_SHOWN.sub("?", path[:MOST_SHOWN_CHARACTERS])


def with_bridge(
    rules: SessionRules, bridge: str, bridges: Mapping[str, BridgeRules]
) -> SessionRules:
    """Return the rules of a session over `bridge`; of a bridge without a table, that deny all.

    What such a session does teaches routing nothing, and it runs no scripts here.
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
