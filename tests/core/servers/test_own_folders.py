"""Which of capd's own folders a server at level `guard` sees."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.own_folders import FolderCover, FolderNeeds, OwnFolders, cover

HOME = "/home/ann"
CONFIG, STATE = f"{HOME}/.config/capd", f"{HOME}/.local/state/capd"
CACHE, DATA = f"{HOME}/.cache/capd", f"{HOME}/.local/share/capd"
PACKAGE = f"{DATA}/packages/{'a' * 64}"
RUN = "/run/user/1000/capd"
OWN = OwnFolders(CONFIG, STATE, CACHE, DATA, RUN, f"{RUN}/capd.sock")
ALL = (CONFIG, STATE, CACHE, DATA, RUN)
NEEDS = FolderNeeds(command="/usr/bin/node", cwd=f"{HOME}/code/shop")
MINE = ("boats", "config.toml", "own", "secrets.env", "secrets.env.k2", "server.py")


def test_a_server_that_lives_elsewhere_sees_none_of_them() -> None:
    assert cover(OWN, NEEDS) == FolderCover(hidden=ALL)


@pytest.mark.parametrize(
    ("needs", "shown", "read_only"),
    [
        (replace(NEEDS, cwd=f"{STATE}/shared"), [f"{STATE}/shared"], []),
        (replace(NEEDS, cwd=f"{STATE}/empty/capd-empty-1"), [f"{STATE}/empty/capd-empty-1"], []),
        (replace(NEEDS, words=(f"{DATA}/taps/x/s.py",), tap="x"), [f"{DATA}/taps/x"], []),
        (replace(NEEDS, words=(f"{DATA}/taps/x/s.py",), tap="y"), [], [f"{DATA}/taps/x"]),
        (replace(NEEDS, words=(f"{DATA}/taps/../x",), tap=".."), [], []),
        # A package that capd fetched, by its digest and no other name.
        (replace(NEEDS, words=(f"--package=file:{PACKAGE}/a.tgz",)), [], [PACKAGE]),
        (replace(NEEDS, words=(f"{DATA}/packages/other/a.whl",)), [], []),
        (replace(NEEDS, words=(f"{DATA}/packages",)), [], []),
        (replace(NEEDS, has_launcher=True), [], [f"{DATA}/bin"]),
        (replace(NEEDS, may_connect=True), [f"{RUN}/capd.sock"], []),
        # What lies beside a script of the user's own is kept, and nothing of capd's.
        (
            replace(NEEDS, words=(f"{CONFIG}/server.py",), config_entries=MINE),
            [f"{CONFIG}/boats", f"{CONFIG}/server.py"],
            [],
        ),
        (
            replace(NEEDS, words=(f"--python={CONFIG}/own/x.py -v",), tap="own"),
            [f"{CONFIG}/own"],
            [],
        ),
        (replace(NEEDS, words=(f"{CONFIG}/own/x.py",), tap="mine"), [], []),
    ],
)
def test_a_server_keeps_the_part_that_it_lives_in(
    needs: FolderNeeds, shown: list[str], read_only: list[str]
) -> None:
    assert cover(OWN, needs) == FolderCover(ALL, tuple(shown), tuple(read_only))


@pytest.mark.parametrize(
    "word",
    [
        *(f"{CONFIG}/{name}" for name in ("secrets.env", "secrets.env.k2", ".git/x", "own/x", "")),
        *(f"{STATE}/{name}" for name in ("trust.json", "http.token", "", "sharedx/y")),
        *(f"{CACHE}/results/1", f"{CACHE}/sandbox/1", f"{RUN}/capd.sock", f"{DATA}/memories/x"),
        *(CONFIG, STATE, CACHE, DATA, f"{DATA}/taps", f"{DATA}/taps/"),
    ],
)
def test_a_definition_opens_nothing_of_capds_by_naming_it(word: str) -> None:
    needs = replace(NEEDS, words=(word, f"--file={word}"), config_entries=MINE, tap="evil")

    assert cover(OWN, needs) == FolderCover(hidden=ALL)


@pytest.mark.parametrize(
    ("needs", "left"),
    [
        (replace(NEEDS, cwd=CONFIG), CONFIG),
        (replace(NEEDS, command=f"{DATA}/venv/bin/python"), DATA),
        (replace(NEEDS, cwd=f"{CACHE}/results"), CACHE),
    ],
)
def test_what_a_server_runs_in_is_left_and_said(needs: FolderNeeds, left: str) -> None:
    found = cover(OWN, needs)

    assert found == FolderCover(tuple(each for each in ALL if each != left), left=(left,))


def test_a_folder_within_another_is_hidden_with_it() -> None:
    own = replace(OWN, run=f"{STATE}/run", socket=f"{STATE}/run/capd.sock")

    found = cover(own, replace(NEEDS, may_connect=True))

    assert found == FolderCover((CONFIG, STATE, CACHE, DATA), (f"{STATE}/run/capd.sock",))


@given(
    words=st.lists(
        st.builds(
            "{}/{}".format,
            st.sampled_from(ALL),
            st.text(alphabet="a/.:_ secrtunvtapshdow", max_size=30),
        ),
        max_size=4,
    )
)
def test_arguments_never_open_a_whole_folder_nor_what_is_capds(words: list[str]) -> None:
    found = cover(OWN, replace(NEEDS, words=words, config_entries=MINE, tap="evil"))

    assert found.hidden == ALL
    for path in (*found.shown, *found.read_only):
        assert path not in ALL
        assert path.startswith((f"{STATE}/shared", f"{DATA}/taps/", f"{DATA}/bin", f"{CONFIG}/"))
        assert not path.startswith((f"{CONFIG}/secrets", f"{CONFIG}/own"))
        assert "/../" not in path + "/"
