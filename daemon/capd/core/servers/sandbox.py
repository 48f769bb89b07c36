"""How much of the machine a server sees: levels, and what each of them means (80 section 4.3).

    off      as if its user had started it, under the guard
    guard    the same, and what is masked is not there
    strict   system read-only, its project and a cache of its own to write in, no home, and
             no network unless it was agreed to

What cannot be enforced is refused, and never done by half: whoever asked for a level would rely
on it. The one exception is capd's own folders under `guard`, which are hidden where that costs an
ordinary server nothing, and shown as visible elsewhere.
"""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from capd.core.errors import CapdError

Level = Literal["off", "guard", "strict"]
Means = Literal["bwrap", "landlock", "none"]

MASKS: dict[str, tuple[str, ...]] = {
    "ssh": (".ssh",),
    "gnupg": (".gnupg",),
    "aws": (".aws",),
    "azure": (".azure",),
    "gcloud": (".config/gcloud",),
    "kube": (".kube",),
    "docker": (".docker",),
    "netrc": (".netrc",),
    "npmrc": (".npmrc",),
    "pypirc": (".pypirc",),
    "browsers": (
        ".mozilla",
        ".config/google-chrome",
        ".config/chromium",
        ".config/BraveSoftware",
        ".config/microsoft-edge",
    ),
    "keyrings": (".local/share/keyrings", ".local/share/kwalletd"),
}
"""What may be masked, by name, as paths below the home folder."""

_NEEDED_OF_RUN = (
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/nscd",
    "/run/current-system",
    "/run/wrappers",
)
"""Of /run, which has every socket of the session: what names and programs are found by."""


_TEMPORARY = "/tmp"  # noqa: S108  # nothing is written there: it is what others write that is hidden
_NO_BWRAP = "bwrap is not there or may make no namespaces: install bubblewrap"


class SandboxMissingError(CapdError):
    """The machine cannot do what was asked for; the text says what would help."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a server runs; every path is absolute."""

    home: str
    cwd: str
    command: str
    """The file that is run."""
    project: str = ""
    """Its project's folder; empty where it has none."""
    cache: str = ""
    """A folder of its own, for `strict`."""
    path: tuple[str, ...] = ()
    """The folders of its PATH."""
    tops: tuple[str, ...] = ()
    """What is in `/`."""


@dataclass(frozen=True, slots=True)
class Masked:
    """What is to be hidden, of what there is: a mount needs something to stand on."""

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine can do, as tried."""

    bwrap: str = ""
    """The program, where it works; empty elsewhere."""
    landlock: tuple[str, ...] = ()
    """The launcher's argv, where the kernel has Landlock."""
    keeps_owners: bool = False
    """Whether files keep their owners inside. Without privilege root's seem to be nobody's, and
    ssh then refuses the machine's own configuration."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for a server."""

    level: Level = "guard"
    masks: tuple[str, ...] = ()
    """Names of `MASKS`."""
    has_network: bool = False
    """For `strict`: whether it may connect anywhere."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """How a server is started, and what that comes to."""

    means: Means
    told: str
    """The level for a person, as `capd status` shows it."""
    prefix: tuple[str, ...] = ()
    """What stands before the server's own argv."""
    environment: dict[str, str] = field(default_factory=dict)
    """What its environment has beside its own."""


def masked_paths(wish: Wish, home: str, own: Sequence[str]) -> list[str]:
    """Return what a wish hides, whether it is there or not; `own` are capd's own folders.

    Raises:
        SandboxMissingError: a mask has no such name.
    """
    if unknown := [name for name in wish.masks if name not in MASKS]:
        raise SandboxMissingError(f"there is no mask {unknown[0]!r}: one of {', '.join(MASKS)}")
    below = [posixpath.join(home, each) for name in wish.masks for each in MASKS[name]]
    return [*own, *below]


def confined(wish: Wish, machine: Machine, where: Surroundings, masked: Masked) -> Confinement:
    """Return how a server is started.

    Raises:
        SandboxMissingError: what was asked for cannot be done here.
    """
    if wish.level == "off":
        return Confinement("none", "off")
    if wish.level == "strict":
        return _strict(wish, machine, where)
    if wish.masks:
        if not machine.bwrap:
            raise SandboxMissingError(
                f"{', '.join(wish.masks)} cannot be masked: {_NO_BWRAP}, or take the masks away"
            )
        told = f"guard, without {', '.join(('capd', *wish.masks))}"
        return Confinement("bwrap", told, _guard(machine, where, masked))
    if machine.bwrap and machine.keeps_owners:
        return Confinement("bwrap", "guard, without capd", _guard(machine, where, masked))
    return Confinement("none", "guard")


def _guard(machine: Machine, where: Surroundings, masked: Masked) -> tuple[str, ...]:
    arguments = [machine.bwrap, "--dev-bind", "/", "/", "--die-with-parent"]
    for folder in masked.folders:
        arguments += ["--tmpfs", folder]
    for file in masked.files:
        arguments += ["--ro-bind", "/dev/null", file]
    return (*arguments, "--chdir", where.cwd, "--")


def _strict(wish: Wish, machine: Machine, where: Surroundings) -> Confinement:
    told = "strict" if wish.has_network else "strict, no network"
    environment = {}
    if where.cache:
        # Package runners write below the home folder, which is not there.
        environment = {
            "XDG_CACHE_HOME": where.cache,
            "UV_CACHE_DIR": posixpath.join(where.cache, "uv"),
            "npm_config_cache": posixpath.join(where.cache, "npm"),
            "TMPDIR": posixpath.join(where.cache, "tmp"),
        }
    if machine.bwrap:
        return Confinement("bwrap", told, _bwrap(wish, machine, where), environment)
    if machine.landlock:
        return Confinement(
            "landlock", f"{told} (Landlock)", _landlock(wish, machine, where), environment
        )
    raise SandboxMissingError(
        f"it is to run in the sandbox, and {_NO_BWRAP}, or a kernel with Landlock"
    )


def _bwrap(wish: Wish, machine: Machine, where: Surroundings) -> tuple[str, ...]:
    arguments = [
        *(machine.bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *("--tmpfs", _TEMPORARY, "--tmpfs", "/run", "--tmpfs", where.home),
        *("--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"),
    ]
    if not wish.has_network:
        arguments.append("--unshare-net")
    for folder in (*_NEEDED_OF_RUN, *tool_folders(where)):
        arguments += ["--ro-bind-try", folder, folder]
    for folder in filter(None, (where.cache, where.project)):
        arguments += ["--bind", folder, folder]
    return (*arguments, "--chdir", where.cwd, "--")


def _landlock(wish: Wish, machine: Machine, where: Surroundings) -> tuple[str, ...]:
    hidden = {"/" + where.home.strip("/").partition("/")[0], "/run", _TEMPORARY, "/dev"}
    system = [top for top in where.tops if top not in hidden]
    writable = filter(None, ("/dev", where.cache, where.project))
    return (
        *machine.landlock,
        *(f"--read={each}" for each in (*system, *_NEEDED_OF_RUN, *tool_folders(where))),
        *(f"--write={each}" for each in writable),
        *(() if wish.has_network else ("--no-network",)),
        "--",
    )


def tool_folders(where: Surroundings) -> list[str]:
    """Return what of the home folder its command and the programs on its PATH are installed in."""
    home = where.home
    local = posixpath.join(home, ".local")
    found: list[str] = []
    for folder in (posixpath.dirname(where.command), *where.path):
        if not _is_below(folder, home) or folder == home:
            continue
        parent = posixpath.dirname(folder)
        if parent == local:
            shared = ("lib", "share/uv", "share/pipx")
            found += [folder, *(posixpath.join(local, each) for each in shared)]
        elif posixpath.basename(folder) == "bin" and parent != home:
            found.append(parent)
        else:
            found.append(folder)
    return list(dict.fromkeys(found))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
