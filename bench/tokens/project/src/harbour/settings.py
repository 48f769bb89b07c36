"""The settings, read with the old interface of the settings library."""

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import stevedore_settings as settings_library

FILE = Path("config/settings.toml")


@dataclass(frozen=True)
class Settings:
    """Prices by the longest boat that pays them, and the database's place."""

    prices: dict[Decimal, Decimal] = field(default_factory=dict)
    longest_price: Decimal = Decimal(60)
    database: Path = Path("data/harbour.db")


def load_settings() -> Settings:
    """Return the settings as they stand in the file."""
    read = settings_library.load(FILE, reload=True)
    prices = {Decimal(limit): Decimal(price) for limit, price in read["prices"].items()}
    return Settings(prices, Decimal(read["longest_price"]), Path(read["database"]))
