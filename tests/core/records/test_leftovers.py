"""Which files of the cache go: by what they are, their age, and who has a use for them."""

import pytest

from capd.core.records.leftovers import OF_PROJECTS, OF_SERVERS, Leftover, project_mark, swept

NOW = 1_800_000_000.0
APP, GONE = project_mark("/src/app"), project_mark("/src/gone")
HOUR = 3600.0


@pytest.mark.parametrize(
    ("name", "age", "is_servers", "goes"),
    [
        (f"vectors.{GONE}.bin", OF_PROJECTS + 1, False, True),
        (f"tool_vectors.{GONE}.bin", OF_PROJECTS + 1, False, True),
        (f"vectors.{GONE}.bin", OF_PROJECTS - 1, False, False),
        (f"vectors.{APP}.bin", 10 * OF_PROJECTS, False, False),
        ("vectors.bin", 10 * OF_PROJECTS, False, False),
        ("tool_vectors.bin", 10 * OF_PROJECTS, False, False),
        ("eras.json", 10 * OF_PROJECTS, False, False),
        (f"vectors.{GONE}.bin.mine", 10 * OF_PROJECTS, False, False),
        (f"vectors.{GONE}.bin", -HOUR, False, False),
        ("0123456789abcdef", OF_SERVERS + 1, True, True),
        ("0123456789abcdef", OF_SERVERS - 1, True, False),
        ("fedcba9876543210", 10 * OF_SERVERS, True, False),
        ("mine", 10 * OF_SERVERS, True, False),
        (f"vectors.{GONE}.bin", 10 * OF_SERVERS, True, False),
        ("0123456789abcdef", 10 * OF_SERVERS, False, False),
    ],
)
def test_what_is_old_goes_unless_somebody_has_a_use_for_it(
    name: str, age: float, *, is_servers: bool, goes: bool
) -> None:
    found = Leftover(name, NOW - age, is_servers=is_servers)

    gone = swept([found], NOW, projects=["/src/app"], running={"fedcba9876543210"})

    assert gone == ([found] if goes else [])


def test_a_project_is_marked_by_its_path_whatever_bytes_it_has() -> None:
    assert project_mark("/src/app") == "c0167fc91cc6"
    assert project_mark("/src/\udcff") != project_mark("/src/\udcfe")
