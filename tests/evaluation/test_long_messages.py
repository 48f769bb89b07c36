"""Requests within long messages: the model, the profile and the tap that come with capd."""

from pathlib import Path

import pytest

from capd.adapters.routing_files import read_profile
from capd.evaluation import datasets
from capd.evaluation.datasets import Row
from capd.evaluation.route import Router
from capd.evaluation.vectors import vectorizer_for

TAPS = Path(__file__).parents[2] / "taps"
BEFORE = (
    "The release is on Thursday and half of the team is away. Marta found the trouble in the night "
    "build, where the parser drops the last field whenever a line ends without a newline. I have "
    "told her to leave it for now, because the customer sees it only with files from the old "
    "scanner. "
)
AFTER = (
    " The meeting about all this is at two, and Jonas brings the numbers of last week. Nobody "
    "tells the customer about the scanner before he has called them. Lunch is on me if we get "
    "through it by four."
)


@pytest.fixture(scope="module")
def router(vectors: Path) -> Router:
    capabilities = datasets.tap(TAPS / "starter", overlays=[TAPS / "overlays" / "starter"])
    profile = read_profile()
    return Router(capabilities, profile, vectorizer_for(profile, vectors))


@pytest.mark.parametrize(
    ("request_", "capability"),
    [
        ("Show me the last ten commits that touched the parser.", "git"),
        ("Run ruff over the src folder and list what it complains about.", "python-tooling"),
        ("Convert docs/scanner.pdf to markdown so that I can quote it.", "document-text"),
    ],
)
def test_a_request_between_other_sentences_switches_its_capability_on(
    router: Router, request_: str, capability: str
) -> None:
    got = router.decided(Row(BEFORE + request_ + AFTER))

    assert (got.outcome, got.id and got.id.name) == ("activate", capability)


def test_the_same_message_without_a_request_switches_nothing_on(router: Router) -> None:
    got = router.decided(Row(BEFORE + AFTER))

    assert got.outcome != "activate"
