"""Which cached files are deleted: by kind, age, and whether anybody still uses them."""

import pytest

from capd.core.records.leftovers import (
    PROJECT_DELAY,
    SERVER_DELAY,
    Leftover,
    files_to_delete,
    project_mark,
)

NOW = 1_800_000_000.0
APP, GONE = project_mark("/src/app"), project_mark("/src/gone")
HOUR = 3600.0


@pytest.mark.parametrize(
    ("name", "age", "is_servers", "goes"),
    [
        (f"vectors.{GONE}.bin", PROJECT_DELAY + 1, False, True),
        (f"tool_vectors.{GONE}.bin", PROJECT_DELAY + 1, False, True),
        (f"tool_vectors.{GONE}.graph", PROJECT_DELAY + 1, False, True),
        (f"tool_vectors.{APP}.graph", 10 * PROJECT_DELAY, False, False),
        (f"vectors.{GONE}.bin", PROJECT_DELAY - 1, False, False),
        (f"vectors.{APP}.bin", 10 * PROJECT_DELAY, False, False),
        ("vectors.bin", 10 * PROJECT_DELAY, False, False),
        ("tool_vectors.bin", 10 * PROJECT_DELAY, False, False),
        ("eras.json", 10 * PROJECT_DELAY, False, False),
        (f"vectors.{GONE}.bin.mine", 10 * PROJECT_DELAY, False, False),
        (f"vectors.{GONE}.bin", -HOUR, False, False),
        ("0123456789abcdef", SERVER_DELAY + 1, True, True),
        ("0123456789abcdef", SERVER_DELAY - 1, True, False),
        ("fedcba9876543210", 10 * SERVER_DELAY, True, False),
        ("mine", 10 * SERVER_DELAY, True, False),
        (f"vectors.{GONE}.bin", 10 * SERVER_DELAY, True, False),
        ("0123456789abcdef", 10 * SERVER_DELAY, False, False),
    ],
)
def test_what_is_old_goes_unless_somebody_has_a_use_for_it(
    name: str, age: float, *, is_servers: bool, goes: bool
) -> None:
    found = Leftover(name, NOW - age, is_servers=is_servers)

    gone = files_to_delete([found], NOW, projects=["/src/app"], running={"fedcba9876543210"})

    assert gone == ([found] if goes else [])


def test_a_project_is_marked_by_its_path_whatever_bytes_it_has() -> None:
    assert project_mark("/src/app") == "c0167fc91cc6"
    assert project_mark("/src/\udcff") != project_mark("/src/\udcfe")
