"""Computes how a server is started in its sandbox, from its level and the machine's features.

    off      as if its user had started it; only its guard, a parent process, is added
    guard    the same, but masked paths and capd's own folders are hidden, and the server can
             neither read nor signal processes other than its own
    strict   the system is read-only; the server can write to its project and a cache of its own,
             sees no home, and has no network unless the user allowed it

A mask is a set of paths with credentials, such as `ssh` for `~/.ssh`. If the user has asked for
`strict` or for masks, and the machine cannot enforce them, the server does not start. What `guard`
does without masks is done as far as the machine supports it, and the description of the level says
what is in force.
"""

import posixpath
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from capd.core.errors import CapdError
from capd.core.folders import is_at_or_below
from capd.core.servers.own_folders import PACKAGES, FolderCover
from capd_protos.types import SandboxLevel

Level = SandboxLevel
Means = Literal["bwrap", "landlock", "none"]
MaskName = Literal[
    "capd",
    "ssh",
    "gnupg",
    "aws",
    "azure",
    "gcloud",
    "kube",
    "docker",
    "netrc",
    "npmrc",
    "pypirc",
    "browsers",
    "keyrings",
]

MASKS: dict[MaskName, tuple[str, ...]] = {
    # Not below the home: capd's folders are where this daemon has them.
    "capd": (),
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
"""The paths that each mask hides, relative to the home folder."""
OWN: MaskName = "capd"

_NEEDED_OF_RUN = (
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/nscd",
    "/run/current-system",
    "/run/wrappers",
)
"""The parts of /run that `strict` shows, for name resolution and programs. The rest is hidden: it
has every socket of the user's session."""


_VIRTUAL_ENVIRONMENTS = (".venv", "venv", ".env", "env", ".virtualenv")
_VERSIONS = (
    *(".nvm", ".pyenv/versions", ".rbenv/versions", ".nodenv/versions", ".asdf/installs"),
    *(".local/share/fnm", ".local/share/mise/installs", ".local/share/uv/python"),
    *(".local/share/uv/tools", ".local/share/pipx/venvs", ".local/pipx/venvs"),
    *(".rustup/toolchains", ".volta/tools", ".sdkman/candidates", ".jdks", ".virtualenvs"),
)
"""Folders below the home that contain one installation each, and nothing else."""
_BESIDE_BIN = ("lib", "lib64", "libexec", "share", "pyvenv.cfg")
"""The entries beside a folder `bin` that its programs need, if no other rule applies."""
_RUST = (".rustup/toolchains", ".rustup/settings.toml")
_WITH_KEYS = ".dotnet"
"""A folder on PATH that contains private keys beside the program."""
_INSTALLATIONS: dict[str, tuple[str, ...]] = {
    ".local/bin": (
        ".local/lib",
        ".local/share/uv/tools",
        ".local/share/uv/python",
        ".local/share/pipx/venvs",
        ".local/share/pipx/shared",
        ".local/share/pipx/py",
        ".local/share/mise/installs",
    ),
    ".cargo/bin": _RUST,
    ".pyenv/shims": (".pyenv/versions", ".pyenv/libexec", ".pyenv/bin", ".pyenv/version"),
    ".pyenv/bin": (".pyenv/versions", ".pyenv/libexec", ".pyenv/version"),
    ".asdf/shims": (".asdf/installs", ".asdf/bin", ".asdf/lib", ".asdf/plugins", ".tool-versions"),
    ".asdf/bin": (".asdf/installs", ".asdf/lib", ".asdf/plugins"),
    ".local/share/mise/shims": (".local/share/mise/installs", ".local/bin/mise"),
    ".volta/bin": (".volta/tools",),
    ".bun/bin": (".bun/install/global",),
    ".deno/bin": (),
    "go/bin": (),
    _WITH_KEYS: (*(f".dotnet/{each}" for each in ("dotnet", "host", "shared", "sdk", "packs")),),
}
"""For each folder of programs below the home: what else below the home these programs need."""
_HELD = {"hidden": "capd hidden", "apart": "apart"}
PRIVILEGED = frozenset(
    {
        *(
            "podman",
            "podman-remote",
            "buildah",
            "nerdctl",
            "distrobox",
            "distrobox-enter",
            "toolbox",
        ),
        *("apptainer", "singularity", "firejail", "flatpak", "snap", "newuidmap", "rootlesskit"),
        *("sudo", "doas", "su", "pkexec", "runuser", "nsenter", "unshare", "bwrap", "chroot"),
        *("fusermount", "fusermount3", "sshfs", "mount", "ping", "traceroute", "mtr", "dumpcap"),
        *("gdb", "lldb", "strace", "ltrace", "perf", "rr", "py-spy", "bpftrace"),
    }
)
"""Programs that a confined process cannot run: they are setuid or start setuid programs, mount file
systems, or trace other processes."""

_NOTHING = FolderCover()
_TEMPORARY = "/tmp"  # noqa: S108  # capd writes nothing there: `strict` hides it
_NO_BWRAP = "bwrap is not there or may make no namespaces: install bubblewrap"
_OR_LESS = "or let it have less of it: [sandbox] in config.toml"


class SandboxMissingError(CapdError):
    """The machine cannot enforce the requested sandbox; the text says what would help."""


@dataclass(frozen=True, slots=True)
class SandboxPaths:
    """The paths that a server's sandbox depends on; all are absolute."""

    home: str
    cwd: str
    command: str
    """The file that is run."""
    project: str = ""
    """The folder of the server's project; empty if it has none."""
    cache: str = ""
    """The server's own cache folder, for `strict`; empty for none."""
    path: tuple[str, ...] = ()
    """The folders of the server's PATH."""
    tops: tuple[str, ...] = ()
    """The entries of the root folder `/`, as absolute paths."""
    cover: FolderCover = _NOTHING
    """Which of capd's folders are hidden at `guard`, and which parts of them stay visible."""
    ssh_files: tuple[str, ...] = ()
    """Files owned by root that the system's `ssh` configuration includes."""
    takes_privilege: str = ""
    """The name of the server's program if it is one of `PRIVILEGED`, otherwise empty."""


@dataclass(frozen=True, slots=True)
class Masked:
    """Paths to hide from a server. They exist, because a mount needs an existing target."""

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxFeatures:
    """The sandboxing features of the machine, as tested."""

    bwrap: str = ""
    """The path of `bwrap` (bubblewrap) if it works here, otherwise empty."""
    landlock: tuple[str, ...] = ()
    """The argv that starts a program under Landlock, if the kernel has it; otherwise empty."""
    can_hide: bool = False
    """Whether a process may create nested mount namespaces."""
    can_separate: bool = False
    """Whether Landlock can keep a process from signalling others (scopes, Linux 6.12)."""
    is_bwrap_privileged: bool = False
    """Whether `bwrap` is a setuid program. A process with `no_new_privs` cannot use it then."""


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """The sandbox that a server should run in."""

    level: Level = "guard"
    masks: tuple[MaskName, ...] = ()
    has_network: bool = False
    """For `strict`: whether it may use the network."""
    is_covered: bool = True
    """For `guard`: whether to hide capd's own folders, if the machine supports it."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """How to start a server in its sandbox."""

    means: Means
    description: str
    """The level for a person, as `capd status` shows it."""
    prefix: tuple[str, ...] = ()
    """The words to put before the server's own argv."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables to add to the server's own."""
    guard_options: tuple[str, ...] = ()
    """Options with which the guard confines itself, and so every process below it."""
    aside: str = ""
    """Why this server's sandbox is weaker than usual, for a person; empty if it is not."""

    def description_with(self, held: Collection[str]) -> str:
        """Return the sandbox of a server for a person.

        `held` is what the server's guard enforces: `hidden` (capd's folders are hidden) and
        `apart` (processes outside of the sandbox cannot be signalled).
        """
        words = [each for name, each in _HELD.items() if name in held]
        text = ", ".join([self.description, *words])
        return f"{text} ({self.aside})" if self.aside else text


def masked_paths(sandbox_request: SandboxRequest, home: str, own: Sequence[str]) -> list[str]:
    """Return the paths to hide from a server, existing or not.

    The level `strict` hides the paths of all masks. `own` are capd's own folders, which the mask
    `capd` hides.
    """
    # `strict` shows the project, which may be the home folder itself, with credentials in it.
    names = {"guard": sandbox_request.masks, "strict": tuple(MASKS), "off": ()}[
        sandbox_request.level
    ]
    below = [posixpath.join(home, each) for name in names for each in MASKS[name]]
    return [*(own if OWN in names else ()), *below]


def confined(
    sandbox_request: SandboxRequest, machine: SandboxFeatures, where: SandboxPaths, masked: Masked
) -> Confinement:
    """Return how to start a server in the sandbox that was asked for.

    Raises:
        SandboxMissingError: the machine cannot enforce the requested sandbox.
    """
    if sandbox_request.level == "off":
        return Confinement("none", "off")
    if sandbox_request.level == "strict":
        return _strict(sandbox_request, machine, where, masked)
    options, aside = _guard_options(sandbox_request, machine, where)
    if not sandbox_request.masks:
        return Confinement("none", "guard", guard_options=options, aside=aside)
    names = ", ".join(sandbox_request.masks)
    if not machine.bwrap:
        raise SandboxMissingError(
            f"{names} cannot be masked: {_NO_BWRAP}, or take the masks away: [sandbox] in"
            " config.toml"
        )
    if _hidden_by(where.command, masked):
        raise SandboxMissingError(
            f"its own command, {where.command}, is in what is masked ({names}): move it, or take"
            " the mask away: [sandbox] in config.toml"
        )
    prefix = _guard(machine, where, masked)
    description = f"guard, without {names}"
    return Confinement("bwrap", description, prefix, guard_options=options, aside=aside)


def _guard_options(
    sandbox_request: SandboxRequest, machine: SandboxFeatures, where: SandboxPaths
) -> tuple[tuple[str, ...], str]:
    """Return the guard's options for a sandbox, and why there are fewer than usual.

    The second value is empty if nothing is missing.
    """
    if where.takes_privilege:
        return (), f"{where.takes_privilege} takes privileges that a confined program has not"
    options: list[str] = []
    # With the mask `capd`, bubblewrap hides these folders, so the guard need not.
    if (
        machine.can_hide
        and sandbox_request.is_covered
        and OWN not in sandbox_request.masks
        and where.cover.hidden
    ):
        options += [f"--hide={each}" for each in where.cover.hidden]
        options += [f"--show={each}" for each in where.cover.shown]
        options += [f"--read-only={each}" for each in where.cover.read_only]
        options += [f"--own={each}" for each in where.ssh_files]
    if machine.can_separate:
        options.append("--apart")
    aside = f"it lives in {', '.join(where.cover.left)}" if where.cover.left else ""
    return tuple(options), aside


def _guard(machine: SandboxFeatures, where: SandboxPaths, masked: Masked) -> tuple[str, ...]:
    mounts = [_Mount("--dev-bind", "/"), *_masks(masked)]
    if where.cwd not in masked.folders and _hidden_by(where.cwd, masked):
        mounts.append(_Mount("--bind", where.cwd))
    return (
        *(machine.bwrap, *_arguments(mounts), "--die-with-parent"),
        *("--chdir", where.cwd, "--"),
    )


def _hidden_by(path: str, masked: Masked) -> bool:
    return any(is_at_or_below(path, each) for each in (*masked.folders, *masked.files))


@dataclass(frozen=True, slots=True)
class _Mount:
    """One mount of a sandbox, over or inside an existing path."""

    option: str
    path: str
    source: str = ""
    """What is mounted there, if it is not the path itself."""

    @property
    def is_hiding(self) -> bool:
        return self.option == "--tmpfs"


def _masks(masked: Masked) -> list[_Mount]:
    return [
        *(_Mount("--tmpfs", folder) for folder in masked.folders),
        *(_Mount("--ro-bind", file, "/dev/null") for file in masked.files),
    ]


def _arguments(mounts: Iterable[_Mount]) -> list[str]:
    """Return the arguments for the mounts, parents first: a mount covers everything below it."""
    found: list[str] = []
    for mount in sorted(mounts, key=lambda each: len(each.path.rstrip("/").split("/"))):
        if mount.is_hiding:
            found += [mount.option, mount.path]
        else:
            found += [mount.option, mount.source or mount.path, mount.path]
    return found


def _is_shown(path: str, mounts: Iterable[_Mount]) -> bool:
    """Tell whether `path` is visible in a sandbox with these mounts.

    The last mount at or above the path decides.
    """
    # Of two mounts at one place the later one counts, and `max` takes the first of equals.
    above = reversed([each for each in mounts if is_at_or_below(path, each.path)])
    deepest = max(above, key=lambda each: len(each.path.rstrip("/")), default=None)
    return deepest is None or not deepest.is_hiding


_NARROW = ("--narrow",)
"""The option for the guard of a `strict` server: also forbid what namespaces and Landlock allow."""


def _strict(
    sandbox_request: SandboxRequest, machine: SandboxFeatures, where: SandboxPaths, masked: Masked
) -> Confinement:
    description = "strict" if sandbox_request.has_network else "strict, no network"
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
        prefix = _bwrap(sandbox_request, machine, where, masked)
        options = () if machine.is_bwrap_privileged else _NARROW
        return Confinement("bwrap", description, prefix, environment, options)
    if machine.landlock:
        return Confinement(
            "landlock",
            f"{description} (Landlock)",
            _landlock(sandbox_request, machine, where, masked),
            environment,
            _NARROW,
        )
    raise SandboxMissingError(
        f"it is to run in the sandbox, and {_NO_BWRAP}, or a kernel with Landlock, {_OR_LESS}"
    )


def _bwrap(
    sandbox_request: SandboxRequest, machine: SandboxFeatures, where: SandboxPaths, masked: Masked
) -> tuple[str, ...]:
    mounts = [
        _Mount("--ro-bind", "/"),
        *(_Mount("--tmpfs", each) for each in (_TEMPORARY, "/run", where.home)),
        *(_Mount("--ro-bind-try", each) for each in (*_NEEDED_OF_RUN, *tool_folders(where))),
        *(_Mount("--ro-bind-try", each) for each in _packages(where)),
        *(_Mount("--bind", each) for each in _writable(where) if each != where.cache),
    ]
    mounts += [each for each in _masks(masked) if _is_shown(each.path, mounts)]
    # Last, because this folder is inside capd's own cache.
    mounts += [_Mount("--bind", where.cache)] if where.cache else []
    return (
        *(machine.bwrap, *_arguments(mounts), "--dev", "/dev", "--proc", "/proc"),
        *("--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"),
        *(() if sandbox_request.has_network else ("--unshare-net",)),
        *("--chdir", where.cwd, "--"),
    )


def _packages(where: SandboxPaths) -> list[str]:
    """Return the folders of packages that the server starts from.

    capd has fetched and checked these packages.
    """
    kept = where.cover.read_only
    return [each for each in kept if posixpath.basename(posixpath.dirname(each)) == PACKAGES]


def _writable(where: SandboxPaths) -> list[str]:
    return list(dict.fromkeys(filter(None, (where.cache, where.project, where.cwd))))


def _landlock(
    sandbox_request: SandboxRequest, machine: SandboxFeatures, where: SandboxPaths, masked: Masked
) -> tuple[str, ...]:
    hidden = {"/" + where.home.strip("/").partition("/")[0], "/run", _TEMPORARY, "/dev"}
    system = [top for top in where.tops if top not in hidden]
    readable = (*system, *_NEEDED_OF_RUN, *tool_folders(where), *_packages(where))
    writable = ("/dev", *_writable(where))
    for path in (*masked.folders, *masked.files):
        if any(is_at_or_below(path, each) for each in (*readable, *writable)):
            raise SandboxMissingError(
                f"Landlock alone cannot hide {path}, which is below what it may read: install"
                f" bubblewrap, {_OR_LESS}"
            )
    return (
        *machine.landlock,
        *(f"--read={each}" for each in readable),
        *(f"--write={each}" for each in writable),
        *(() if sandbox_request.has_network else ("--no-network",)),
        "--",
    )


def tool_folders(where: SandboxPaths) -> list[str]:
    """Return the folders below the home or /tmp that a `strict` server needs to find its programs.

    They are the folders of its command and of its PATH, with what these programs need beside them.
    The parent of such a folder is shown as a whole only if it is one installation, such as a
    virtual environment. In other parents credentials may be beside `bin`, as in `~/.cargo` and
    `~/.fly`.
    """
    hidden = (where.home, _TEMPORARY)
    found: list[str] = []
    for folder in (posixpath.dirname(where.command), *where.path):
        if folder in hidden or not any(is_at_or_below(folder, each) for each in hidden):
            continue
        found += _parts_of_installation(folder, where.home)
        if folder != posixpath.join(where.home, _WITH_KEYS):
            found.append(folder)
    return list(dict.fromkeys(found))


def _parts_of_installation(folder: str, home: str) -> list[str]:
    """Return what the programs in `folder` need from the folders beside it."""
    for place, parts in _INSTALLATIONS.items():
        if is_at_or_below(folder, posixpath.join(home, place)):
            return [posixpath.join(home, each) for each in parts]
    prefix = posixpath.dirname(folder)
    if posixpath.basename(folder) != "bin" or prefix in {home, _TEMPORARY}:
        return []
    if posixpath.basename(prefix) in _VIRTUAL_ENVIRONMENTS:
        return [prefix]
    if any(is_at_or_below(prefix, posixpath.join(home, each)) for each in _VERSIONS):
        return [prefix]
    return [posixpath.join(prefix, each) for each in _BESIDE_BIN]
