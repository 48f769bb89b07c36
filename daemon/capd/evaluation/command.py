"""`python -m capd eval ...`: selects the data and the scorer, and prints the results."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from capd.adapters.routing_files import read_profile
from capd.core.errors import CapdError
from capd.core.routing import gates
from capd.core.routing.gates import RoutingProfile
from capd.core.routing.passages import passages_of
from capd.core.routing.scorers import SCORERS
from capd.evaluation import datasets, route, search
from capd.evaluation.datasets import PARTS, BadDataError, Selection
from capd.evaluation.vectors import Vectorizer, vectorizer_for
from capd_protos.types import CapabilitySpec

FAILED = 1


def main(arguments: Sequence[str]) -> int:
    """Run the evaluation that `arguments` describe, and print its results; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        text = _searched(options) if options.what == "search" else _routed(options)
    except CapdError as error:
        sys.stderr.write(f"capd: {error}\n")
        return FAILED
    sys.stdout.write(text + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="capd eval", description=__doc__)
    kinds = parser.add_subparsers(dest="what", required=True)
    one = kinds.add_parser("route", help="how well messages are routed")
    one.add_argument(
        "--tap", type=Path, action="append", default=[], help="the folder of a tap; may be repeated"
    )
    one.add_argument("--overlays", type=Path, action="append", default=[], help="of the taps")
    one.add_argument(
        "--missing-secrets", action="store_true", help="as for a user who has stored no key at all"
    )
    one.add_argument("--catalogue", type=Path, help="{name, triggers, description} lines instead")
    one.add_argument("--triggers-from", type=Path, action="append", default=[])
    one.add_argument("--catalogue-set", default="", help="only lines of this `set`")
    one.add_argument("--data", type=Path, action="append", required=True)
    one.add_argument("--set", default="", help="only rows of this `set`")
    one.add_argument("--split", default="", help="only rows of this `split`")
    one.add_argument("--part", choices=PARTS, default="all", help="side of the development split")
    one.add_argument("--drop-src-trigger", action="store_true")
    one.add_argument("--skip-unknown-labels", action="store_true")
    one.add_argument(
        "--skip-near-copies",
        type=float,
        metavar="COSINE",
        help="leave out rows that are this close to a trigger of the catalogue",
    )
    one.add_argument("--scorer", choices=(*SCORERS, "published"), default="")
    one.add_argument("--profile", type=Path, help="in place of the one that comes with capd")
    one.add_argument("--no-latency", action="store_true", help="leave out the timing")
    _common(one)
    two = kinds.add_parser("search", help="how well tools are found")
    two.add_argument("--tools", type=Path, required=True)
    two.add_argument("--queries", type=Path, required=True)
    two.add_argument("--split", default="")
    two.add_argument("--part", choices=PARTS, default="all")
    two.add_argument("--skip-unknown-labels", action="store_true")
    two.add_argument("--lexical", action="store_true", help="without the model")
    _common(two)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--vectors", type=Path, help="a file that keeps vectors between runs")


def _routed(options: argparse.Namespace) -> str:
    capabilities = _capabilities(options)
    rows = Selection(options.split, options.set, options.part).rows(options.data)
    kept = route.known_rows(rows, capabilities, skip_unknown=options.skip_unknown_labels)
    if not kept:
        raise BadDataError("no row is left to be judged")
    profile = _profile(options)
    vectorizer = vectorizer_for(profile, options.vectors)
    vectorizer.of(text for row in kept for text in passages_of(row.text).each)
    if options.skip_near_copies is not None:
        kept = route.without_near_copies(kept, capabilities, vectorizer, options.skip_near_copies)
    keys: tuple[str, ...] | None = () if options.missing_secrets else None
    router = route.Router(capabilities, profile, vectorizer, keys=keys)
    judged = [
        route.Judged(row, router.decided(row, drop_src_trigger=options.drop_src_trigger))
        for row in kept
    ]
    latency = None if options.no_latency else router.timed(kept[: route.TIMED])
    result = route.report(judged, profile.scorer, len(capabilities), len(rows) - len(kept), latency)
    if options.as_json:
        return msgspec.json.encode(result).decode()
    return route.table(result)


def _capabilities(options: argparse.Namespace) -> tuple[CapabilitySpec, ...]:
    if (not options.tap) == (options.catalogue is None and not options.triggers_from):
        raise BadDataError("say either --tap, or --catalogue and --triggers-from")
    if options.tap:
        return datasets.tap(*options.tap, overlays=options.overlays)
    return datasets.catalogue(options.catalogue, options.triggers_from, options.catalogue_set)


def _profile(options: argparse.Namespace) -> RoutingProfile:
    if options.scorer == "published":
        return gates.PUBLISHED
    if options.scorer == "trigger_mean":
        return gates.MINILM_INT8
    return read_profile(options.profile) if options.profile else read_profile()


def _searched(options: argparse.Namespace) -> str:
    vectorizer = Vectorizer(options.vectors)
    result = search.evaluate(
        search.read_tools(options.tools),
        search.read_queries(options.queries, options.part, options.split),
        None if options.lexical else vectorizer.stacked,
        skip_unknown_labels=options.skip_unknown_labels,
    )
    return msgspec.json.encode(result).decode() if options.as_json else search.table(result)
