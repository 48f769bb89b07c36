"""Special cases of routing: `python -m bench.routing_cases DATA VECTORS`.

    near ties   messages that suit two capabilities alike: both should be suggested
    locked      messages for a capability whose key the user has not stored
    follow ups  messages that can only be understood with the one before

DATA is the folder of shared data (the public tap). VECTORS is a file that keeps vectors between
runs.
"""

import sys
from collections import Counter
from pathlib import Path

import msgspec

from capd.adapters.routing_files import read_profile
from capd.evaluation import datasets, route
from capd.evaluation.datasets import Row, Selection
from capd.evaluation.vectors import vectorizer_for

HERE = Path(__file__).parent
OVERLAYS = HERE.parent / "taps/overlays"


def rows(name: str) -> list[Row]:
    return Selection().rows([HERE / f"routing/{name}.jsonl"])


def near_ties(public: route.Router, names: set[str], file: str) -> None:
    print(f"\n{file}:\n")
    print("| siblings | messages | switched on | both suggested | one suggested | silent |")
    print("|---|---|---|---|---|---|")
    total: Counter[str] = Counter()
    pairs: dict[tuple[str, ...], list[Row]] = {}
    for row in rows(file):
        if names.issuperset(row.either):
            pairs.setdefault(row.either, []).append(row)
    for pair, messages in pairs.items():
        came: Counter[str] = Counter()
        for row in messages:
            decision = public.decided(row)
            shown = {str(each.name) for each in decision.suggested}
            if decision.outcome == "activate":
                came["on"] += 1
            elif shown.issuperset(pair):
                came["both"] += 1
            elif not shown.isdisjoint(pair):
                came["one"] += 1
            else:
                came["silent"] += 1
        total += came
        print(_line(" / ".join(pair), came, ("on", "both", "one", "silent")))
    print(_line("all", total, ("on", "both", "one", "silent")))


def locked(router: route.Router, names: set[str]) -> None:
    came: Counter[str] = Counter()
    for row in rows("locked"):
        if row.label not in names:
            continue
        decision = router.decided(row)
        if decision.outcome == "activate":
            came["on"] += 1
        elif any(each.id.name == row.label for each in decision.unusable):
            came["named"] += 1
        elif decision.unusable:
            came["another_named"] += 1
        else:
            came["silent"] += 1
    order = ("on", "named", "another_named", "silent")
    print(
        "| messages for a capability without its key | messages | another switched on |"
        " its key named | another's key named | neither |"
    )
    print("|---|---|---|---|---|---|")
    print(_line("public and starter tap, no key stored", came, order))


def follow_ups(routers: dict[str, route.Router], names: dict[str, set[str]]) -> None:
    print(
        "\n| follow-ups | messages | correct | wrong | found | false of those that want nothing |"
    )
    print("|---|---|---|---|---|---|")
    for is_blended in (False, True):
        values: list[dict[str, bool]] = []
        for name, router in routers.items():
            for row in Selection(set=name).rows([HERE / "routing/follow_ups.jsonl"]):
                if row.right and not row.right & names[name]:
                    continue
                asked = row if is_blended else msgspec.structs.replace(row, before="")
                values.append(route.Judged(row, router.decided(asked)).values())
        wanted = [each for each in values if "correct" in each]
        rest = [each["false_activation"] for each in values if "false_activation" in each]
        shares = [
            sum(each[m] for each in wanted) / len(wanted) for m in ("correct", "wrong", "found")
        ]
        shares.append(sum(rest) / len(rest))
        shown = " | ".join(f"{each:.3f}" for each in shares)
        name = "with the message before" if is_blended else "alone"
        print(f"| {name} | {len(wanted)} + {len(rest)} | {shown} |")


def _line(name: str, came: Counter[str], order: tuple[str, ...]) -> str:
    count = sum(came.values())
    shares = (f"{came[each] / count:.3f}" for each in order)
    return f"| {name} | {count} | {' | '.join(shares)} |"


def main() -> int:
    data, vectors = map(Path, sys.argv[1:3])
    profile = read_profile()
    vectorizer = vectorizer_for(profile, vectors)
    public = datasets.tap(data / "octomind-tap", overlays=[OVERLAYS / "octomind"])
    both = datasets.tap(
        HERE.parent / "taps/starter",
        data / "octomind-tap",
        overlays=[OVERLAYS / "starter", OVERLAYS / "octomind"],
    )
    names = {str(each.id.name) for each in public}
    for file in ("near_ties", "near_ties-third"):
        near_ties(route.Router(public, profile, vectorizer), names, file)
    without = route.Router(both, profile, vectorizer, keys=())
    lacking = {str(each.id.name) for each in both if each.wanted_keys}
    print(f"\n{len(both) - len(lacking)} of {len(both)} capabilities can be used without a key.\n")
    locked(without, lacking)
    starter = datasets.tap(HERE.parent / "taps/starter", overlays=[OVERLAYS / "starter"])
    taps = {"starter": starter, "public": public}
    follow_ups(
        {name: route.Router(each, profile, vectorizer) for name, each in taps.items()},
        {name: {str(c.id.name) for c in each} for name, each in taps.items()},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
