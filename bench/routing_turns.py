"""Earlier turns blended in, and several intents in one message: routing_turns.py DATA VECTORS.

DATA is the folder of shared data. Both are measured on rows written for it, and neither is part
of routing: docs/routing.md has the figures.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from capd.adapters.model.minilm import MODEL
from capd.adapters.routing_files import background_messages, read_profile
from capd.core.routing import gates
from capd.core.routing.scorers import scorer, texts_of
from capd.evaluation import datasets
from capd.evaluation.vectors import Vectorizer
from capd_protos.types import Score

HERE = Path(__file__).parent
KINDS = ("same", "another", "none")
Ranked = Callable[[str, "np.ndarray[tuple[int], np.dtype[np.float32]]"], list[Score]]


class Turns(msgspec.Struct):
    turns: list[str]
    label: str | None
    changes: bool = False
    """The last turn is about something else than those before."""


class Compound(msgspec.Struct):
    text: str
    labels: list[str]


def main() -> None:
    data, vectors = Path(sys.argv[1]), Path(sys.argv[2])
    capabilities = datasets.tap(data / "octomind-tap", [HERE.parent / "taps/overlays/octomind"])
    vectorizer, profile = Vectorizer(vectors), read_profile()
    background = background_messages()
    known = vectorizer.of([t for c in capabilities for t in texts_of(c)] + list(background))
    made = scorer(profile, capabilities, known, background)
    among = frozenset(c.id for c in capabilities)

    turns = [
        msgspec.json.decode(line, type=Turns)
        for line in (HERE / "routing_turns.jsonl").read_bytes().splitlines()
    ]
    print("earlier turns: correct, wrong, found of those on the same matter, another, none")
    for decay in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7):
        for joined in (False, True):
            counts = dict.fromkeys(KINDS, np.zeros(4))
            for row in turns:
                mixed = np.zeros(MODEL.dimensions, np.float32)
                for age, text in enumerate(reversed(row.turns)):
                    mixed += decay**age * vectorizer.of([text])[text]
                text = " ".join(row.turns[-2:]) if joined and decay else row.turns[-1]
                ranked = made.ranked(text, mixed / np.linalg.norm(mixed), among)
                decision = gates.decide(ranked, (), profile)
                is_on = decision.outcome == "activate"
                is_right = bool(is_on and decision.id and decision.id.name == row.label)
                told = any(each.name == row.label for each in decision.suggested)
                kind = "none" if row.label is None else "another" if row.changes else "same"
                judged = (1, is_right, is_on and not is_right, is_right or told)
                counts[kind] = counts[kind] + judged
            words = "words of two turns" if joined else "words of the last"
            shown_ = "  ".join(
                f"{kind} {np.round(each[1:] / each[0], 3).tolist()}"
                for kind, each in counts.items()
            )
            print(f"  decay {decay:.1f}, {words}: {shown_}")

    single = datasets.Selection().rows([data / "routing/blind_routing.tune.jsonl"])
    random = np.random.default_rng(5).permutation(len(single))
    print("blind, each after another row of it: correct, wrong, false activation")
    for decay in (0.0, 0.2, 0.3, 0.4, 0.5):
        wanted, unwanted = [], []
        for row, before in zip(single, random, strict=True):
            own, last = (vectorizer.of([t])[t] for t in (row.text, single[before].text))
            mixed = own + decay * last
            ranked = made.ranked(row.text, mixed / np.linalg.norm(mixed), among)
            decision = gates.decide(ranked, (), profile)
            is_on = decision.outcome == "activate"
            name = decision.id.name if decision.id else ""
            if row.right:
                wanted.append((is_on and name in row.right, is_on and name not in row.right))
            else:
                unwanted.append(is_on)
        print(f"  decay {decay:.1f}: {np.mean(wanted, axis=0).round(3)} {np.mean(unwanted):.3f}")

    compound = [
        msgspec.json.decode(line, type=Compound)
        for line in (HERE / "routing_compound.jsonl").read_bytes().splitlines()
    ]
    of = {t: vectorizer.of([t])[t] for t in [r.text for r in single] + [c.text for c in compound]}
    shown = 0
    for both in compound:
        top = made.ranked(both.text, of[both.text], among)
        shown += all(name in [score.id.name for score in top[:3]] for name in both.labels)
    print(f"compound: both among the best three {shown / len(compound):.3f}")
    for bar in (0.15, 0.2, 0.25, 0.3, 0.35):
        right = sum(
            {score.id.name for score in second(made.ranked(c.text, of[c.text], among), bar)}
            == set(c.labels)
            for c in compound
        )
        extra = [second(made.ranked(r.text, of[r.text], among), bar) for r in single]
        wanted = [bool(each) for each, row in zip(extra, single, strict=True) if row.right]
        unwanted = [bool(each) for each, row in zip(extra, single, strict=True) if not row.right]
        print(
            f"  second at {bar}: both right {right / len(compound):.3f}, two where one is wanted "
            f"{np.mean(wanted):.3f}, where none is {np.mean(unwanted):.3f}"
        )


def second(ranked: list[Score], bar: float) -> list[Score]:
    """Return the best two where both reach `bar` and leave little to the others."""
    best = ranked[:2]
    return best if best[1].score >= bar and sum(score.score for score in best) >= 2 * bar else []


if __name__ == "__main__":
    main()
