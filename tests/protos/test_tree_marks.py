"""The marks of a server's processes: equal in daemon and client, unique per daemon."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.adapters.platform import watcher
from capd_protos import tree_marks
from capd_protos.tree_marks import Mark, any_life, home_mark

HOMES = st.text("0123456789abcdef", min_size=8, max_size=8)
LIVES = st.text("0123456789abcdef", min_size=16, max_size=16)
MARKS = st.builds(Mark, HOMES, LIVES)


@given(MARKS)
def test_a_mark_is_of_its_life_and_of_its_home(mark: Mark) -> None:
    for wanted in (mark.this_life, any_life(mark.home)):
        assert wanted.matches(mark.limit(None), "")
        assert wanted.matches(None, mark.of_server)
        assert wanted.matches(None, mark.of_helper)


@given(MARKS, MARKS)
def test_a_mark_is_of_no_other_home(one: Mark, other: Mark) -> None:
    if one.home != other.home:
        assert not any_life(one.home).matches(other.limit(None), other.of_server)
    if one.life[:4] != other.life[:4]:
        assert not one.this_life.matches(other.limit(None), other.of_server)


@given(MARKS)
def test_limits_fit_what_the_module_resource_takes(mark: Mark) -> None:
    assert 0 < mark.limit(None) < 1 << 63


@pytest.mark.parametrize("limit", [None, 0, 5, 2**63 - 1])
def test_a_process_without_a_mark_is_nobodys(limit: int | None) -> None:
    assert not any_life("01234567").matches(limit, "")


@given(MARKS, st.integers(1, 2**63 - 1))
def test_a_limit_is_below_the_daemons_own(mark: Mark, ceiling: int) -> None:
    assert 0 <= mark.limit(ceiling) < ceiling


def test_a_folder_has_one_mark_whatever_leads_there(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to("state")

    assert home_mark(f"{tmp_path}/link") == home_mark(f"{tmp_path}/state/")
    assert home_mark(f"{tmp_path}/state") != home_mark(f"{tmp_path}")


def test_the_watcher_repeats_the_names() -> None:
    assert f"{tree_marks.VARIABLE}=".encode() == watcher.VARIABLE
    assert watcher.LIMIT_LINE == tree_marks.LIMIT_LINE
