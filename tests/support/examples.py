"""How many examples a test tries in each profile of Hypothesis."""

import os

QUICK_EXAMPLES = 20
DEEP_TIMES = 20


def examples(usual: int) -> int:
    """Return `usual`, or what CAPD_HYPOTHESIS makes of it: fewer when quick, more when deep."""
    profile = os.environ.get("CAPD_HYPOTHESIS", "default")
    if profile == "quick":
        return min(usual, QUICK_EXAMPLES)
    return usual * DEEP_TIMES if profile == "deep" else usual
