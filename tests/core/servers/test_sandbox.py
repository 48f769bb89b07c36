"""Levels of confinement: what each one is made of, and that none is done by half."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.sandbox import (
    MASKS,
    Confinement,
    Machine,
    Masked,
    SandboxMissingError,
    Surroundings,
    Wish,
    confined,
    masked_paths,
    tool_folders,
)

HOME = "/home/ann"
WHERE = Surroundings(
    home=HOME,
    cwd=f"{HOME}/code/shop",
    command="/usr/bin/node",
    project=f"{HOME}/code/shop",
    cache="/var/cache/capd/shop",
    path=("/usr/bin", f"{HOME}/.nvm/v20/bin"),
    tops=("/bin", "/dev", "/etc", "/home", "/run", "/tmp", "/usr"),
)
MASKED = Masked((f"{HOME}/.config/capd",), (f"{HOME}/.netrc",))
BWRAP = Machine("/usr/bin/bwrap")
LANDLOCK = Machine(landlock=("python", "launcher.py"))


def pairs(prefix: Sequence[str], option: str) -> list[str]:
    return [prefix[n + 1] for n, each in enumerate(prefix) if each == option]


def test_off_and_guard_without_masks_start_the_server_as_it_is() -> None:
    found = [
        confined(Wish(level), machine, WHERE, MASKED)
        for level in ("off", "guard")
        for machine in (Machine(), BWRAP, LANDLOCK)
    ]

    assert found == [Confinement("none", "off")] * 3 + [Confinement("none", "guard")] * 3


def test_guard_hides_capds_own_folders_where_files_keep_their_owners() -> None:
    found = confined(Wish(), Machine("/usr/bin/bwrap", keeps_owners=True), WHERE, MASKED)

    assert (found.means, found.told) == ("bwrap", "guard, without capd")
    assert pairs(found.prefix, "--tmpfs") == [f"{HOME}/.config/capd"]
    assert found.environment == {}


def test_strict_under_bwrap_shows_the_project_and_the_tools_and_no_home() -> None:
    found = confined(Wish("strict"), BWRAP, WHERE, Masked())

    assert (found.means, found.told) == ("bwrap", "strict, no network")
    assert pairs(found.prefix, "--tmpfs") == ["/tmp", "/run", HOME]
    assert pairs(found.prefix, "--bind") == ["/var/cache/capd/shop", f"{HOME}/code/shop"]
    assert f"{HOME}/.nvm/v20" in pairs(found.prefix, "--ro-bind-try")
    assert "--unshare-net" in found.prefix
    assert found.environment["npm_config_cache"] == "/var/cache/capd/shop/npm"


def test_strict_under_landlock_lists_what_may_be_read() -> None:
    found = confined(Wish("strict", has_network=True), LANDLOCK, WHERE, Masked())

    read = [each[len("--read=") :] for each in found.prefix if each.startswith("--read=")]
    assert (found.means, found.told) == ("landlock", "strict (Landlock)")
    assert read[:3] == ["/bin", "/etc", "/usr"]
    assert not {"/home", "/run", "/tmp", HOME} & set(read)
    assert "--no-network" not in found.prefix


@pytest.mark.parametrize(
    ("wish", "machine", "said"),
    [
        (Wish("strict"), Machine(), "it is to run in the sandbox, and bwrap is not there"),
        (Wish("guard", ("ssh", "aws")), Machine(), "ssh, aws cannot be masked: bwrap"),
        (Wish("guard", ("ssh",)), LANDLOCK, "ssh cannot be masked"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_the_remedy(
    wish: Wish, machine: Machine, said: str
) -> None:
    with pytest.raises(SandboxMissingError, match=said):
        confined(wish, machine, WHERE, MASKED)


def test_an_unknown_mask_is_told_with_those_there_are() -> None:
    with pytest.raises(SandboxMissingError, match="no mask 'shh': one of ssh, gnupg"):
        masked_paths(Wish(masks=("shh",)), HOME, [])


@given(
    wish=st.builds(
        Wish,
        st.sampled_from(["guard", "strict"]),
        st.lists(st.sampled_from(sorted(MASKS)), unique=True).map(tuple),
        st.booleans(),
    ),
    machine=st.builds(
        Machine,
        st.sampled_from(["", "/usr/bin/bwrap"]),
        st.sampled_from([(), ("python", "launcher.py")]),
        keeps_owners=st.booleans(),
    ),
)
def test_what_was_asked_for_is_enforced_or_refused(wish: Wish, machine: Machine) -> None:
    paths = masked_paths(wish, HOME, [])
    try:
        found = confined(wish, machine, WHERE, Masked(tuple(paths)))
    except SandboxMissingError:
        assert not machine.bwrap
        return

    if wish.level == "strict":
        assert found.means != "none"
        is_cut_off = "--unshare-net" in found.prefix or "--no-network" in found.prefix
        assert is_cut_off == (not wish.has_network)
    elif wish.masks:
        assert set(paths) <= set(pairs(found.prefix, "--tmpfs"))


@pytest.mark.parametrize(
    ("command", "path", "folders"),
    [
        ("/usr/bin/node", ("/usr/bin",), []),
        (f"{HOME}/bin/x", (), [f"{HOME}/bin"]),
        (f"{HOME}/.nvm/v20/bin/node", (), [f"{HOME}/.nvm/v20"]),
        ("/usr/bin/x", (f"{HOME}/.cargo/bin", HOME), [f"{HOME}/.cargo"]),
        (
            f"{HOME}/.local/bin/uvx",
            (),
            [f"{HOME}/.local/{each}" for each in ("bin", "lib", "share/uv", "share/pipx")],
        ),
    ],
)
def test_of_the_home_only_what_programs_are_installed_in_is_seen(
    command: str, path: tuple[str, ...], folders: list[str]
) -> None:
    where = Surroundings(home=HOME, cwd="/", command=command, path=path)

    assert tool_folders(where) == folders
