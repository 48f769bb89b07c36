"""Stays as the database has them."""

import sqlite3
from datetime import datetime
from decimal import Decimal

from harbour.billing import Stay
from harbour.nights import nights_between
from harbour.settings import load_settings

_QUERY = """
select boats.name, stays.berth, boats.length_m, stays.arrived_at, stays.left_at
from stays join boats on boats.name = stays.boat where stays.id = ?
"""


def stay_of(number: int) -> Stay:
    """Return one stay."""
    connection = sqlite3.connect(load_settings().database)
    name, berth, length, arrived_at, left_at = connection.execute(_QUERY, (number,)).fetchone()
    return Stay(
        name,
        berth,
        Decimal(str(length)),
        datetime.fromisoformat(arrived_at),
        datetime.fromisoformat(left_at),
    )


def is_long(stay: Stay) -> bool:
    """Tell whether a stay gets the discount of long ones."""
    return nights_between(stay.arrived_at, stay.left_at) >= 28
