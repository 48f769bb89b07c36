"""Computes the command line that runs a server in a container.

The server gets:

    nothing of this machine   except the session's project, under the same path, and the secrets
                              that the definition names
    no network                unless the definition asks for one
    nothing that stays        read-only root, `/tmp` in memory, removed when the server ends
    no extra rights           no capabilities, no new privileges, bounds on memory, processes, CPUs

Secrets come through a pipe, which a shell in the container reads before the server starts. So they
are in no command line, in no file, and in nothing that the engine keeps or shows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern
from capd.core.servers.placeholders import Folders, resolved, wanted_keys
from capd_protos.types import ContainerSpec, ServerSpec

EngineKind = Literal["podman", "docker"]
ENGINES: tuple[EngineKind, ...] = ("podman", "docker")
"""The known engines, the preferred first: podman needs no daemon that runs as root."""

SECRETS = "/capd-secrets"
"""The path, in the container, of the pipe with the secrets."""
MOST_SECRET_BYTES = 60_000
"""Less than a pipe holds (64 KiB), so that writing them never blocks."""
SMALLEST_MIB, LARGEST_MIB = 16, 65_536
FEWEST_CPUS, MOST_CPUS = 0.1, 256
MOST_PROCESSES = 512
_TEMPORARY = "/tmp:rw,nosuid,nodev,size=64m,mode=1777"  # noqa: S108  # in the container
_LABEL = "capd.home"
_IMAGE = lazy_pattern(r"(?:[A-Za-z0-9][\w./:-]*@)?sha256:[0-9a-f]{64}")
_VARIABLE = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_READ_SECRETS = (
    'n=\'\n\'; while IFS= read -r l; do [ "$l" = . ] && break; eval "export $l"; done'
    f' <{SECRETS}; unset l n; exec "$@"'
)
_BOUNDS = (
    f"--pids-limit={MOST_PROCESSES}",
    "--ulimit=nofile=4096:4096",
    "--ulimit=nproc=4096:4096",
    "--ulimit=core=0:0",
)
_COMMON = (
    *("--rm", "--interactive", "--init", "--pull=missing", "--read-only"),
    *(f"--tmpfs={_TEMPORARY}", "--cap-drop=all", "--security-opt=no-new-privileges"),
    *("--no-healthcheck", "--log-driver=none", *_BOUNDS),
)
_OWN: dict[EngineKind, tuple[str, ...]] = {
    # By default podman mounts writable folders below a read-only root, passes proxy variables on,
    # and mounts an image's volumes. It also removes its detach keys from standard input, which is
    # the client's JSON.
    "podman": (
        *("--read-only-tmpfs=false", "--http-proxy=false", "--systemd=false"),
        *("--image-volume=ignore", "--detach-keys="),
    ),
    "docker": (),
}
_REMOVE: dict[EngineKind, tuple[str, ...]] = {
    "podman": ("rm", "--force", "--ignore", "--time=0", "--volumes"),
    "docker": ("rm", "--force", "--volumes"),
}


class ContainerRefusedError(CapdError):
    """The server cannot run in a container with this definition, these secrets or this project."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine that was found on this machine."""

    kind: EngineKind
    command: str
    """The path of its program."""
    is_rootless: bool
    user: int
    group: int
    """The ids of the user and the group that run capd."""
    cpus: int = 0
    """The processors of this machine; 0 if the engine cannot bound how many a container uses."""

    @property
    def inside(self) -> str:
        """The value of `--user`. With it, files that the server writes belong to capd's user."""
        return "0:0" if self.is_rootless else f"{self.user}:{self.group}"

    @property
    def description(self) -> str:
        """The engine's name for a person: `podman, rootless`."""
        return f"{self.kind}, rootless" if self.is_rootless else self.kind


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """A server to run in a container, with all placeholders filled in."""

    spec: ContainerSpec
    server: str
    command: str
    """The program to run in the container; empty for the entry point of the image."""
    args: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """The environment variables without a secret."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The environment variables that contain a secret."""
    project: str = ""
    """The path, without symlinks, of the project folder to mount; empty to mount none."""


def wrong_with_container(server: ServerSpec) -> str:
    """Return why `server` cannot run in its container; empty if it can, or if it has none."""
    spec = server.container
    if spec is None:
        return ""
    if server.transport != "stdio":
        return '`runtime = "container"` is for a server without `url`'
    if not _IMAGE.fullmatch(spec.image):
        return (
            "`image` needs its exact digest: NAME@sha256:HEX, or sha256:HEX for an image that is"
            " on this machine (podman images --digests --no-trunc)"
        )
    if not SMALLEST_MIB <= spec.memory_mib <= LARGEST_MIB:
        return f"`memory_mib` is not within {SMALLEST_MIB} to {LARGEST_MIB}"
    if not FEWEST_CPUS <= spec.cpus <= MOST_CPUS:
        return f"`cpus` is not within {FEWEST_CPUS} to {MOST_CPUS}"
    secret = [name for name, value in server.env.items() if _has_key(server, value)]
    keys = wanted_keys(server)
    of_env = {key for name in secret for key in _keys(server, server.env[name])}
    if set(keys) - of_env:
        return "a secret in `args` of a container is shown by its engine: put it into `env`"
    if secret and not server.command:
        return "a container that gets secrets needs `command`, the program that its image runs"
    bad = [name for name in server.env if not _VARIABLE.fullmatch(name)]
    return f"{bad[0]!r} is not a name of a variable" if bad else ""


def container_request(
    server: ServerSpec, values: Mapping[str, str], project: str, mounted: str
) -> ContainerRequest:
    """Return what to run in a container for a session of `project`.

    `values` are the secrets by name. `mounted` is the project's path without symlinks, or empty.

    Raises:
        ContainerRefusedError: see `wrong_with_container`.
        MissingValueError: a placeholder's key has no value.
    """
    wrong = wrong_with_container(server)
    if wrong or server.container is None:
        raise ContainerRefusedError(f"{server.name} cannot run in a container: {wrong}")
    filled = resolved(server, values, Folders(cwd=project, project=project))
    secret = {name for name, value in server.env.items() if _has_key(server, value)}
    return ContainerRequest(
        server.container,
        server.name,
        filled.command,
        filled.args,
        {name: value for name, value in filled.env.items() if name not in secret},
        {name: value for name, value in filled.env.items() if name in secret},
        mounted if server.container.mount != "none" else "",
    )


def secret_lines(request: ContainerRequest) -> bytes:
    """Return the bytes for a container's pipe of secrets: lines for a shell, then one with a dot.

    Each line is `KEY='VALUE'`.

    Raises:
        ContainerRefusedError: a value contains NUL, or all together are too long.
    """
    lines = []
    for name, value in request.secrets.items():
        if "\0" in value:
            raise ContainerRefusedError(f"{request.server}: the value of {name} has a NUL in it")
        # In single quotes a shell takes every character as it is, but for a single quote. The shell
        # reads line by line, and its variable `n` is a newline.
        quoted = value.replace("'", "'\\''").replace("\n", "'\"$n\"'")
        lines.append(f"{name}='{quoted}'\n")
    data = "".join([*lines, ".\n"]).encode("utf-8", "surrogateescape")
    if len(data) > MOST_SECRET_BYTES:
        raise ContainerRefusedError(
            f"{request.server}: its secrets have more than {MOST_SECRET_BYTES} bytes"
        )
    return data


def refuse_project(request: ContainerRequest, kept: Iterable[str]) -> None:
    """Raise if the mounted project contains a folder in `kept`, or is in one.

    `kept` are folders that containers must not see, such as capd's own, without symlinks.

    Raises:
        ContainerRefusedError: the project contains such a folder or is in one.
    """
    if not request.project:
        return
    below = f"{request.project.rstrip('/')}/"
    for folder in kept:
        kept_below = f"{folder.rstrip('/')}/"
        how = "contains" if kept_below.startswith(below) else ""
        how = how or ("is inside of" if below.startswith(kept_below) else "")
        if how:
            raise ContainerRefusedError(
                f"{request.server} runs in a container that mounts its project, and"
                f" {request.project} {how} {folder}: open another folder, or set"
                ' mount = "none"'
            )


def run_words(
    engine: Engine, request: ContainerRequest, name: str, home: str, pipe: str
) -> tuple[str, ...]:
    """Return the argv that runs a container until its server ends.

    `name` is the container's name. `home` is a digest of the daemon's state folder, which becomes a
    label. `pipe` is the path, on this machine, of the pipe with the secrets; empty if there are
    none.
    """
    spec = request.spec
    words = [engine.command, "run", f"--name={name}", f"--label={_LABEL}={home}"]
    words += [*_COMMON, *_OWN[engine.kind]]
    words += [f"--memory={spec.memory_mib}m", f"--memory-swap={spec.memory_mib}m"]
    if engine.cpus:
        # Docker refuses a number that is higher than the machine's.
        words.append(f"--cpus={min(spec.cpus, engine.cpus):g}")
    words += [f"--user={engine.inside}"]
    if not spec.has_network:
        words.append("--network=none")
    if request.project:
        words.append(_mount(request.project, request.project, is_writable=spec.mount == "write"))
    settings = {"HOME": "/tmp", **request.settings}  # noqa: S108  # in the container
    words += [f"--env={key}={value}" for key, value in settings.items()]
    if pipe:
        words.append(_mount(pipe, SECRETS, is_writable=True))
        program = (request.command,) if request.command else ()
        shell = ("-c", _READ_SECRETS, "sh", *program)
        return (*words, "--entrypoint=/bin/sh", spec.image, *shell, *request.args)
    if request.command:
        words.append(f"--entrypoint={request.command}")
    return (*words, spec.image, *request.args)


def removal_words(engine: Engine, names: Iterable[str]) -> tuple[str, ...]:
    """Return the argv that stops and removes these containers, running or not."""
    return (engine.command, *_REMOVE[engine.kind], *names)


def listing_words(engine: Engine, home: str) -> tuple[str, ...]:
    """Return the argv that prints the names of a daemon's containers, also of stopped ones."""
    labelled = f"--filter=label={_LABEL}={home}"
    return (engine.command, "ps", "--all", labelled, "--format={{.Names}}")


def container_name(home: str, life: str, token: str) -> str:
    """Return a container's name.

    `home` is a digest of the daemon's state folder, `life` stands for this run of the daemon, and
    `token` is random.
    """
    return f"capd-{home}-{life}-{token}"


def of_earlier_lives(names: Iterable[str], home: str, life: str) -> list[str]:
    """Return the containers among `names` that earlier runs of the same daemon have left.

    `home` and `life` are those of this daemon, as in `container_name`.
    """
    ours = container_name(home, "", "").rstrip("-") + "-"
    return [each for each in names if each.startswith(ours) and not each.startswith(ours + life)]


def describe(engine: Engine, request: ContainerRequest) -> str:
    """Return how a server is confined, for a person: `container (podman, rootless), no network`."""
    mounted = {"write": ", writes its project"}.get(request.spec.mount, "")
    network = "network" if request.spec.has_network else "no network"
    return f"container ({engine.description}), {network}{mounted if request.project else ''}"


def _mount(source: str, target: str, *, is_writable: bool) -> str:
    fields = ["type=bind", f"source={source}", f"destination={target}"]
    fields += [] if is_writable else ["readonly"]
    # Engines read the value as one line of CSV.
    return "--mount=" + ",".join(
        '"' + each.replace('"', '""') + '"' if set(each) & {",", '"', "\n"} else each
        for each in fields
    )


def _keys(server: ServerSpec, text: str) -> tuple[str, ...]:
    return wanted_keys(ServerSpec(server.name, "stdio", server.tap, env={"": text}))


def _has_key(server: ServerSpec, text: str) -> bool:
    return bool(_keys(server, text))
