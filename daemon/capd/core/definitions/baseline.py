"""The trusted definitions of a server's tools, and the changes since: the server's *baseline*.

A tool that is *withheld* is on no list, found by no search, and not called.

    unknown ──first list──> trusted          (mode quarantine: added, and withheld)
    trusted ──another definition──> changed ──accepted──> trusted
       ^  └──listed no more──> removed             │
       └──no running instance lists it─────────────┴──rejected──> withheld for good
    not trusted ──listed──> added ──accepted──> trusted

Apart from the first list, only a person decides what is trusted. A tool may have several trusted
definitions, because a server's list may depend on its settings; each has a digest. If the baseline
of a server was lost, and the rules withhold changed tools of this server, all its tools are
withheld until a person accepts them.
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
"""If the definitions of one server have more bytes, only digests of the trusted ones are kept."""

ADDED, CHANGED, REMOVED = "added", "changed", "removed"


class TrustedTool(msgspec.Struct, frozen=True):
    """One tool: the digests of its trusted and of its rejected definitions."""

    digests: tuple[str, ...]
    """The digests of the trusted definitions, the newest first."""
    text: bytes = b""
    """The newest trusted definition, as canonical JSON; empty if it was too large to keep."""
    rejected: tuple[str, ...] = ()
    """The digests of the definitions that a person has rejected."""


class ToolChange(msgspec.Struct, frozen=True):
    """A change of a tool's definition that a person has not decided on yet, or has rejected."""

    kind: str
    """What happened to the tool: `added`, `changed` or `removed`."""
    digest: str = ""
    """The digest of the definition; if the tool was removed, of its newest trusted definition."""
    text: bytes = b""
    """The definition, as canonical JSON; empty if the tool was removed."""
    seen_at: float = 0.0
    """When the change was first seen, in seconds since the epoch."""
    is_rejected: bool = False


class Baseline(msgspec.Struct, frozen=True):
    """What is saved about one server: its trusted tools, and the changes since."""

    identity: ServerIdentity
    name: ServerName
    standing: str = ""
    """Why a changed tool is withheld in every mode (`standing_of`); empty if the mode decides."""
    known: dict[ToolName, TrustedTool] = {}
    changes: dict[ToolName, ToolChange] = {}
    is_lost: bool = False
    """Whether the earlier baseline was lost, and no person has checked the server since."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Decides which changed or added tools are withheld; depends on the mode that the user sets."""

    is_quarantine: bool = False

    def withholds(self, change: ToolChange, baseline: Baseline) -> bool:
        """Tell whether a tool with this change is withheld until a person accepts the change."""
        if change.kind == REMOVED:
            return False
        if change.is_rejected or self.is_quarantine or baseline.standing == "project":
            return True
        # Servers switch whole sets of tools on, so an added tool is ordinary. Known tools must not
        # change.
        is_other = change.kind == CHANGED or baseline.is_lost
        return baseline.standing == "pinned" and is_other

    def trusts_first(self, baseline: Baseline) -> bool:
        """Tell whether the first list of tools that a server gives is trusted."""
        if baseline.known or baseline.changes:
            return False
        return not self.is_quarantine and not (baseline.is_lost and baseline.standing)


@dataclass(frozen=True, slots=True)
class ComparedList:
    """The result of comparing a server's tools with its trusted definitions.

    It has the new record of the server, and the changes that are new.
    """

    baseline: Baseline
    news: dict[ToolName, ToolChange] = field(default_factory=dict)
    """The changes that the old baseline did not have."""


def standing_of(server: ServerSpec) -> str:
    """Return why changed tools of a server are withheld, whatever mode the user has set.

    `project`: a project's files define the server; its added tools are withheld as well. `pinned`:
    the server runs a package in an exact version. Empty: the user's mode decides.
    """
    if server.project:
        return "project"
    return "pinned" if is_pinned(server) else ""


def compared(
    baseline: Baseline,
    listed: Mapping[ToolName, bytes],
    rule: Rule,
    now: float,
    elsewhere: Mapping[ToolName, Sequence[bytes]] = {},
) -> ComparedList:
    """Compare the tools that an instance lists with the server's record, and return a new record.

    `baseline` is the old record. `listed` has the tools' definitions as canonical JSON. `elsewhere`
    has the definitions that the server's other running instances list; empty bytes stand for a
    trusted definition. `now` is in seconds since the epoch.
    """
    if not listed and not baseline.known:
        return ComparedList(baseline)
    if rule.trusts_first(baseline):
        trusted = {name: TrustedTool((digest(text),), text) for name, text in listed.items()}
        return ComparedList(_bounded(_with(baseline, trusted, {}, is_lost=False)))
    changes: dict[ToolName, ToolChange] = {}
    for name, text in listed.items():
        change = _change(baseline, name, text, now)
        if change is not None:
            changes[name] = change
    for name, known in baseline.known.items():
        if name not in listed and name not in elsewhere:
            old = baseline.changes.get(name)
            is_same = old is not None and old.kind == REMOVED
            changes[name] = (
                old if is_same and old else ToolChange(REMOVED, known.digests[0], b"", now)
            )
    # A change that only other instances list is kept, so that a person can decide on it.
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
    return ComparedList(_bounded(after), news)


def accepted(baseline: Baseline, digests: Mapping[ToolName, str]) -> Baseline:
    """Return a record in which the changes in `digests` are trusted.

    A change that no longer has the given digest stays undecided.
    """
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
    """Return a record in which the changes in `digests` withhold their tools for good.

    A change that no longer has the given digest stays undecided.
    """
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
    """Return the tools in `digests` whose change in `baseline` still has the given digest."""
    return [
        name
        for name, each in digests.items()
        if name in baseline.changes and baseline.changes[name].digest == each
    ]


def withheld(baseline: Baseline, rule: Rule) -> dict[ToolName, ToolChange]:
    """Return the tools of a server that must not be used, each with the change as the reason."""
    return {
        name: change
        for name, change in baseline.changes.items()
        if rule.withholds(change, baseline)
    }


def withheld_of(
    digests: Mapping[ToolName, str], baseline: Baseline, rule: Rule
) -> dict[ToolName, ToolChange]:
    """Return which tools of an instance must not be used, each with the change as the reason.

    `digests` are the digests of the definitions that the instance lists. If it lists a trusted
    definition of a tool, that tool may be used.
    """
    return {
        name: change
        for name, change in withheld(baseline, rule).items()
        if name in digests
        and (name not in baseline.known or digests[name] not in baseline.known[name].digests)
    }


def reason(baseline: Baseline, tool: ToolName, change: ToolChange, *, command: str) -> str:
    """Return why a tool is withheld, for a model and its user.

    `command` is the command that shows the difference to the trusted definition.
    """
    how = {
        ADDED: "is not among the tools that were trusted",
        CHANGED: "is not defined as it was when it was trusted",
    }[change.kind]
    why = "" if not change.is_rejected else ", and a person has rejected its definition"
    return (
        f"{tool} of {baseline.name} is withheld: it {how}{why}. "
        f"The person sees the difference, and accepts it, with: {command}"
    )


def texts(tools: Iterable[tuple[ToolName, bytes]]) -> dict[ToolName, bytes]:
    """Return the definitions of `tools` as canonical JSON, by the tools' names.

    Raises:
        MalformedError: a definition is not JSON.
    """
    return {name: canonical(written) for name, written in tools}


def _change(baseline: Baseline, name: ToolName, text: bytes, now: float) -> ToolChange | None:
    each = digest(text)
    known, old = baseline.known.get(name), baseline.changes.get(name)
    if known is not None and each in known.digests:
        return None
    if old is not None and old.digest == each and old.kind != REMOVED:
        return old
    is_rejected = known is not None and each in known.rejected
    return ToolChange(CHANGED if known is not None else ADDED, each, text, now, is_rejected)


def _differs(old: ToolChange, new: ToolChange) -> bool:
    return (old.kind, old.digest) != (new.kind, new.digest)


def _with(
    baseline: Baseline,
    known: Mapping[ToolName, TrustedTool],
    changes: Mapping[ToolName, ToolChange],
    *,
    is_lost: bool,
) -> Baseline:
    return msgspec.structs.replace(
        baseline, known=dict(known), changes=dict(changes), is_lost=is_lost
    )


def _bounded(baseline: Baseline) -> Baseline:
    """Return the record cut to its size limits; tools that are not listed are dropped first."""
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


def _size(parts: Sequence[TrustedTool | ToolChange]) -> int:
    return sum(len(part.text) for part in parts)


MOST_REPORTED = 4000


# Instances of one server may list different definitions: some servers write the project's folder
# into a description. So each instance's list is remembered while it runs.
class Instances:
    """The tool lists of one server's running instances, and the changes already reported."""

    def __init__(self) -> None:
        self._listed: dict[InstanceId, Mapping[ToolName, bytes]] = {}
        self._reported: dict[tuple[ToolName, str, str], None] = {}

    def elsewhere(
        self, instance: InstanceId, running: Collection[InstanceId]
    ) -> dict[ToolName, list[bytes]]:
        """Return the definitions that the other instances in `running` list, by tool.

        Empty bytes stand for a trusted definition. The old list of `instance`, and the lists of
        instances that have ended, are forgotten.
        """
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
        """Store the names of an instance's tools, and the definitions of those in `changed`."""
        self._listed[instance] = {
            name: text if name in changed else b"" for name, text in texts.items()
        }

    def unreported(self, news: Mapping[ToolName, ToolChange]) -> dict[ToolName, ToolChange]:
        """Return the changes in `news` that were not reported before, and mark them as reported."""
        found: dict[ToolName, ToolChange] = {}
        for name, change in news.items():
            key = (name, change.kind, change.digest)
            if key not in self._reported:
                found[name] = change
                self._reported[key] = None
        for key in list(self._reported)[:-MOST_REPORTED]:
            del self._reported[key]
        return found

    def decided(self, names: Collection[ToolName]) -> None:
        """Forget that changes of these tools were reported, after a person's decision."""
        self._reported = {key: None for key in self._reported if key[0] not in names}
