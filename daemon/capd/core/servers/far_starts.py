"""Decides whether a server starts on the far side of a bridge, and what is sent there to start it.

A bridge connects this daemon with clients on another host or in a container: the far side. The
server's definition says where the server of such a client runs:

    where = "host"      on this machine; refused if its command line names the project's folder
    where = "project"   on the far side, in the session's folder; a process there, the bridge's
                        runner, starts it

The far side is not trusted. It gets the command, the arguments and the environment that the
definition names, and nothing else of this machine.

A server of a tap other than the user's own runs on the far side only if the bridge's `starts` names
it, because a tap can be somebody else's. Secrets go there only with the bridge's `secrets = true`,
because they leave this machine. A server that needs the sandbox level `strict` is refused, because
capd has no sandbox on the far side.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from capd.core.errors import CapdError
from capd.core.protocol.generations import joined, members_or_none
from capd.core.servers.launchers import launch, reading
from capd.core.servers.placeholders import Folders, has_folder_placeholder, resolved, wanted_keys
from capd_protos.types import ClientFacts, ServerSpec

NOWHERE = "/"
"""The folder, on the far side, in which a launcher runs that must not read the project's files."""
MOST_ORDER_BYTES = 1 << 20
"""The most bytes of an order: a runner reads no more."""


class FarRefusedError(CapdError):
    """A session over a bridge cannot use the server; the text says what to change."""


@dataclass(frozen=True, slots=True)
class FarPlace:
    """The far side on which a server runs."""

    bridge: str
    folder: str
    """The session's project there; empty if the client has named none."""


@dataclass(frozen=True, slots=True)
class FarOrder:
    """What the runner, the process that starts servers on the far side, is told to start."""

    name: str
    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    reason: str = ""
    """Why the server does not start in the project, for a person; empty if it does."""

    def line(self) -> bytes:
        """Return the order as the line that the runner reads.

        Raises:
            FarRefusedError: the line has more than `MOST_ORDER_BYTES`.
        """
        order = {"argv": self.argv, "env": dict(self.env), "cwd": self.cwd}
        line = msgspec.json.encode(order) + b"\n"
        if len(line) > MOST_ORDER_BYTES:
            raise FarRefusedError(f"{self.name} has a command line of more than 1 MiB")
        return line


def far_place(server: ServerSpec, bridge: str, folder: str) -> FarPlace | None:
    """Return where `server` runs for a session over `bridge`; None for this machine."""
    return FarPlace(bridge, folder) if bridge and server.where == "project" else None


def refuse_here(server: ServerSpec, bridge: str) -> None:
    """Raise if a session over `bridge` cannot have `server` on this machine.

    Raises:
        FarRefusedError: its command line names the project's folder, which is on the far side.
    """
    if bridge and server.where == "host" and has_folder_placeholder(server):
        raise FarRefusedError(
            f"{server.name} needs the project's folder, which is on the other side of the bridge"
            f' {bridge}: to run it there, add where = "project" to its definition'
        )


def far_order(
    server: ServerSpec,
    values: Mapping[str, str],
    place: FarPlace,
    *,
    may_start: bool,
    has_secrets: bool,
    is_strict: bool,
) -> FarOrder:
    """Return the order to start `server` on the far side.

    `values` are the server's secrets, by name. `may_start` says that the user lets the server run
    there, `has_secrets` that secrets may go over this bridge, `is_strict` that the server has to
    run in a strict sandbox.

    Raises:
        FarRefusedError: the server cannot run there; the text says why.
        MissingValueError: a placeholder's key has no value.
    """
    name, bridge = server.name, place.bridge
    if not place.folder:
        raise FarRefusedError(
            f"{name} runs where the project is, and the client over the bridge {bridge} has named"
            " no folder: start the client in the project's folder"
        )
    if not may_start:
        raise FarRefusedError(
            f"{name} of the tap {server.tap} would run on the other side of the bridge {bridge}: to"
            f' permit that, add "{server.tap}/{name}" to starts in [bridges.{bridge}] of'
            " config.toml"
        )
    keys = wanted_keys(server)
    if keys and not has_secrets:
        raise FarRefusedError(
            f"{name} would take {', '.join(keys)} to the other side of the bridge {bridge}, where"
            " others may read it: to permit that, set secrets = true in"
            f" [bridges.{bridge}] of config.toml"
        )
    if is_strict:
        raise FarRefusedError(
            f"{name} has to run in a strict sandbox, and there is none on the other side of the"
            f" bridge {bridge}: lower its sandbox, or leave it out of [bridges.{bridge}]"
        )
    found = reading((server.command, *server.args), server.env)
    if found.project_file:
        raise FarRefusedError(
            f"{name} starts {found.project_file}, a file of the project over there, which nobody"
            " has looked at: give the command's full path"
        )
    filled = resolved(server, values, Folders(cwd=place.folder, project=place.folder))
    argv = (filled.command, *filled.args)
    # Only the far side could say which of these files exist, and the project could change the
    # answer. So all of them count as existing.
    there = sorted(found.names) or (["modules"] if found.reads_modules else [])
    way = launch(argv, found, there, project=place.folder)
    if not way.is_elsewhere:
        return FarOrder(name, argv, filled.env, place.folder)
    reason = f"{found.launcher} would read files of the project, which nobody has looked at"
    return FarOrder(name, way.argv, filled.env, NOWHERE, reason)


def with_roots(client: ClientFacts) -> ClientFacts:
    """Return a client's facts with the capability `roots` added.

    capd itself answers a server's `roots/list`, with the session's folder on the far side.
    """
    offered = members_or_none(client.capabilities)
    offered = {**offered, "roots": msgspec.Raw(b"{}")}
    return msgspec.structs.replace(client, capabilities=joined(offered))
