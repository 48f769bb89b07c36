"""Learns low-rank changes of the sentence encoder, and puts them into its graph.

    python -m bench.adapter learn --sets bench/routing-tuning.toml --root ../shared/data \
        --cache FOLDER --out adapter.npz [--fold writer0]
    python -m bench.adapter graph --adapter adapter.npz --out model.onnx [--switched]

`learn` learns from the sets with `teaches`, in two to five minutes on one core. The first run also
computes the vectors and hidden states of all texts, in some four. With a fold left out, `learn`
then judges the model as it is and the changed one by the rows of that fold
(`bench/adapter/held_out.py`). Only what was learnt from all rows should ship. `graph` writes the
model file with the changes, and checks it against torch.

What an adapter gains (correct / wrong / false, as in docs/design/routing.md):

    left out, judged by      as it is              changed
    writer0, starter tap     .549 / .013 / .041    .808 / .027 / .033
    writer0, public tap      .628 / .018 / .041    .811 / .010 / .027
    label3, starter tap      .684 / .021 / .054    .804 / .011 / .040
    label3, public tap       .692 / .019 / .023    .761 / .027 / .005

Neither side has a projection. Over all writers of the starter tap, each held out, the net figure of
docs/design/routing-experiments.md was .642 without anything, .690 with a projection, .804 with an
adapter, and .817 with a projection on top of an adapter. That was before `fifth-starter.jsonl` and
`fifth-public.jsonl` were among the rows.

It costs where nothing was learnt from: messages in other languages are taken for "none" more often,
and of catalogs such as CLINC150 and MetaTool fewer messages are routed. Tools are found worse:
`bench/adapter/graph.py`. Measure these before an adapter ships.

Both need torch and onnx, which capd does not: `pip install torch==2.13.0 onnx`.
"""

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from capd.core.errors import CapdError

_REPORTED = 50
_SHOWN = ("correct", "wrong", "false_activation", "found", "false_suggestion", "recall@1")
# Texts of different lengths, short and long, for the check of a graph.
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


def main() -> int:
    """Learn, or write a graph."""
    options = _options()
    try:
        import onnx  # noqa: F401, PLC0415 # pyright: ignore[reportMissingImports]
        import torch  # noqa: F401, PLC0415 # pyright: ignore[reportMissingImports]
    except ImportError as error:
        sys.stderr.write(f"{error}; install it: pip install torch==2.13.0 onnx\n")
        return 1
    try:
        if options.command == "learn":
            _learn(options)
        else:
            _graph(options)
    except (CapdError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _learn(options: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415 # pyright: ignore[reportMissingImports]
    from bench import routing_tuning  # noqa: PLC0415 - with torch, which may not be installed
    from bench.adapter import encoder, held_out, learning  # noqa: PLC0415

    from capd.evaluation.vectors import Vectorizer  # noqa: PLC0415

    fold = learning.fold_named(options.fold) if options.fold else None
    options.cache.mkdir(parents=True, exist_ok=True)
    vectorizer = Vectorizer(options.cache / "vectors")
    sets = [
        routing_tuning.prepared(spec, options.root, options.sets.parent, vectorizer)
        for spec in routing_tuning.read_list(options.sets)
        if spec.teaches
    ]
    if not sets:
        raise encoder.AdapterError(f"no set of {options.sets} has `teaches`")
    model = encoder.pinned_model()
    texts = encoder.Texts(learning.texts_of(sets), options.cache, model)
    _say(f"{len(texts.row_of)} texts, {texts.lengths.sum()} tokens")
    layers = encoder.Encoder(model, torch.bfloat16)
    lessons = learning.lessons_of(sets, fold, texts)
    steps = options.steps or learning.STEPS
    adapter = learning.learnt(
        lessons, texts, layers, fold=fold, steps=steps, report=_reporter(steps)
    )
    adapter.save(options.out)
    if fold is None:
        return
    changed = held_out.ChangedVectors(texts, layers, adapter.tensors())
    for name, vectors in (("as it is", None), ("changed", changed)):
        for one in held_out.judged(sets, fold, vectors):
            figures = "  ".join(f"{key} {one.measures[key]:.3f}" for key in _SHOWN)
            print(f"{name:9} {one.name:26} {figures}  ({one.wanted} + {one.unwanted})")


def _graph(options: argparse.Namespace) -> None:
    from bench.adapter import encoder, graph  # noqa: PLC0415 - with torch and onnx, as above

    adapter = encoder.Adapter.load(options.adapter)
    if adapter.fold:
        _say(f"{options.adapter} was learnt without {adapter.fold}: it should not ship")
    model = encoder.pinned_model()
    changed = graph.with_adapter(model, adapter, is_switched=options.switched)
    with tempfile.TemporaryDirectory(prefix="capd") as folder:
        texts = encoder.Texts(_CHECKED, Path(folder), model)
        lowest = graph.checked(changed, model, adapter, texts, is_switched=options.switched)
    options.out.write_bytes(changed)
    print(f"{len(changed)} bytes, {len(changed) - len(model)} more than the model as it is")
    print(f"sha256 {hashlib.sha256(changed).hexdigest()}")
    print(f"lowest cosine with torch {lowest:.6f}")


def _reporter(steps: int) -> Callable[[int, float], None]:
    """Return a function that is called with each step and its loss, and tells of every 50th."""
    losses: list[float] = []
    begun = time.monotonic()

    def report(step: int, loss: float) -> None:
        losses.append(loss)
        if (step + 1) % _REPORTED == 0 or step + 1 == steps:
            mean = sum(losses) / len(losses)
            each = (time.monotonic() - begun) / (step + 1)
            _say(f"step {step + 1}: mean loss {mean:.3f}, {each:.2f} s a step")
            losses.clear()

    return report


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.adapter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    learn = commands.add_parser("learn", help="learn an adapter from labelled sets")
    learn.add_argument("--sets", type=Path, required=True, help="the list of sets (TOML)")
    learn.add_argument("--root", type=Path, required=True, help="what paths are relative to")
    learn.add_argument("--cache", type=Path, required=True, help="a folder kept between runs")
    learn.add_argument("--out", type=Path, required=True, help="the adapter's file (npz)")
    learn.add_argument("--fold", help="what is left out and judged, such as writer0 or label3")
    learn.add_argument("--steps", type=int, help="fewer than usual, to try the command")
    graph = commands.add_parser("graph", help="write the model file with an adapter")
    graph.add_argument("--adapter", type=Path, required=True, help="what `learn` wrote")
    graph.add_argument("--out", type=Path, required=True, help="the model file (ONNX)")
    graph.add_argument("--switched", action="store_true", help="an input turns the changes on")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
