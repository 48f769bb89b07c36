"""The user's configuration: `config.toml`, then `CAPD_*`, merged key by key.

A key that is absent from a nearer layer resets nothing. A file that cannot be used leaves the
defaults, and says so: a daemon with a wrong setting is of more use than none (70-operation).
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class ServersTable(msgspec.Struct, frozen=True):
    """`[servers]`."""

    linger: Seconds = 30.0
    """How long an instance that nobody holds is kept."""
    longest_call: Seconds = 0.0
    """After how long a call is given up whatever progress it reports; 0 for never."""


class SessionsTable(msgspec.Struct, frozen=True):
    """`[sessions]`."""

    capabilities: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """How many capabilities with tools may be on at once."""


class EmbedderTable(msgspec.Struct, frozen=True):
    """`[embedder]`."""

    placement: Literal["process", "daemon"] = "process"
    """Its own process, which gives all memory back when idle, or the daemon's."""
    idle: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 900.0
    """Seconds without a text after which the model is dropped."""


class RoutingTable(msgspec.Struct, frozen=True):
    """`[routing]`: what may count beside the message (docs/routing.md, "Priors")."""

    files: bool = True
    """Names in the project's root, and key names of its `.env`."""
    session: bool = False
    """What the session had on before."""
    project: bool = False
    """What sessions of the project had on before."""

    @property
    def priors(self) -> tuple[str, ...]:
        """Return the names of those that are on."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name))


class HttpTable(msgspec.Struct, frozen=True):
    """`[listen_http]`: the front for clients that speak only HTTP (docs/http.md)."""

    enabled: bool = False
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 8377
    """On 127.0.0.1, which cannot be changed."""
    names: Literal["prefixed", "bare"] = "prefixed"
    """`bare`: servers' own names of tools and prompts, and nothing of capd's own."""
    capabilities: tuple[str, ...] = ()
    """What its sessions have on from the start, as `name` or `tap/name`."""
    project: str = ""
    """The project of its sessions: requests of HTTP name none."""
    poll_after: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """Seconds after which the stream of an answer is closed, once, and its client is to come back
    for the rest; 0 keeps it open."""


class Configuration(msgspec.Struct, frozen=True):
    """Everything that can be set."""

    servers: ServersTable = ServersTable()
    sessions: SessionsTable = SessionsTable()
    embedder: EmbedderTable = EmbedderTable()
    listen_http: HttpTable = HttpTable()
    routing: RoutingTable = RoutingTable()


# Each variable with the key that it sets.
VARIABLES = {
    "CAPD_LINGER": ("servers", "linger"),
    "CAPD_LONGEST_CALL": ("servers", "longest_call"),
    "CAPD_CAPABILITIES": ("sessions", "capabilities"),
    "CAPD_EMBEDDER": ("embedder", "placement"),
    "CAPD_EMBEDDER_IDLE": ("embedder", "idle"),
    "CAPD_PRIOR_FILES": ("routing", "files"),
    "CAPD_PRIOR_SESSION": ("routing", "session"),
    "CAPD_PRIOR_PROJECT": ("routing", "project"),
}


def load_configuration(
    file: Path, environment: Mapping[str, str]
) -> tuple[Configuration, list[str]]:
    """Return the configuration, and a line for each layer that could not be used."""
    problems: list[str] = []
    tables: dict[str, Any] = {}
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        msgspec.convert(tables, Configuration)
    except FileNotFoundError:
        pass
    except RecursionError:
        problems.append(f"{file} is not used: nested too deeply")
        tables = {}
    # tomllib raises a plain ValueError as well, for a number of five thousand digits.
    except (OSError, ValueError, msgspec.ValidationError) as error:
        problems.append(f"{file} is not used: {error}")
        tables = {}
    for variable, (table, key) in VARIABLES.items():
        if variable not in environment:
            continue
        layered = {**tables, table: {**tables.get(table, {}), key: environment[variable]}}
        try:
            msgspec.convert(layered, Configuration, strict=False)
        except msgspec.ValidationError as error:
            problems.append(f"{variable} is not used: {error}")
        else:
            tables = layered
    return msgspec.convert(tables, Configuration, strict=False), problems
