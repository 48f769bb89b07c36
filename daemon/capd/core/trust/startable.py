"""What a project's files would start, which a person trusts by content, never by name.

    untrusted ──a person agrees──> trusted ──any part changes──> changed (starts nothing)

The digest of a server covers its whole definition and the contents of the project's files that the
definition names. It also depends on the project's path: trust is for this folder only, and not for
a copy of it.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from capd_protos.types import ServerSpec

TRUSTED: Literal["trusted"] = "trusted"
UNTRUSTED: Literal["untrusted"] = "untrusted"
CHANGED: Literal["changed"] = "changed"

Parts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Agreement:
    """What is saved about a server that a person trusts: only digests.

    Its definition may contain a secret, and is not saved.
    """

    name: str
    digest: str
    parts: Parts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Startable:
    """One server that a project's files define, with the files that its start uses."""

    server: ServerSpec
    project: str
    """The project's real path."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Digests of the project's files that the definition names, by path."""
    problem: str = ""
    """Why it cannot be trusted; empty if it can."""

    @property
    def parts(self) -> dict[str, str]:
        """The digest of each part of the server, so that a change can be named."""
        server = self.server
        parts = {
            "command line": [server.command, *server.args],
            "environment": sorted(server.env.items()),
            "url": server.url,
            "headers": sorted(server.headers.items()),
            # All other fields of a definition, including those that later versions of capd add.
            "other settings": msgspec.structs.replace(
                server, command="", args=(), env={}, url="", headers={}
            ),
        }
        digests = {name: _digest(part) for name, part in parts.items()}
        return {**digests, **{f"file {path}": each for path, each in self.files.items()}}

    @property
    def digest(self) -> str:
        """The digest of all parts together, by which the server is trusted."""
        return _digest([self.project, sorted(self.parts.items())])

    def state(self, agreed: Mapping[str, Agreement]) -> Literal["untrusted", "trusted", "changed"]:
        """Return whether the person trusts this server.

        `agreed` has what the person has agreed to in the project, by digest. A server that is not
        trusted is `changed` if the person has agreed to one of its name, otherwise `untrusted`. A
        server with a `problem` is never `trusted`.
        """
        if self.digest in agreed and not self.problem:
            return TRUSTED
        return UNTRUSTED if self._older(agreed) is None else CHANGED

    def changes(self, agreed: Mapping[str, Agreement]) -> list[str]:
        """Return the names of the parts that have changed since a person trusted this server.

        `agreed` has what the person has agreed to in the project, by digest.
        """
        kept = self._older(agreed)
        if kept is None:
            return []
        now = self.parts
        names = dict.fromkeys([*kept.parts, *now])
        return [name for name in names if kept.parts.get(name) != now.get(name)]

    def agreement(self) -> Agreement:
        """Return the record to save when a person trusts this server."""
        return Agreement(self.server.name, self.digest, self.parts)

    def _older(self, agreed: Mapping[str, Agreement]) -> Agreement | None:
        """Return what a person has agreed to for a server of the same name; None if nothing."""
        return next((each for each in agreed.values() if each.name == self.server.name), None)


def agreements_after(
    startables: Iterable[Startable], agreed: Mapping[str, Agreement], digests: Collection[str]
) -> dict[str, Agreement]:
    """Return what a person trusts in a project, by digest, after trusting `digests` as well.

    `startables` are what the project has, `agreed` what the person trusted so far. What the project
    no longer has is removed: if an older state comes back, it must be trusted again.
    """
    return {
        each.digest: each.agreement()
        for each in startables
        if not each.problem and (each.digest in agreed or each.digest in digests)
    }


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
