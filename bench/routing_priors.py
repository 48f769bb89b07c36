"""What priors bring to routing: `routing_priors.py DATA VECTORS`.

A prior raises the score of a capability for a reason other than the message: the project's files
belong to it (`files`), or it was used before (`use`). The messages are paired with listings of
project files. Half of them, by their sha256, choose the weight of a prior; the other half judge it.
The rows with `use` take either the right capability as used before, or only three others.

DATA is the folder of shared data. VECTORS is a file that keeps vectors between runs.
"""

import sys
from pathlib import Path

import msgspec
import numpy as np

from capd.adapters.routing_files import background_messages, read_profile
from capd.core.routing import gates
from capd.core.routing.priors import shifted, spoken_for
from capd.core.routing.scorers import scorer, texts_of
from capd.evaluation import datasets
from capd.evaluation.datasets import part_of
from capd.evaluation.vectors import vectorizer_for
from capd_protos.types import CapabilityId, Score

HERE = Path(__file__).parent
WEIGHTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


class PairedRow(msgspec.Struct):
    text: str
    label: str | None
    files: list[str]


def main() -> None:
    data, vectors = Path(sys.argv[1]), Path(sys.argv[2])
    rows = [
        msgspec.json.decode(line, type=PairedRow)
        for line in (HERE / "project_priors.jsonl").read_bytes().splitlines()
    ]
    capabilities = datasets.tap(
        data / "octomind-tap", overlays=[HERE.parent / "taps/overlays/octomind"]
    )
    profile = read_profile()
    vectorizer = vectorizer_for(profile, vectors)
    background = background_messages()
    known = vectorizer.of([t for c in capabilities for t in texts_of(c)] + list(background))
    made = scorer(profile, capabilities, known, background)
    among = frozenset(c.id for c in capabilities)
    ranked = [made.ranked(r.text, vectorizer.of([r.text])[r.text], among) for r in rows]
    names = [c.id for c in capabilities]
    random = np.random.default_rng(5)
    strangers = [{names[at] for at in random.choice(len(names), 3)} for _ in rows]
    used = [
        {each.id for each in capabilities if each.id.name == r.label} | others
        for r, others in zip(rows, strangers, strict=True)
    ]
    favoured: dict[str, list[set[CapabilityId]]] = {
        "files": [set(spoken_for(capabilities, r.files)) for r in rows],
        "use, the right one among four": used,
        "use, three strangers": strangers,
    }
    # A listing that has nothing to do with the message must not do much harm either.
    listings = [row.files for row in rows]
    others = datasets.Selection().rows([data / "routing/blind_routing.tune.jsonl"])
    foreign = [
        PairedRow(row.text, row.label, listings[random.integers(len(listings))]) for row in others
    ]
    for weight in WEIGHTS:
        shifts = [
            shifted(
                made.ranked(r.text, vectorizer.of([r.text])[r.text], among),
                {"it": spoken_for(capabilities, r.files)},
                {"it": weight},
            )
            for r in foreign
        ]
        print(f"blind, any listing {weight:.1f}  {shown(foreign, shifts, '', profile)}")
    for name, sets in favoured.items():
        for weight in WEIGHTS:
            shifts = [
                shifted(scores, {"it": ids}, {"it": weight})
                for scores, ids in zip(ranked, sets, strict=True)
            ]
            halves = [shown(rows, shifts, half, profile) for half in ("tune", "test")]
            print(f"{name:30} {weight:.1f}  choosing: {halves[0]}  judging: {halves[1]}")


def shown(
    rows: list[PairedRow], shifts: list[list[Score]], half: str, profile: gates.RoutingProfile
) -> str:
    """Return the shares of correct, wrong and found, and of false activations."""
    wanted, unwanted = np.zeros(3), 0
    counts = [0, 0]
    for at, (row, scores) in enumerate(zip(rows, shifts, strict=True)):
        # A text may occur with several listings, so its position is part of the hashed text.
        if half and part_of(f"{at} {row.text}") != half:
            continue
        decision = gates.decide(scores, (), profile)
        is_on = decision.outcome == "activate"
        counts[row.label is None] += 1
        if row.label is None:
            unwanted += is_on
            continue
        is_right = is_on and decision.id is not None and decision.id.name == row.label
        told = any(id_.name == row.label for id_ in decision.suggested)
        wanted += (is_right, is_on and not is_right, is_right or told)
    right, wrong, found = wanted / max(1, counts[0])
    false = unwanted / max(1, counts[1])
    return f"{right:.3f} / {wrong:.3f} / {false:.3f}, found {found:.3f} ({counts[0]}+{counts[1]})"


if __name__ == "__main__":
    main()
