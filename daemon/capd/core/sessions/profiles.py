"""Chooses a session's profile: the rules and secrets for one kind of work, such as one customer's.

The first of these that is set decides which profile a session gets:

    1. the name that a person has chosen for the session
    2. the name in the variable CAPD_PROFILE
    3. the profile of the parent session
    4. the conditions: the first profile of the configuration whose conditions hold

Folders, remotes, branches and clients are the conditions of a profile. They hold if, of each kind
that the profile has, at least one entry fits. Example: a profile has `folders` and `clients`, one
of the folders contains the project, and one of the client patterns matches. A profile without
conditions is chosen only by its name. Only the user's own configuration defines profiles and names
them, never a project's file. The policy of a profile is added to the user's, so a profile can only
deny more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from capd.core.globs import matches
from capd.core.servers.sandbox import Level
from capd.core.sessions.git_checkout import NO_CHECKOUT, GitCheckout
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd_protos.naming import near_names

SEPARATOR = "__"
"""Between a namespace and a key: `WORK__GITHUB_TOKEN`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of the configuration: the conditions to choose it, and what it changes."""

    name: str
    folders: tuple[str, ...] = ()
    """Absolute paths of project folders; folders inside are included."""
    remotes: tuple[str, ...] = ()
    """Globs of remotes of the git checkout, as `host/path`."""
    branches: tuple[str, ...] = ()
    """Globs of the branch that is checked out."""
    clients: tuple[str, ...] = ()
    """Globs of clients' names."""
    on: tuple[str, ...] = ()
    """Capabilities that the profile switches on: `name` or `tap/name`."""
    pins: tuple[str, ...] = ()
    """Patterns of tools that are always listed, in addition to the user's pins."""
    secrets: str = ""
    """The namespace of the profile's own secrets; empty if it has none."""
    policy: PolicyRules = field(default_factory=lambda: PolicyRules(""))
    off: tuple[str, ...] = ()
    """Capabilities that are off: `name` or `tap/name`."""
    sandbox: Level = "off"
    """The weakest sandbox that the servers of the profile's sessions may run in."""

    @property
    def has_conditions(self) -> bool:
        """Whether the profile has any condition, and so can be chosen without being named."""
        return bool(self.folders or self.remotes or self.branches or self.clients)


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts of a session that conditions of profiles are compared with."""

    clients: Sequence[str] = ()
    """The names of the session's client."""
    project: str = ""
    checkout: GitCheckout = NO_CHECKOUT


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """The profile that was chosen for a session, and the reason."""

    profile: Profile | None = None
    why: str = "no profile fits"
    problem: str = ""
    """Why the profile that was named cannot be used; empty if it can, or none was named."""

    @property
    def name(self) -> str:
        """The profile's name; empty for none."""
        return self.profile.name if self.profile is not None else ""


def choose(
    profiles: Mapping[str, Profile],
    facts: SessionFacts,
    *,
    by_hand: str = "",
    variable: str = "",
    inherited: str = "",
) -> ProfileChoice:
    """Return which profile a session gets, and why.

    `by_hand`, `variable` (CAPD_PROFILE) and `inherited` are names; the first that is not empty
    decides. If no profile has that name, the session has none, and `ProfileChoice.problem` says so:
    conditions could choose a profile that the user did not mean. If all are empty, the first
    profile whose conditions `facts` meet is chosen.
    """
    named = (
        (by_hand, "chosen by hand"),
        (variable, "CAPD_PROFILE"),
        (inherited, "the session that started this one"),
    )
    for name, why in named:
        if name:
            return _named(profiles, name, why)
    found = next((each for each in profiles.values() if _fits(each, facts)), None)
    return ProfileChoice(found, _reason(found, facts)) if found is not None else ProfileChoice()


def _named(profiles: Mapping[str, Profile], name: str, why: str) -> ProfileChoice:
    if name in profiles:
        return ProfileChoice(profiles[name], why)
    return ProfileChoice(None, why, unknown(profiles, name))


def unknown(profiles: Iterable[str], name: str) -> str:
    """Return the text for a person about a profile name that does not exist.

    It has the nearest name or all names.
    """
    known = list(profiles)
    near = near_names(name, known)
    if near:
        hint = f"did you mean {near[0]}?"
    elif known:
        hint = f"there are: {', '.join(known[:20])}"
    else:
        hint = "config.toml has no [profiles.NAME]"
    return f"there is no profile {name[:60]!a}; {hint}"


def _fits(profile: Profile, facts: SessionFacts) -> bool:
    if not profile.has_conditions:
        return False
    kinds = (
        (profile.folders, lambda each: is_around(each, facts.project)),
        (profile.remotes, lambda each: _any(facts.checkout.remotes, each)),
        (profile.branches, lambda each: _any((facts.checkout.branch,), each)),
        (profile.clients, lambda each: _any(facts.clients, each)),
    )
    return all(any(map(fits, patterns)) for patterns, fits in kinds if patterns)


def _reason(profile: Profile, facts: SessionFacts) -> str:
    parts = (
        ("folder", bool(profile.folders), facts.project),
        ("remote", bool(profile.remotes), ", ".join(facts.checkout.remotes)),
        ("branch", bool(profile.branches), facts.checkout.branch),
        ("client", bool(profile.clients), next(iter(facts.clients), "")),
    )
    return ", ".join(f"{kind} {value[:100]}" for kind, is_named, value in parts if is_named)


def _any(names: Iterable[str], pattern: str) -> bool:
    folded = pattern.casefold()
    return any(matches(name.casefold(), folded) for name in names if name)


def is_around(folder: str, project: str) -> bool:
    """Tell whether `folder` is the project's folder or contains it."""
    place = PurePosixPath(project)
    return bool(project) and PurePosixPath(folder) in (place, *place.parents)


def with_profile(rules: SessionRules, profile: Profile | None) -> SessionRules:
    """Return the rules of a session with this profile; None leaves `rules` as they are."""
    if profile is None:
        return rules
    table = profile.policy
    return replace(
        rules,
        pins=(*rules.pins, *profile.pins),
        added=rules.added if table.is_empty else (*rules.added, table),
        off=tuple((name, profile.name) for name in profile.off),
    )


def namespaced(key: str, namespace: str) -> str:
    """Return the name under which a profile stores its own value: `WORK__GITHUB_TOKEN`."""
    return f"{namespace.upper()}{SEPARATOR}{key}"


def values_of(values: Mapping[str, str], namespace: str) -> dict[str, str]:
    """Return the secrets in `values` that a profile stores, by names without its `namespace`."""
    prefix = f"{namespace.upper()}{SEPARATOR}"
    return {
        key.removeprefix(prefix): value
        for key, value in values.items()
        if key.startswith(prefix) and value
    }
