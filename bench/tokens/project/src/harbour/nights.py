"""How many nights a stay has."""

import math
from datetime import datetime


def nights_between(arrived_at: datetime, left_at: datetime) -> int:
    """Return the nights between two moments, a part of a day counting as one."""
    if left_at < arrived_at:
        raise ValueError("a boat cannot leave before it has arrived")
    return math.ceil((left_at - arrived_at).total_seconds() / 86_400)
