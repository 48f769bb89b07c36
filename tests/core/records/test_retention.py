"""For how long notes are kept."""

import pytest

from capd.core.records.retention import DAY, Retention


def test_notes_go_by_age() -> None:
    assert Retention(days=90).keep_since(100 * DAY) == 10 * DAY


@pytest.mark.parametrize(
    ("size", "share"), [(0, 0.0), (1000, 0.0), (1001, 0.1), (2000, 0.55), (10**12, 1.0)]
)
def test_the_oldest_go_where_the_file_is_too_large(size: int, share: float) -> None:
    assert Retention(size_bytes=1000).share_to_drop(size) == pytest.approx(share, abs=1e-3)
