"""The paths of the socket and the folders, for every kind of environment."""

import os
import stat
from pathlib import Path

import pytest

from capd_protos.places import Places, make_folders, places, socket_path


def has_run_user(path: str) -> bool:
    return path == "/run/user/1000"


def has_nothing(path: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("env", "path"),
    [
        pytest.param(
            {"CAPD_SOCKET": "/s", "CAPD_HOME": "/c", "XDG_RUNTIME_DIR": "/x"}, "/s", id="named"
        ),
        pytest.param(
            {"CAPD_HOME": "/c", "XDG_RUNTIME_DIR": "/x"}, "/c/run/capd.sock", id="under one folder"
        ),
        pytest.param({"CAPD_HOME": "/c/../d/"}, "/d/run/capd.sock", id="made plain"),
        pytest.param({"XDG_RUNTIME_DIR": "/x"}, "/x/capd/capd.sock", id="XDG"),
        pytest.param({"HOME": "/h"}, "/run/user/1000/capd/capd.sock", id="the usual folder"),
        pytest.param(
            {"CAPD_SOCKET": "", "CAPD_HOME": "", "XDG_RUNTIME_DIR": ""},
            "/run/user/1000/capd/capd.sock",
            id="empty is unset",
        ),
    ],
)
def test_the_socket_is_at(env: dict[str, str], path: str) -> None:
    got = socket_path(env, 1000, has_run_user)

    assert got == path


def test_without_a_runtime_folder_the_socket_is_below_the_home() -> None:
    got = socket_path({"HOME": "/h"}, 1000, has_nothing)

    assert got == "/h/.local/state/capd/run/capd.sock"


def test_another_users_runtime_folder_is_not_taken() -> None:
    got = socket_path({"HOME": "/h"}, 1001, has_run_user)

    assert got == "/h/.local/state/capd/run/capd.sock"


def test_a_relative_name_is_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")

    got = (socket_path({"CAPD_SOCKET": "s"}, 1), socket_path({"CAPD_HOME": "c"}, 1))

    assert got == ("/s", "/c/run/capd.sock")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param(
            {"CAPD_HOME": "/c", "XDG_CONFIG_HOME": "/x"},
            Places("/c/config", "/c/state", "/c/cache", "/c/data", "/c/run", "/c/run/capd.sock"),
            id="under one folder",
        ),
        pytest.param(
            {"CAPD_HOME": "/c", "CAPD_SOCKET": "/s/x"},
            Places("/c/config", "/c/state", "/c/cache", "/c/data", "/c/run", "/s/x"),
            id="the socket elsewhere",
        ),
        pytest.param(
            {"HOME": "/h"},
            Places(
                "/h/.config/capd",
                "/h/.local/state/capd",
                "/h/.cache/capd",
                "/h/.local/share/capd",
                "/run/user/1000/capd",
                "/run/user/1000/capd/capd.sock",
            ),
            id="the defaults of XDG",
        ),
        pytest.param(
            {
                "XDG_CONFIG_HOME": "/1",
                "XDG_STATE_HOME": "/2",
                "XDG_CACHE_HOME": "/3",
                "XDG_DATA_HOME": "/4",
                "XDG_RUNTIME_DIR": "/5",
            },
            Places("/1/capd", "/2/capd", "/3/capd", "/4/capd", "/5/capd", "/5/capd/capd.sock"),
            id="XDG",
        ),
        pytest.param(
            {
                "HOME": "/h",
                "XDG_CONFIG_HOME": "1",
                "XDG_STATE_HOME": "./2",
                "XDG_CACHE_HOME": "3",
                "XDG_DATA_HOME": "../4",
                "XDG_RUNTIME_DIR": "5",
            },
            Places(
                "/h/.config/capd",
                "/h/.local/state/capd",
                "/h/.cache/capd",
                "/h/.local/share/capd",
                "/run/user/1000/capd",
                "/run/user/1000/capd/capd.sock",
            ),
            id="relative folders of XDG, which are ignored",
        ),
    ],
)
def test_the_folders_are(env: dict[str, str], expected: Places) -> None:
    got = places(env, 1000, has_run_user)

    assert got == expected


def test_folders_that_are_made_are_for_their_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folders(tmp_path / "home" / "config")
        make_folders(tmp_path / "home" / "config")
    finally:
        os.umask(before)

    made = [tmp_path / "home", tmp_path / "home" / "config"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700, 0o700]


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"")

    with pytest.raises(OSError, match="home"):
        make_folders(tmp_path / "home" / "config")
