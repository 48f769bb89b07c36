"""Sandbox levels: what each consists of, and that none is applied in part."""

import posixpath
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.own_folders import FolderCover
from capd.core.servers.sandbox import (
    MASKS,
    Confinement,
    Masked,
    SandboxFeatures,
    SandboxMissingError,
    SandboxPaths,
    SandboxRequest,
    confined,
    masked_paths,
    tool_folders,
)

HOME = "/home/ann"
WHERE = SandboxPaths(
    home=HOME,
    cwd=f"{HOME}/code/shop",
    command="/usr/bin/node",
    project=f"{HOME}/code/shop",
    cache="/var/cache/capd/shop",
    path=("/usr/bin", f"{HOME}/.nvm/v20/bin"),
    tops=("/bin", "/dev", "/etc", "/home", "/run", "/tmp", "/usr"),
)
MASKED = Masked((f"{HOME}/.config/capd",), (f"{HOME}/.netrc",))
BESIDE = ("lib", "lib64", "libexec", "share", "pyvenv.cfg")
DOTNET = ("dotnet", "host", "shared", "sdk", "packs")
RUST = (".rustup/toolchains", ".rustup/settings.toml")
BWRAP = SandboxFeatures("/usr/bin/bwrap")
LANDLOCK = SandboxFeatures(landlock=("python", "launcher.py"))


def pairs(prefix: Sequence[str], option: str) -> list[str]:
    return [prefix[n + 1] for n, each in enumerate(prefix) if each == option]


def test_off_and_guard_without_masks_start_the_server_as_it_is() -> None:
    found = [
        confined(SandboxRequest(level), machine, WHERE, MASKED)
        for level in ("off", "guard")
        for machine in (SandboxFeatures(), BWRAP, LANDLOCK)
    ]

    assert found == [Confinement("none", "off")] * 3 + [Confinement("none", "guard")] * 3


APART = SandboxFeatures(can_separate=True)
FREE = SandboxFeatures(can_hide=True, can_separate=True)
COVER = FolderCover(("/own/config", "/own/state"), ("/own/state/shared",), ("/own/data/bin",))
HIDING = (
    *("--hide=/own/config", "--hide=/own/state", "--show=/own/state/shared"),
    *("--read-only=/own/data/bin", "--own=/etc/ssh/ssh_config.d/x.conf"),
)


@pytest.mark.parametrize(
    ("sandbox_request", "machine", "options"),
    [
        (SandboxRequest(), SandboxFeatures(), ()),
        (SandboxRequest(), BWRAP, ()),
        (SandboxRequest(), LANDLOCK, ()),
        (SandboxRequest(), APART, ("--apart",)),
        (SandboxRequest(), SandboxFeatures(can_hide=True), HIDING),
        (SandboxRequest(), FREE, (*HIDING, "--apart")),
        # Who says that nothing is masked gets no mount namespace.
        (SandboxRequest(is_covered=False), FREE, ("--apart",)),
        (SandboxRequest("off"), FREE, ()),
    ],
)
def test_guard_has_what_the_machine_can_do(
    sandbox_request: SandboxRequest, machine: SandboxFeatures, options: tuple[str, ...]
) -> None:
    where = replace(WHERE, cover=COVER, ssh_files=("/etc/ssh/ssh_config.d/x.conf",))

    found = confined(sandbox_request, machine, where, Masked())

    assert found == Confinement("none", sandbox_request.level, guard_options=options)


def test_masks_come_with_what_guard_does_by_itself() -> None:
    machine = replace(FREE, bwrap="/usr/bin/bwrap")
    where = replace(WHERE, cover=FolderCover(("/own",)))

    found = [
        confined(SandboxRequest(masks=(name,)), machine, where, Masked()).guard_options
        for name in ("ssh", "capd")
    ]

    assert found == [("--hide=/own", "--apart"), ("--apart",)]


def test_a_program_that_takes_privileges_is_left_as_it_is_and_that_is_said() -> None:
    where = replace(WHERE, cover=COVER, takes_privilege="podman")

    found = confined(SandboxRequest(), FREE, where, Masked())

    assert found.guard_options == ()
    assert found.description_with(()) == (
        "guard (podman takes privileges that a confined program has not)"
    )


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ((), "guard"),
        (("apart",), "guard, apart"),
        (("hidden", "apart"), "guard, capd hidden, apart"),
        (("whatever",), "guard"),
    ],
)
def test_the_level_says_what_the_guard_says_that_holds(held: tuple[str, ...], told: str) -> None:
    assert Confinement("none", "guard").description_with(held) == told


def test_the_level_says_what_cannot_be_hidden() -> None:
    where = replace(WHERE, cover=FolderCover(("/own/state",), left=("/own/config",)))

    found = confined(SandboxRequest(), FREE, where, Masked())

    assert found.description_with(["hidden"]) == "guard, capd hidden (it lives in /own/config)"


def test_guard_hides_what_is_masked_and_shows_the_servers_own_folder_in_it() -> None:
    state = f"{HOME}/.local/state/capd"
    where = replace(WHERE, cwd=f"{state}/shared")

    found = confined(
        SandboxRequest(masks=("capd", "netrc")), BWRAP, where, Masked((state,), (f"{HOME}/.netrc",))
    )

    assert found == Confinement(
        "bwrap",
        "guard, without capd, netrc",
        (
            *("/usr/bin/bwrap", "--dev-bind", "/", "/"),
            *("--ro-bind", "/dev/null", f"{HOME}/.netrc", "--tmpfs", state),
            *("--bind", f"{state}/shared", f"{state}/shared", "--die-with-parent"),
            *("--chdir", f"{state}/shared", "--"),
        ),
    )


def test_a_command_in_what_is_masked_is_refused_and_named() -> None:
    where = replace(WHERE, command=f"{HOME}/.config/capd/run.sh")

    with pytest.raises(SandboxMissingError, match=r"its own command, .*/run\.sh, is in"):
        confined(SandboxRequest(masks=("capd",)), BWRAP, where, MASKED)


def test_strict_under_bwrap_shows_the_project_and_the_tools_and_no_home() -> None:
    found = confined(SandboxRequest("strict"), BWRAP, WHERE, MASKED)

    assert (found.means, found.description) == ("bwrap", "strict, no network")
    assert pairs(found.prefix, "--tmpfs") == ["/tmp", "/run", HOME]
    assert pairs(found.prefix, "--bind") == [f"{HOME}/code/shop", "/var/cache/capd/shop"]
    assert f"{HOME}/.nvm/v20" in pairs(found.prefix, "--ro-bind-try")
    assert "--unshare-net" in found.prefix
    assert found.environment["npm_config_cache"] == "/var/cache/capd/shop/npm"


def test_strict_shows_a_package_that_it_is_started_from_and_no_other_part_of_capds() -> None:
    package = f"{HOME}/.local/share/capd/packages/{'a' * 64}"
    kept = FolderCover(read_only=(package, f"{HOME}/.local/share/capd/bin"))

    found = confined(SandboxRequest("strict"), BWRAP, replace(WHERE, cover=kept), MASKED)

    shown = pairs(found.prefix, "--ro-bind-try")
    assert package in shown
    assert f"{HOME}/.local/share/capd/bin" not in shown


@pytest.mark.parametrize("project", [HOME, "/home", "/"])
def test_strict_shows_no_secret_of_a_project_that_has_the_home_in_it(project: str) -> None:
    secrets = Masked((f"{HOME}/.config/capd", f"{HOME}/.ssh"), (f"{HOME}/.netrc",))

    found = confined(
        SandboxRequest("strict"), BWRAP, replace(WHERE, project=project, cwd=project), secrets
    )

    mounts = list(zip(found.prefix, found.prefix[1:], strict=False))
    shown_at = mounts.index(("--bind", project))
    hidden_at = [
        n for n, (option, path) in enumerate(mounts) if option == "--tmpfs" and n > shown_at
    ]
    hidden = {mounts[n][1] for n in hidden_at}
    assert set(secrets.folders) <= hidden if project == HOME else HOME in hidden


def test_strict_hides_capds_folders_wherever_they_are_and_shows_the_servers_cache() -> None:
    where = replace(WHERE, cache="/srv/capd/cache/sandbox/1")

    found = confined(
        SandboxRequest("strict"), BWRAP, where, Masked(("/srv/capd/cache", "/srv/capd/state"))
    )

    assert {"/srv/capd/cache", "/srv/capd/state"} < set(pairs(found.prefix, "--tmpfs"))
    at = found.prefix.index("/srv/capd/cache/sandbox/1")
    assert at > found.prefix.index("/srv/capd/cache")


def test_landlock_refuses_to_leave_a_secret_where_it_can_be_read() -> None:
    with pytest.raises(SandboxMissingError, match="Landlock alone cannot hide /usr/share/capd"):
        confined(SandboxRequest("strict"), LANDLOCK, WHERE, Masked(("/usr/share/capd",)))


def test_strict_under_landlock_lists_what_may_be_read() -> None:
    found = confined(SandboxRequest("strict", has_network=True), LANDLOCK, WHERE, MASKED)

    read = [each[len("--read=") :] for each in found.prefix if each.startswith("--read=")]
    assert (found.means, found.description) == ("landlock", "strict (Landlock)")
    assert read[:3] == ["/bin", "/etc", "/usr"]
    assert not {"/home", "/run", "/tmp", HOME} & set(read)
    assert "--no-network" not in found.prefix


@pytest.mark.parametrize(
    ("sandbox_request", "machine", "said"),
    [
        (
            SandboxRequest("strict"),
            SandboxFeatures(),
            "it is to run in the sandbox, and bwrap is not there",
        ),
        (
            SandboxRequest("guard", ("ssh", "aws")),
            SandboxFeatures(),
            "ssh, aws cannot be masked: bwrap",
        ),
        (SandboxRequest("guard", ("ssh",)), LANDLOCK, "ssh cannot be masked"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_the_remedy(
    sandbox_request: SandboxRequest, machine: SandboxFeatures, said: str
) -> None:
    with pytest.raises(SandboxMissingError, match=said):
        confined(sandbox_request, machine, WHERE, MASKED)


@pytest.mark.parametrize(
    ("sandbox_request", "paths"),
    [
        (SandboxRequest(), []),
        (SandboxRequest("off", ("ssh",)), []),
        (SandboxRequest(masks=("ssh",)), [f"{HOME}/.ssh"]),
        (SandboxRequest(masks=("capd", "aws")), ["/own", f"{HOME}/.aws"]),
    ],
)
def test_what_is_hidden_is_what_was_named(
    sandbox_request: SandboxRequest, paths: list[str]
) -> None:
    assert masked_paths(sandbox_request, HOME, ["/own"]) == paths


@given(
    sandbox_request=st.builds(
        SandboxRequest,
        st.sampled_from(["guard", "strict"]),
        st.lists(st.sampled_from(sorted(MASKS)), unique=True).map(tuple),
        st.booleans(),
    ),
    machine=st.builds(
        SandboxFeatures,
        st.sampled_from(["", "/usr/bin/bwrap"]),
        st.sampled_from([(), ("python", "launcher.py")]),
    ),
)
def test_what_was_asked_for_is_enforced_or_refused(
    sandbox_request: SandboxRequest, machine: SandboxFeatures
) -> None:
    paths = masked_paths(sandbox_request, HOME, [])
    try:
        found = confined(sandbox_request, machine, WHERE, Masked(tuple(paths)))
    except SandboxMissingError:
        assert not machine.bwrap
        return

    if sandbox_request.level == "strict":
        assert found.means != "none"
        is_cut_off = "--unshare-net" in found.prefix or "--no-network" in found.prefix
        assert is_cut_off == (not sandbox_request.has_network)
    elif sandbox_request.masks:
        assert set(paths) <= set(pairs(found.prefix, "--tmpfs"))


@pytest.mark.parametrize(
    ("command", "path", "folders"),
    [
        ("/usr/bin/node", ("/usr/bin",), []),
        (f"{HOME}/bin/x", (), ["bin"]),
        ("/tmp/a/.venv/bin/python", ("/tmp",), ["/tmp/a/.venv", "/tmp/a/.venv/bin"]),
        (f"{HOME}/.nvm/v20/bin/node", (), [".nvm/v20", ".nvm/v20/bin"]),
        ("/usr/bin/x", (f"{HOME}/.cargo/bin", HOME), [*RUST, ".cargo/bin"]),
        (f"{HOME}/.fly/bin/flyctl", (), [*(f".fly/{each}" for each in BESIDE), ".fly/bin"]),
        (f"{HOME}/.bun/bin/bun", (), [".bun/install/global", ".bun/bin"]),
        (f"{HOME}/.deno/bin/deno", (), [".deno/bin"]),
        (f"{HOME}/go/bin/tool", (), ["go/bin"]),
        (f"{HOME}/.dotnet/dotnet", (), [f".dotnet/{each}" for each in DOTNET]),
        (
            f"{HOME}/.local/bin/uvx",
            (),
            [
                f".local/{each}"
                for each in (
                    *("lib", "share/uv/tools", "share/uv/python", "share/pipx/venvs"),
                    *("share/pipx/shared", "share/pipx/py", "share/mise/installs", "bin"),
                )
            ],
        ),
    ],
)
def test_of_the_home_only_what_programs_are_installed_in_is_seen(
    command: str, path: tuple[str, ...], folders: list[str]
) -> None:
    where = SandboxPaths(home=HOME, cwd="/", command=command, path=path)

    assert tool_folders(where) == [posixpath.join(HOME, each) for each in folders]


KEYS = (
    *(".cargo/credentials.toml", ".fly/config.yml", ".local/share/uv/credentials/x", ".netrc"),
    *(".npmrc", ".config/capd/secrets.env", ".dotnet/corefx/cryptography/x509stores/my/key.pfx"),
    *(".docker/config.json", ".terraform.d/credentials.tfrc.json", ".aws/credentials"),
)


@given(
    path=st.lists(
        st.sampled_from(
            [
                *(".cargo/bin", ".fly/bin", ".local/bin", ".dotnet", ".dotnet/tools", "bin", ""),
                *(".bun/bin", ".deno/bin", "go/bin", ".docker/bin", ".terraform.d/bin", ".aws/bin"),
                *(".pyenv/shims", ".pyenv/bin", ".volta/bin", ".asdf/shims", ".nvm/v1/bin"),
            ]
        )
    )
)
def test_what_programs_are_installed_beside_is_no_credential(path: list[str]) -> None:
    # As the adapter says it: no path ends in a slash.
    folders = tuple(posixpath.join(HOME, each).rstrip("/") for each in path)
    where = SandboxPaths(home=HOME, cwd="/", command="/bin/sh", path=folders)

    shown = tool_folders(where)

    for key in KEYS:
        file = posixpath.join(HOME, key)
        assert not [each for each in shown if file == each or file.startswith(each + "/")]
