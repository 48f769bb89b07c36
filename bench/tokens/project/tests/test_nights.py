from datetime import datetime

from harbour.nights import nights_between


def test_a_part_of_a_day_counts_as_one() -> None:
    assert nights_between(datetime(2026, 9, 1, 18), datetime(2026, 9, 2, 9)) == 1
