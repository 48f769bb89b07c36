"""The pages on routing give the limits of the profile that ships."""

from pathlib import Path

import pytest

from capd.adapters.routing_files import read_profile
from capd.core.routing.learning import lowest_activated

DOCS = Path(__file__).parents[2] / "docs"
PROFILE = read_profile()
LIMITS = ("activate_at", "threshold", "margin", "suggest_at", "suggest_each")


def shown(value: float) -> str:
    """Return a share as the pages write it: `.65`, or `0`."""
    return f"{value:.2f}".lstrip("0") if value else "0"


def text_of(page: str) -> str:
    return " ".join((DOCS / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_on_both_pages_is_that_of_the_profile(name: str) -> None:
    value = shown(getattr(PROFILE, name))

    assert f"`{name}` {value}" in text_of("routing.md")
    assert f"| `{name}` | {value} |" in text_of("design/routing.md")


def test_the_pages_say_how_far_learning_lowers_the_limits() -> None:
    page, design = text_of("routing.md"), text_of("design/routing.md")

    for name in ("threshold", "activate_at"):
        limit = getattr(PROFILE, name)
        lowered = shown(lowest_activated(limit))
        assert f"`{name}` from {shown(limit)} to {lowered}" in page
    limit = PROFILE.threshold
    assert f"`threshold` of {shown(limit)}" in design
    assert f"whose best score is below {shown(lowest_activated(limit))} without learning" in design
