"""A path is in a folder, or beside it."""

import pytest

from capd.core.folders import is_at_or_below, is_below


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("/home/ada/notes", "/home/ada", (True, True)),
        ("/home/ada/notes", "/home/ada/", (True, True)),
        ("/home/ada", "/home/ada", (False, True)),
        ("/home/ada", "/home/ada/", (False, True)),
        ("/home/adam", "/home/ada", (False, False)),
        ("/home", "/home/ada", (False, False)),
        ("/home", "/", (True, True)),
    ],
)
def test_a_path_is_below_a_folder_or_at_it_or_elsewhere(
    path: str, folder: str, expected: tuple[bool, bool]
) -> None:
    found = is_below(path, folder), is_at_or_below(path, folder)

    assert found == expected
