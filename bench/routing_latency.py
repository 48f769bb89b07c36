"""How long a decision takes at 60 and at 1,000 capabilities.

    python -m bench.routing_latency VECTORS

The catalogs are copies of the tap that comes with capd under other names, with the vectors of its
phrases turned a little at random, so that no two are alike. The message is embedded each time.
Messages of up to 320 characters and longer ones, which have several parts, are measured apart.
"""

import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from capd.adapters.routing_files import background_messages, read_profile
from capd.core.routing import deciding, gates
from capd.core.routing.deciding import Circumstances
from capd.core.routing.passages import passages_of
from capd.core.routing.scorers import texts_of
from capd.evaluation import datasets
from capd.evaluation.datasets import Selection
from capd.evaluation.vectors import vectorizer_for
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec

ROOT = Path(__file__).parents[1]
PHRASES = 25
MESSAGES = 400
TURNED = 0.02


def copies(count: int) -> list[CapabilitySpec]:
    own = datasets.tap(ROOT / "taps/starter", overlays=[ROOT / "taps/overlays/starter"])
    return [
        msgspec.structs.replace(
            own[at % len(own)],
            id=CapabilityId(own[0].id.tap, CapabilityName(f"{own[at % len(own)].id.name}-{at}")),
            extra_triggers=own[at % len(own)].extra_triggers[:PHRASES],
        )
        for at in range(count)
    ]


def main() -> int:
    profile = read_profile()
    vectorizer = vectorizer_for(profile, Path(sys.argv[1]))
    files = [ROOT / f"bench/routing/{name}.jsonl" for name in ("starter", "fifth-starter")]
    messages = [passages_of(row.text) for row in Selection().rows(files)]
    kinds = {
        "short": [each for each in messages if not each.others],
        "long": [each for each in messages if each.others],
    }
    random = np.random.default_rng(5)
    print("| capabilities | phrases | messages | p50 ms | p99 ms | without the model: p50 | p99 |")
    print("|---|---|---|---|---|---|---|")
    for count in (60, 1000):
        specs = copies(count)
        texts = [text for each in specs for text in texts_of(each)]
        vectors = vectorizer.of([*texts, *background_messages()])
        turned = {
            text: vector + random.normal(0, TURNED, vector.shape).astype(np.float32)
            for text, vector in vectors.items()
        }
        compared = deciding.comparison(profile, specs, turned, background_messages())
        known = Circumstances(gates.eligible(specs, "", ()))
        phrases = sum(len(each.triggers) + len(each.extra_triggers) for each in specs)
        for kind, some in kinds.items():
            whole: list[float] = []
            rest: list[float] = []
            for at in range(MESSAGES):
                message = some[at % len(some)]
                started = time.perf_counter()
                parts = list(vectorizer.embed(message.each))
                embedded = time.perf_counter()
                deciding.decided(message, parts, compared, profile, known)
                whole.append(time.perf_counter() - started)
                rest.append(time.perf_counter() - embedded)
            numbers = [
                1000 * value for each in (whole, rest) for value in np.percentile(each, [50, 99])
            ]
            shown = " | ".join(f"{value:.1f}" for value in numbers)
            print(f"| {count} | {phrases} | {kind} | {shown} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
