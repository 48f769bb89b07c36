"""Invoices: what a stay costs, and in which month it is billed."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from harbour.nights import nights_between
from harbour.settings import load_settings


@dataclass(frozen=True)
class Stay:
    """One boat at one berth."""

    boat: str
    berth: int
    length_m: Decimal
    arrived_at: datetime
    left_at: datetime


@dataclass(frozen=True)
class Line:
    """One line of an invoice."""

    text: str
    nights: int
    amount: Decimal


def month_start(moment: datetime) -> datetime:
    """Return the first moment of the month."""
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(moment: datetime) -> datetime:
    """Return the first moment of the month that follows."""
    first = month_start(moment)
    if first.month == 12:
        return first.replace(year=first.year + 1, month=1)
    return first.replace(month=first.month + 1)


def price_per_night(length_m: Decimal) -> Decimal:
    """Return what a boat of this length pays for a night."""
    settings = load_settings()
    for limit, price in sorted(settings.prices.items()):
        if length_m <= limit:
            return price
    return settings.longest_price


def invoice(stay: Stay) -> list[Line]:
    """Return the lines of a stay, one for each month that it touches."""
    lines: list[Line] = []
    begins_at = stay.arrived_at
    price = price_per_night(stay.length_m)
    while begins_at < stay.left_at:
        ends_at = min(next_month(begins_at), stay.left_at)
        # A night that lies in two months is rounded up in both of them.
        nights = nights_between(begins_at, ends_at)
        if nights > 0:
            text = f"{stay.boat}, berth {stay.berth}, {begins_at:%Y-%m}"
            lines.append(Line(text, nights, nights * price))
        begins_at = ends_at
    return lines


def total(lines: list[Line]) -> Decimal:
    """Return the sum of an invoice."""
    return sum((line.amount for line in lines), Decimal(0))
