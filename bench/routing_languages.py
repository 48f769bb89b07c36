"""How messages that are not in English are routed: `python -m bench.routing_languages VECTORS`.

`bench/routing/languages.jsonl` has ten messages in each of six languages for each capability of the
starter tap; their member `set` is the language. Their writer had read the English phrases. No
profile was fitted to them. VECTORS is a file that keeps vectors between runs.
"""

import sys
from collections import defaultdict
from pathlib import Path

from capd.adapters.routing_files import read_profile
from capd.evaluation import datasets, route
from capd.evaluation.datasets import Selection
from capd.evaluation.vectors import vectorizer_for

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "bench/routing/languages.jsonl"
LANGUAGES = {
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "pt": "Portuguese",
    "ja": "Japanese",
    "zh": "Chinese",
}
MEASURES = ("correct", "wrong", "found")


def main() -> int:
    """Print a row of the table for each language."""
    capabilities = datasets.tap(ROOT / "taps/starter", overlays=[ROOT / "taps/overlays/starter"])
    profile = read_profile()
    router = route.Router(capabilities, profile, vectorizer_for(profile, Path(sys.argv[1])))
    values: dict[str, list[dict[str, bool]]] = defaultdict(list)
    for row in Selection().rows([ROWS]):
        values[row.set].append(route.Judged(row, router.decided(row)).values())
    print(f"| language | messages | {' / '.join(MEASURES)} |")
    print("|---|---|---|")
    for language, found in values.items():
        shown = " / ".join(f"{sum(each[m] for each in found) / len(found):.2f}" for m in MEASURES)
        print(f"| {LANGUAGES[language]} | {len(found)} | {shown} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
