"""What a project's files would start, as somebody agrees to it: by content, never by name.

    untrusted ──agreed to──> trusted ──anything of it changes──> changed (starts nothing)

The digest covers the whole definition and the contents of the project's files that it names, and
is bound to the project: an agreement is for this folder, and for nothing that is like it.
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
class Agreed:
    """One saved agreement: digests only, because a definition may contain a secret."""

    name: str
    digest: str
    parts: Parts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Startable:
    """One server of a project, with the files that its start uses."""

    server: ServerSpec
    project: str
    """The project's real path."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Digests of the project's files that the definition names, by path."""
    problem: str = ""
    """Why nobody can agree to it."""

    @property
    def parts(self) -> dict[str, str]:
        """The digests of its parts, so that a change can be named."""
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
        """The digest of all of it."""
        return _digest([self.project, sorted(self.parts.items())])

    def state(self, agreed: Mapping[str, Agreed]) -> Literal["untrusted", "trusted", "changed"]:
        """Return its state according to `agreed`, the agreements for its project by digest."""
        if self.digest in agreed and not self.problem:
            return TRUSTED
        return UNTRUSTED if self._older(agreed) is None else CHANGED

    def changes(self, agreed: Mapping[str, Agreed]) -> list[str]:
        """Return what has changed since it was agreed to."""
        kept = self._older(agreed)
        if kept is None:
            return []
        now = self.parts
        names = dict.fromkeys([*kept.parts, *now])
        return [name for name in names if kept.parts.get(name) != now.get(name)]

    def agreement(self) -> Agreed:
        """Return the agreement to save."""
        return Agreed(self.server.name, self.digest, self.parts)

    def _older(self, agreed: Mapping[str, Agreed]) -> Agreed | None:
        """Return the agreement to a server of this name."""
        return next((each for each in agreed.values() if each.name == self.server.name), None)


def agreed_with(
    startables: Iterable[Startable], agreed: Mapping[str, Agreed], digests: Collection[str]
) -> dict[str, Agreed]:
    """Return the agreements for a project after somebody agrees to `digests` as well.

    Agreements to what the project no longer has are removed: an older state that comes back needs a
    new agreement.
    """
    return {
        each.digest: each.agreement()
        for each in startables
        if not each.problem and (each.digest in agreed or each.digest in digests)
    }


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
