"""Learns low-rank changes of the sentence encoder for routing.

    python -m bench.adapter --sets bench/routing-tuning.toml --root ../shared/data \
        --cache FOLDER --out FOLDER [--only all,writer0]

It writes `all.bin`, learnt from all rows of the sets with `teaches`, and for each fold of
`bench.routing_tuning` one file, learnt without the rows of that fold. Only `all.bin` ships, as
`daemon/capd/adapters/model/routing_adapter.bin`. `bench.routing_tuning --encoders` needs the other
files to fit weights and to judge.

Each file takes about six minutes on one core. The first run also computes hidden states, which
takes about four minutes. The command needs torch and onnx, which capd does not: `pip install
torch==2.13.0 onnx`. docs/design/routing-low-rank.md says what the changes bring and cost.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capd.adapters.model.minilm import MiniLM
from capd.core.errors import CapdError
from capd.evaluation.vectors import Vectorizer

if TYPE_CHECKING:
    from bench.adapter.encoder import Encoder, Texts

_REPORTED = 50
# Texts of different lengths, short and long, for the check against onnxruntime.
_CHECKED = (
    "git",
    "take a screenshot of the login page",
    "which indexes exist on the events table?",
    "thanks, that solved it",
    "QA says that the dialog stays open on a phone. Load the page and check whether it closes.",
    "why is the café's menu 20 % dearer than in März 2024 (see #1234)?",
    "The tests were green yesterday. " * 12,
    "word " * 400,
)
_LEAST_COSINE = 0.98
"""The least cosine between a text's vector by onnxruntime and its vector by torch."""


def main() -> int:
    """Learn the changes."""
    options = _options()
    try:
        # Only to say in one line what is missing: the modules below import both.
        import onnx  # noqa: F401, PLC0415 # pyright: ignore[reportMissingImports]
        import torch  # noqa: F401, PLC0415 # pyright: ignore[reportMissingImports]
    except ImportError as error:
        sys.stderr.write(f"{error}; install it: pip install torch==2.13.0 onnx\n")
        return 1
    try:
        _learn(options)
    except (CapdError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _learn(options: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415 # pyright: ignore[reportMissingImports]
    from bench import routing_tuning  # noqa: PLC0415 - with torch, which may not be installed
    from bench.adapter import encoder, learning  # noqa: PLC0415

    folds: list[routing_tuning.Fold | None] = [None, *routing_tuning.all_folds()]
    if options.only:
        folds = [learning.fold_named(name) for name in options.only.split(",")]
    options.cache.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    vectorizer = Vectorizer(options.cache / "vectors")
    sets = [
        routing_tuning.prepared(spec, options.root, options.sets.parent, vectorizer)
        for spec in routing_tuning.read_list(options.sets)
    ]
    if not any(one.spec.teaches for one in sets):
        raise encoder.AdapterError(f"no set of {options.sets} has `teaches`")
    model = encoder.pinned_model()
    texts = encoder.Texts(learning.texts_of_sets(sets), options.cache, model)
    _say(f"{len(texts.row_of)} texts, {texts.lengths.sum()} tokens")
    layers = encoder.Encoder(model, torch.bfloat16)
    exact = encoder.Encoder(model, torch.float32)
    unchanged = texts.vectors(np.arange(len(texts.row_of)), exact, {})
    steps = options.steps or learning.STEPS
    for fold in folds:
        lessons = learning.lessons_of(sets, fold, texts, unchanged)
        report = _reporter(str(fold or "all"), steps)
        adapter = learning.learnt(lessons, texts, layers, steps=steps, report=report)
        file = routing_tuning.adapter_file(options.out, fold)
        file.write_bytes(adapter)
        if fold is None:
            _check(adapter, encoder.Texts(_CHECKED, options.cache, model), exact)
        _say(f"{file} written")


def _check(adapter: bytes, texts: "Texts", exact: "Encoder") -> None:
    """Check that the daemon's graph gives the vectors that were learnt.

    Raises:
        AdapterError: it does not.
    """
    from bench.adapter import encoder  # noqa: PLC0415 - with torch, which may not be installed

    rows = np.arange(len(texts.row_of))
    expected = texts.vectors(rows, exact, encoder.changes_of(adapter))
    found = MiniLM(adapter=adapter).embed(_CHECKED, is_changed=True)
    lowest = float((found * expected).sum(axis=1).min())
    if not lowest >= _LEAST_COSINE:
        raise encoder.AdapterError(f"onnxruntime has other vectors: a cosine is {lowest:.5f}")


def _reporter(name: str, steps: int) -> Callable[[int, float], None]:
    """Return a function that takes each step with its loss, and prints a line at every 50th."""
    losses: list[float] = []
    begun = time.monotonic()

    def report(step: int, loss: float) -> None:
        losses.append(loss)
        if (step + 1) % _REPORTED == 0 or step + 1 == steps:
            mean = sum(losses) / len(losses)
            each = (time.monotonic() - begun) / (step + 1)
            _say(f"{name}, step {step + 1}: mean loss {mean:.3f}, {each:.2f} s a step")
            losses.clear()

    return report


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.adapter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sets", type=Path, required=True, help="the list of sets (TOML)")
    parser.add_argument("--root", type=Path, required=True, help="what paths are relative to")
    parser.add_argument("--cache", type=Path, required=True, help="a folder kept between runs")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    parser.add_argument("--only", help="folds that are left out, with commas; `all` for none")
    parser.add_argument("--steps", type=int, help="fewer than usual, to try the command")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
