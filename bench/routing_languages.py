"""What phrases in other languages bring: `python -m bench.routing_languages VECTORS`.

A tenth of the phrases of each language in taps/overlays/starter-languages is held out in turn and
used as messages. They come from the hands that wrote the others, so the right column is the best
that can be hoped for; the left one is without any phrase of another language in the catalog. The
profile's projection was learnt from all these phrases, so neither column is held out from it.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

import msgspec

from capd.adapters.routing_files import read_profile
from capd.evaluation import datasets, route
from capd.evaluation.datasets import Row
from capd.evaluation.vectors import Vectorizer
from capd_protos.types import CapabilitySpec

ROOT = Path(__file__).parents[1]
OVERLAYS = ROOT / "taps/overlays"
PARTS = 10
_PHRASE = re.compile(r'^\s*"((?:[^"\\]|\\.)*)",?\s*$')


def phrases() -> list[tuple[str, str, str]]:
    """Return (language, capability, phrase): each language's phrases stand under a comment."""
    found: list[tuple[str, str, str]] = []
    for file in sorted((OVERLAYS / "starter-languages/capabilities").glob("*.toml")):
        language = ""
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.strip().startswith("#"):
                language = line.strip("#\t ")
            elif language and (said := _PHRASE.match(line)):
                found.append((language, file.stem, msgspec.json.decode(f'"{said[1]}"')))
    return found


def without(capabilities: tuple[CapabilitySpec, ...], held: set[str]) -> list[CapabilitySpec]:
    return [
        msgspec.structs.replace(
            each, extra_triggers=tuple(t for t in each.extra_triggers if t not in held)
        )
        for each in capabilities
    ]


def main() -> int:
    vectorizer, profile = Vectorizer(Path(sys.argv[1])), read_profile()
    tap, english = ROOT / "taps/starter", OVERLAYS / "starter"
    alone = route.Router(datasets.tap(tap, overlays=[english]), profile, vectorizer)
    every = datasets.tap(tap, overlays=[english, OVERLAYS / "starter-languages"])
    said = phrases()
    values: dict[str, list[tuple[dict[str, bool], dict[str, bool]]]] = defaultdict(list)
    for part in range(PARTS):
        held = said[part::PARTS]
        router = route.Router(without(every, {each[2] for each in held}), profile, vectorizer)
        for language, name, text in held:
            row = Row(text, name)
            before, after = (
                route.Judged(row, each.decided(row)).values() for each in (alone, router)
            )
            values[language].append((before, after))
    print(
        "| language | phrases | English phrases alone: correct / wrong / found |"
        " with phrases of the language |"
    )
    print("|---|---|---|---|")
    for language, pairs in values.items():
        shown = [
            " / ".join(f"{sum(v[at][m] for v in pairs) / len(pairs):.2f}" for m in MEASURES)
            for at in (0, 1)
        ]
        print(f"| {language} | {len(pairs)} | {' | '.join(shown)} |")
    return 0


MEASURES = ("correct", "wrong", "found")

if __name__ == "__main__":
    sys.exit(main())
