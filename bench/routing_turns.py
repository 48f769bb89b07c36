"""Two changes to routing that capd does not have: `routing_turns.py DATA VECTORS`.

One blends earlier turns into the message; the other looks for several intents in one message. Each
is measured on rows written for it: docs/design/routing.md has the figures. DATA is the folder of
shared data. VECTORS is a file that keeps vectors between runs.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from capd.adapters.model.minilm import MODEL
from capd.adapters.routing_files import background_messages, read_profile
from capd.core.routing import gates
from capd.core.routing.scorers import scorer, texts_of
from capd.evaluation import datasets
from capd.evaluation.datasets import Row
from capd.evaluation.vectors import Vectorizer, vectorizer_for
from capd_protos.types import Score

HERE = Path(__file__).parent
KINDS = ("same", "another", "none")

if TYPE_CHECKING:
    from capd.evaluation.vectors import Vectors

    Rank = Callable[[str, Vectors], list[Score]]


class Turns(msgspec.Struct):
    turns: list[str]
    label: str | None
    changes: bool = False
    """Whether the last turn is about something else than those before."""


class Compound(msgspec.Struct):
    text: str
    labels: list[str]


def main() -> None:
    data, vectors = Path(sys.argv[1]), Path(sys.argv[2])
    capabilities = datasets.tap(
        data / "octomind-tap", overlays=[HERE.parent / "taps/overlays/octomind"]
    )
    profile = read_profile()
    vectorizer = vectorizer_for(profile, vectors)
    background = background_messages()
    known = vectorizer.of([t for c in capabilities for t in texts_of(c)] + list(background))
    made = scorer(profile, capabilities, known, background)
    among = frozenset(c.id for c in capabilities)

    def ranked(text: str, mixed: "Vectors") -> list[Score]:
        return made.ranked(text, mixed / np.float32(np.linalg.norm(mixed)), among)

    single = datasets.Selection().rows([data / "routing/blind_routing.tune.jsonl"])
    conversations(ranked, vectorizer)
    strangers(ranked, vectorizer, single)
    two_intents(ranked, vectorizer, single)


def conversations(ranked: "Rank", vectorizer: Vectorizer) -> None:
    rows = [
        msgspec.json.decode(line, type=Turns)
        for line in (HERE / "routing_turns.jsonl").read_bytes().splitlines()
    ]
    print("earlier turns: correct, wrong, found of those on the same matter, another, none")
    for decay in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7):
        for joined in (False, True):
            counts = dict.fromkeys(KINDS, np.zeros(4))
            for row in rows:
                mixed = np.zeros(MODEL.dimensions, np.float32)
                for age, text in enumerate(reversed(row.turns)):
                    mixed += np.float32(decay**age) * vectorizer.of([text])[text]
                text = " ".join(row.turns[-2:]) if joined and decay else row.turns[-1]
                name, told = decided(ranked(text, mixed))
                kind = "none" if row.label is None else "another" if row.changes else "same"
                is_right = name != "" and name == row.label
                judged = (1, is_right, name != "" and not is_right, is_right or row.label in told)
                counts[kind] = counts[kind] + judged
            shown = "  ".join(
                f"{k} {np.round(c[1:] / c[0], 3).tolist()}" for k, c in counts.items()
            )
            print(f"  decay {decay:.1f}, words of {'two turns' if joined else 'the last'}: {shown}")


def strangers(ranked: "Rank", vectorizer: Vectorizer, rows: list[Row]) -> None:
    order = np.random.default_rng(5).permutation(len(rows))
    print("blind, each after another row of it: correct, wrong, false activation")
    for decay in (0.0, 0.2, 0.3, 0.4, 0.5):
        right, wrong, false = [], [], []
        for row, before in zip(rows, order, strict=True):
            own, last = (vectorizer.of([t])[t] for t in (row.text, rows[before].text))
            mixed = (own + decay * last).astype(np.float32)
            name, _ = decided(ranked(row.text, mixed))
            if row.right:
                right.append(name in row.right)
                wrong.append(name != "" and name not in row.right)
            else:
                false.append(name != "")
        means = (float(np.mean(each)) for each in (right, wrong, false))
        print(f"  decay {decay:.1f}: {' '.join(f'{mean:.3f}' for mean in means)}")


def two_intents(ranked: "Rank", vectorizer: Vectorizer, single: list[Row]) -> None:
    rows = [
        msgspec.json.decode(line, type=Compound)
        for line in (HERE / "routing_compound.jsonl").read_bytes().splitlines()
    ]

    def of(text: str) -> list[Score]:
        return ranked(text, vectorizer.of([text])[text])

    both = [of(row.text) for row in rows]
    one = [of(row.text) for row in single]
    shown = np.mean(
        [
            set(row.labels) <= {score.id.name for score in top[:3]}
            for row, top in zip(rows, both, strict=True)
        ]
    )
    print(f"two intents: both among the best three {shown:.3f}")
    for bar in (0.15, 0.2, 0.25, 0.3, 0.35):
        right = np.mean(
            [
                {score.id.name for score in second(top, bar)} == set(row.labels)
                for row, top in zip(rows, both, strict=True)
            ]
        )
        extra = [
            (bool(row.right), bool(second(top, bar))) for row, top in zip(single, one, strict=True)
        ]
        wanted = np.mean([is_two for is_wanted, is_two in extra if is_wanted])
        unwanted = np.mean([is_two for is_wanted, is_two in extra if not is_wanted])
        print(
            f"  second at {bar}: both right {right:.3f}, two where one is wanted {wanted:.3f}, "
            f"where none is {unwanted:.3f}"
        )


def decided(ranked: list[Score]) -> tuple[str, list[str]]:
    """Return the name of the activated capability, if any, and the suggestions."""
    decision = gates.decide(ranked, (), read_profile())
    name = decision.id.name if decision.outcome == "activate" and decision.id else ""
    return name, [id_.name for id_ in decision.suggested]


def second(ranked: list[Score], bar: float) -> list[Score]:
    """Return the best two if both reach `bar`, else none."""
    best = ranked[:2]
    return best if best[1].score >= bar else []


if __name__ == "__main__":
    main()
