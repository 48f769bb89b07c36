"""The trusted definitions of a server's tools, and the changes since.

    unknown ──first list──> trusted          (in quarantine: added, and withheld)
    trusted ──another definition──> changed ──accepted──> trusted
       ^  └──listed no more──> removed             │
       └──no running instance lists it─────────────┴──rejected──> withheld for good
    not trusted ──listed──> added ──accepted──> trusted

Only a person changes what is trusted. A tool may have several trusted definitions, because a
server's list may depend on its settings: each has one digest. If a baseline was lost, and changes
are withheld for this server, everything is withheld until a person has looked at it again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from capd.core.definitions.canonical import canonical, digest
from capd.core.taps.package_pins import is_pinned
from capd_protos.types import InstanceId, ServerIdentity, ServerName, ServerSpec, ToolName

MOST_DIGESTS = 8


MOST_TOOLS = 4000


MOST_TEXT_BYTES = 24 << 20


"""Limit for one server's definitions; beyond it only their digests are kept."""


ADDED, CHANGED, REMOVED = "added", "changed", "removed"


class TrustedTool(msgspec.Struct, frozen=True):
    """A tool with its trusted definitions."""

    digests: tuple[str, ...]
    """The newest first."""
    text: bytes = b""
    """The newest, as canonical JSON."""
    rejected: tuple[str, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """A change that a person has not decided on yet, or has rejected."""

    kind: str
    """`added`, `changed` or `removed`."""
    digest: str = ""
    text: bytes = b""
    seen_at: float = 0.0
    is_rejected: bool = False


class Baseline(msgspec.Struct, frozen=True):
    """Everything that is saved of a server's definitions."""

    identity: ServerIdentity
    name: ServerName
    standing: str = ""
    """Why a change is withheld in every mode: `project`, `pinned`, or empty."""
    known: dict[ToolName, TrustedTool] = {}
    changes: dict[ToolName, Change] = {}
    is_lost: bool = False
    """Whether the earlier baseline was lost, and no person has checked the server since."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When a change withholds a tool."""

    is_quarantine: bool = False

    def withholds(self, change: Change, baseline: Baseline) -> bool:
        """Tell whether `change` is withheld until a person accepts it."""
        if change.kind == REMOVED:
            return False
        if change.is_rejected or self.is_quarantine or baseline.standing == "project":
            return True
        # Servers switch whole sets of tools on, so an added tool is ordinary. Known tools must not
        # change.
        is_other = change.kind == CHANGED or baseline.is_lost
        return baseline.standing == "pinned" and is_other

    def trusts_first(self, baseline: Baseline) -> bool:
        """Tell whether the first list of a server becomes its baseline."""
        if baseline.known or baseline.changes:
            return False
        return not self.is_quarantine and not (baseline.is_lost and baseline.standing)


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of comparing a list with the baseline."""

    baseline: Baseline
    news: dict[ToolName, Change] = field(default_factory=dict)
    """Changes that were not known before."""


def standing_of(server: ServerSpec) -> str:
    """Return why changes of a server are withheld in every mode; empty if they are not."""
    if server.project:
        return "project"
    return "pinned" if is_pinned(server) else ""


def compared(
    baseline: Baseline,
    listed: Mapping[ToolName, bytes],
    rule: Rule,
    now: float,
    elsewhere: Mapping[ToolName, Sequence[bytes]] = {},
) -> Compared:
    """Return the new baseline after a server has listed its tools, given as canonical JSON.

    `elsewhere` are the lists of its other running instances; an empty text stands for a trusted
    tool.
    """
    if not listed and not baseline.known:
        return Compared(baseline)
    if rule.trusts_first(baseline):
        trusted = {name: TrustedTool((digest(text),), text) for name, text in listed.items()}
        return Compared(_bounded(_with(baseline, trusted, {}, is_lost=False)))
    changes: dict[ToolName, Change] = {}
    for name, text in listed.items():
        change = _change(baseline, name, text, now)
        if change is not None:
            changes[name] = change
    for name, known in baseline.known.items():
        if name not in listed and name not in elsewhere:
            old = baseline.changes.get(name)
            is_same = old is not None and old.kind == REMOVED
            changes[name] = old if is_same and old else Change(REMOVED, known.digests[0], b"", now)
    # The tool is withheld at other instances, so its change must be here for a person to decide on.
    for name, others in elsewhere.items():
        found = [_change(baseline, name, text, now) for text in others if text]
        undecided = [each for each in found if each is not None]
        if name not in changes and undecided:
            old = baseline.changes.get(name)
            changes[name] = old if old is not None and old in undecided else undecided[0]
    # A rejection stays while the tool is not listed.
    changes |= {
        name: old
        for name, old in baseline.changes.items()
        if old.is_rejected
        and name not in changes
        and name not in listed
        and name not in baseline.known
    }
    news = {
        name: change
        for name, change in changes.items()
        if name not in baseline.changes or _differs(baseline.changes[name], change)
    }
    after = _with(baseline, baseline.known, changes, is_lost=baseline.is_lost)
    return Compared(_bounded(after), news)


def accepted(baseline: Baseline, digests: Mapping[ToolName, str]) -> Baseline:
    """Trust the definitions in `digests`, as far as they are still listed."""
    known, changes = dict(baseline.known), dict(baseline.changes)
    for name in decided_on(baseline, digests):
        change = changes.pop(name)
        if change.kind == REMOVED:
            known.pop(name, None)
            continue
        old = known.get(name, TrustedTool(()))
        rejected = tuple(each for each in old.rejected if each != change.digest)
        all_digests = dict.fromkeys((change.digest, *old.digests))
        known[name] = TrustedTool(tuple(all_digests)[:MOST_DIGESTS], change.text, rejected)
    is_lost = baseline.is_lost and any(c.kind != REMOVED for c in changes.values())
    return _bounded(_with(baseline, known, changes, is_lost=is_lost))


def rejected(baseline: Baseline, digests: Mapping[ToolName, str]) -> Baseline:
    """Withhold the definitions in `digests` for as long as they are listed."""
    known, changes = dict(baseline.known), dict(baseline.changes)
    for name in decided_on(baseline, digests):
        change = changes[name]
        if change.kind == REMOVED:
            continue
        changes[name] = msgspec.structs.replace(change, is_rejected=True)
        if name in known:
            old = known[name]
            all_rejected = tuple(dict.fromkeys((change.digest, *old.rejected)))[:MOST_DIGESTS]
            known[name] = msgspec.structs.replace(old, rejected=all_rejected)
    return _bounded(_with(baseline, known, changes, is_lost=baseline.is_lost))


def decided_on(baseline: Baseline, digests: Mapping[ToolName, str]) -> list[ToolName]:
    """Return the tools of `digests` whose definition is still the one that the person saw."""
    return [
        name
        for name, each in digests.items()
        if name in baseline.changes and baseline.changes[name].digest == each
    ]


def withheld(baseline: Baseline, rule: Rule) -> dict[ToolName, Change]:
    """Return the withheld tools, each with the reason."""
    return {
        name: change
        for name, change in baseline.changes.items()
        if rule.withholds(change, baseline)
    }


def withheld_of(
    digests: Mapping[ToolName, str], baseline: Baseline, rule: Rule
) -> dict[ToolName, Change]:
    """Return the withheld tools of one instance's list, each with the reason.

    Another instance may list the same tool with a trusted definition.
    """
    return {
        name: change
        for name, change in withheld(baseline, rule).items()
        if name in digests
        and (name not in baseline.known or digests[name] not in baseline.known[name].digests)
    }


def reason(baseline: Baseline, tool: ToolName, change: Change, *, command: str) -> str:
    """Return why a tool is withheld, for a model and its user."""
    said = {
        ADDED: "is not among the tools that were trusted",
        CHANGED: "is not defined as it was when it was trusted",
    }[change.kind]
    why = "" if not change.is_rejected else ", and a person has rejected its definition"
    return (
        f"{tool} of {baseline.name} is withheld: it {said}{why}. "
        f"The person sees the difference, and accepts it, with: {command}"
    )


def texts(tools: Iterable[tuple[ToolName, bytes]]) -> dict[ToolName, bytes]:
    """Return definitions by name, as canonical JSON."""
    return {name: canonical(written) for name, written in tools}


def _change(baseline: Baseline, name: ToolName, text: bytes, now: float) -> Change | None:
    each = digest(text)
    known, old = baseline.known.get(name), baseline.changes.get(name)
    if known is not None and each in known.digests:
        return None
    if old is not None and old.digest == each and old.kind != REMOVED:
        return old
    is_rejected = known is not None and each in known.rejected
    return Change(CHANGED if known is not None else ADDED, each, text, now, is_rejected)


def _differs(old: Change, new: Change) -> bool:
    return (old.kind, old.digest) != (new.kind, new.digest)


def _with(
    baseline: Baseline,
    known: Mapping[ToolName, TrustedTool],
    changes: Mapping[ToolName, Change],
    *,
    is_lost: bool,
) -> Baseline:
    return msgspec.structs.replace(
        baseline, known=dict(known), changes=dict(changes), is_lost=is_lost
    )


def _bounded(baseline: Baseline) -> Baseline:
    """Enforce the limits: what is no longer listed is forgotten first."""
    known, changes = baseline.known, baseline.changes
    if len(known) > MOST_TOOLS:
        gone = [name for name in known if name in changes and changes[name].kind == REMOVED]
        forgotten = set((gone + [name for name in known if name not in gone])[:-MOST_TOOLS])
        known = {name: each for name, each in known.items() if name not in forgotten}
        changes = {
            name: each
            for name, each in changes.items()
            if name not in forgotten or each.kind != REMOVED
        }
    if _size([*known.values(), *changes.values()]) > MOST_TEXT_BYTES:
        known = {n: msgspec.structs.replace(each, text=b"") for n, each in known.items()}
    return msgspec.structs.replace(baseline, known=known, changes=changes)


def _size(parts: Sequence[TrustedTool | Change]) -> int:
    return sum(len(part.text) for part in parts)


MOST_REPORTED = 4000


# An instance of a project writes its roots into a description, and another has other roots. What
# one of them lists and nobody has decided on is remembered while it runs, whatever the others list.
class Instances:
    """The lists of one server by instance, and which of their changes were reported."""

    def __init__(self) -> None:
        self._listed: dict[InstanceId, Mapping[ToolName, bytes]] = {}
        self._reported: dict[tuple[ToolName, str, str], None] = {}

    def elsewhere(
        self, instance: InstanceId, running: Collection[InstanceId]
    ) -> dict[ToolName, list[bytes]]:
        """Return what the other running instances list; instances that ended are forgotten."""
        self._listed = {
            each: listed
            for each, listed in self._listed.items()
            if each in running and each != instance
        }
        found: dict[ToolName, list[bytes]] = {}
        for listed in self._listed.values():
            for name, text in listed.items():
                found.setdefault(name, []).append(text)
        return found

    def lists(
        self, instance: InstanceId, texts: Mapping[ToolName, bytes], changed: Collection[ToolName]
    ) -> None:
        """Store the list of an instance; keep the text only of `changed` tools."""
        self._listed[instance] = {
            name: text if name in changed else b"" for name, text in texts.items()
        }

    def unreported(self, news: Mapping[ToolName, Change]) -> dict[ToolName, Change]:
        """Return the part of `news` that was not reported before, and mark it as reported."""
        found: dict[ToolName, Change] = {}
        for name, change in news.items():
            key = (name, change.kind, change.digest)
            if key not in self._reported:
                found[name] = change
                self._reported[key] = None
        for key in list(self._reported)[:-MOST_REPORTED]:
            del self._reported[key]
        return found

    def decided(self, names: Collection[ToolName]) -> None:
        """Report these changes again the next time, because a person has decided on them."""
        self._reported = {key: None for key in self._reported if key[0] not in names}
