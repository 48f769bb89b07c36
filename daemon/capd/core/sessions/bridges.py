"""The rules for sessions over a bridge, which may do less than local sessions.

A bridge connects sessions in a container or on another host, the far side, to this daemon. Programs
there are trusted less than those of the user here. So capd puts a prefix before the keys of a
bridge's sessions. A client on a bridge can then name no local session and no session of another
bridge:

    `work-1` over the bridge `devbox` ──> `bridge:devbox:work-1`

A bridge's name has no colon, so no two bridges can produce the same key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from capd.core.globs import matches
from capd.core.lazy_patterns import lazy_pattern
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd_protos.types import SessionKey

MOST_FOLDER_CHARACTERS = 1024
MOST_SHOWN_CHARACTERS = 200
"""A person is shown at most this many characters of a path on the far side."""
_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_NOT_SHOWN = lazy_pattern(r"[^\x20-\x7e]")
_PREFIX = "bridge"
_OWN_TAP = "own"
"""The tap of what the user has added (`capd add`)."""
_NOTHING = ("*",)


@dataclass(frozen=True, slots=True)
class BridgeRules:
    """The rules that the configuration sets for one bridge."""

    policy: PolicyRules = field(default_factory=lambda: PolicyRules(""))
    """What sessions over the bridge may use. If it has neither `allow` nor `capabilities`, they may
    use nothing."""
    profile: str = ""
    """The profile of the bridge's sessions. If it is empty, they have none, even if the conditions
    of a profile fit."""
    has_secrets: bool = False
    """Whether servers that run on the far side get the secrets that their definitions name."""
    starts: tuple[str, ...] = ()
    """Globs of the servers that may run on the far side, as `name` or `tap/name`."""

    def may_start(self, tap: str, server: str) -> bool:
        """Tell whether a server of a tap may run on the far side.

        A tap is often somebody else's, and its next version may say where a server runs. So only a
        definition in the user's own tap permits this by itself.
        """
        names = (server, f"{tap}/{server}")
        return tap == _OWN_TAP or any(matches(name, glob) for glob in self.starts for name in names)


def is_name(text: str) -> bool:
    """Tell whether `text` is a valid name of a bridge: 1 to 40 of A-Z a-z 0-9 . _ -.

    The first character is a letter or a digit.
    """
    return _NAME.fullmatch(text) is not None


def session_key(bridge: str, key: str) -> SessionKey:
    """Return the key, with the bridge's prefix, of a session whose client asks for `key`.

    A key that has the prefix already is unchanged: a client that resumes sends the whole key, which
    it got when the session began.
    """
    prefix = f"{_PREFIX}:{bridge}:"
    return SessionKey(key if key.startswith(prefix) else prefix + key)


def shown_path(path: str) -> str:
    """Return a path on the far side for a person: printable ASCII, cut to 200 characters."""
    return _NOT_SHOWN.sub("?", path[:MOST_SHOWN_CHARACTERS])


def far_folder(path: str) -> str:
    """Return a path on the far side, for servers that run there; empty if it is not a valid one.

    Only the far side opens it, so it may be any folder there. Every character must be printable,
    because the path becomes part of error messages, file URLs and arguments.
    """
    is_usable = path.startswith("/") and len(path) <= MOST_FOLDER_CHARACTERS and path.isprintable()
    return path if is_usable else ""


def with_bridge(
    rules: SessionRules, bridge: str, bridges: Mapping[str, BridgeRules]
) -> SessionRules:
    """Return `rules`, limited to what a session over `bridge` may do.

    `bridges` has the rules of each bridge. A bridge without rules denies everything. Routing learns
    nothing from a session over a bridge, and the session may not run scripts.
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
