"""What learning from use brings, by simulation: `python -m bench.routing_learning DATA VECTORS`.

Each writer of messages is one user. A profile that was fitted without this writer routes 30 of the
writer's messages, one after the other. capd learns from what the person and the model then do. How
well the writer's other messages are routed is measured after 0, 10 and 30 of them. Each user is
simulated with several orders of the messages.

The constants of `core/routing/learning.py` were chosen with the writers of `CHOSEN_WITH`
(`--choose`); the tables report the others. DATA is the folder of shared data, and VECTORS a file
that keeps vectors between runs. `--encoders` is the folder that `python -m bench.adapter` wrote;
without it the encoder is the unchanged one. Nothing is random.
"""

import argparse
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bench.routing_projection import learnt as learnt_projection
from bench.routing_tuning import (
    Encoders,
    Fold,
    divided,
    lessons_for,
    prepared,
    projected,
    read_list,
    writer_fold,
)

from capd.adapters.routing_files import read_profile
from capd.core.routing import learning
from capd.core.routing.calibration import PENALTY, fitted, meaning, named
from capd.core.routing.gates import RoutingProfile
from capd.core.routing.learning import Learnt, after
from capd.evaluation import datasets, route
from capd.evaluation.datasets import Row, Selection
from capd.evaluation.route import Judged, Ranked
from capd.evaluation.vectors import Vectorizer
from capd_protos.types import CapabilityId, Decision, RoutingAct, RoutingLabel

HERE = Path(__file__).parent
OVERLAYS = HERE.parent / "taps/overlays"
CHOSEN_WITH = ("chatty-junior", "nonnative", "ops-oncall", "student")
LEARNT_FROM = 30
STAGES = (0, 10, 30)
ORDERS = 12
FEW = {"starter": 6, "public": 12}
"""By tap, the number of capabilities of a user who often wants the same few. It is lower in the
starter tap, where each capability has more rows."""
FEW_USERS = 24
PROJECT = "simulated"

Acts = Callable[["Message", Decision], list[tuple[CapabilityId, RoutingAct]]]
"""Returns what the person and the model do after a message, given the decision on it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a user, with the facts that learning does not change."""

    row: Row
    router: route.Router
    """Has the profile that was fitted without the writer."""
    ranked: Ranked | Decision

    def decided(self, learnt: Learnt) -> Decision:
        if isinstance(self.ranked, Decision):
            return self.ranked
        return self.router.concluded(self.ranked, learnt, PROJECT)

    @property
    def wanted(self) -> CapabilityId | None:
        """Return what the writer wants; if several are right, the best ranked."""
        if isinstance(self.ranked, Decision):
            return None
        return next((s.id for s in self.ranked.scores if s.id.name in self.row.right), None)


@dataclass(frozen=True, slots=True)
class User:
    """A writer with one tap, or several writers that are taken for one user."""

    tap: str
    messages: tuple[Message, ...]
    count: int = ORDERS
    """In how many orders the messages are taken."""

    def orders(self) -> Iterator[tuple[list[Message], list[Message]]]:
        """Yield the rows to learn from, and the rows to judge by."""
        for number in range(self.count):
            mixed = sorted(
                self.messages,
                key=lambda m: _mixed(number, m.row.text),
            )
            yield mixed[:LEARNT_FROM], mixed[LEARNT_FROM:]


def diligent(message: Message, decision: Decision) -> list[tuple[CapabilityId, RoutingAct]]:
    """Correct every decision; the model calls the tools of the right capability."""
    acts: list[tuple[CapabilityId, RoutingAct]] = []
    wanted = message.wanted
    on = decision.id if decision.outcome == "activate" else None
    if on is not None and on.name not in message.row.right:
        acts.append((on, "disabled"))
    if wanted is None:
        return acts
    is_given = (on is not None and on.name in message.row.right) or wanted in decision.suggested
    acts.append((wanted, "called" if is_given else "enabled"))
    return acts


def seldom(message: Message, decision: Decision) -> list[tuple[CapabilityId, RoutingAct]]:
    """Do as `diligent`, but correct only about one message in three, chosen by its text."""
    is_moved = hashlib.sha256(message.row.text.encode()).digest()[0] % 3 == 0
    acts = diligent(message, decision)
    return acts if is_moved else [each for each in acts if each[1] == "called"]


def careless(message: Message, decision: Decision) -> list[tuple[CapabilityId, RoutingAct]]:
    """Switch on the best-ranked capability unless it was activated; switch nothing off."""
    best = _best(message)
    return [(best, "enabled")] if best is not None and decision.id != best else []


def induced(message: Message, decision: Decision) -> list[tuple[CapabilityId, RoutingAct]]:
    """Call every capability that came on or was suggested, as a hostile server may cause."""
    del message
    brought = [decision.id] if decision.id is not None else []
    act: RoutingAct = "called"
    return [(each, act) for each in (*brought, *decision.suggested)]


def contrary(message: Message, decision: Decision) -> list[tuple[CapabilityId, RoutingAct]]:
    """Switch off the right capability, and switch on the best wrong one."""
    acts: list[tuple[CapabilityId, RoutingAct]] = []
    if decision.outcome == "activate" and decision.id and decision.id.name in message.row.right:
        acts.append((decision.id, "disabled"))
    if isinstance(message.ranked, Ranked):
        others = [s.id for s in message.ranked.scores if s.id.name not in message.row.right]
        if others:
            acts.append((others[0], "enabled"))
    return acts


def _best(message: Message) -> CapabilityId | None:
    return None if isinstance(message.ranked, Decision) else message.ranked.scores[0].id


def learnt_after(messages: Sequence[Message], acts: Acts) -> Iterator[Learnt]:
    """Yield what is learnt before the first message, and after each message."""
    learnt = Learnt()
    yield learnt
    for message in messages:
        decision = message.decided(learnt)
        scores = {each.id: each.score for each in decision.top}
        for id_, act in acts(message, decision):
            score = scores.get(id_, 0.0)
            learnt = after(learnt, RoutingLabel(0.0, str(id_), act, score, "m", PROJECT))
        yield learnt


def measured(users: Sequence[User], acts: Acts, stages: Sequence[int]) -> list[dict[str, float]]:
    """Return the measures on held-out rows, at each stage."""
    counted: list[Counter[str]] = [Counter() for _ in stages]
    rows: list[Counter[str]] = [Counter() for _ in stages]
    for user in users:
        for taught, judged in user.orders():
            known = list(learnt_after(taught, acts))
            for at, stage in enumerate(stages):
                for message in judged:
                    decision = message.decided(known[stage])
                    values = Judged(message.row, decision).values()
                    rows[at].update(values.keys())
                    counted[at].update(name for name, value in values.items() if value)
    return [
        {name: came[name] / number for name, number in of.items()}
        for came, of in zip(counted, rows, strict=True)
    ]


def worst(users: Sequence[User]) -> dict[str, tuple[float, float]]:
    """Return two shares of the messages that want nothing, for each tap.

    The first is of those that activate something without any history; the second of those that
    some history could make activate something.
    """
    found: dict[str, tuple[float, float]] = {}
    profile = read_profile()
    bar = learning.lowest_activated(profile.threshold)
    bar_of_all = learning.lowest_activated(profile.activate_at)
    for tap in dict.fromkeys(user.tap for user in users):
        messages = [
            each
            for user in users
            if user.tap == tap
            for each in user.messages
            if not each.row.right
        ]
        now = sum(m.decided(Learnt()).outcome == "activate" for m in messages)
        could = sum(
            isinstance(m.ranked, Ranked)
            and m.ranked.scores[0].score >= bar
            and sum(each.score for each in m.ranked.scores) >= bar_of_all
            for m in messages
        )
        found[tap] = (now / len(messages), could / len(messages))
    return found


def users_of(
    data: Path, vectorizer: Vectorizer, encoders: Encoders, *, is_choosing: bool
) -> list[User]:
    """Return the users for choosing the constants, or those for the report."""
    profile = read_profile()
    without = _profiles(data, profile, vectorizer, encoders)
    taps = {
        "starter": datasets.tap(
            HERE.parent / "taps/starter",
            overlays=[OVERLAYS / "starter"],
        ),
        "public": datasets.tap(data / "octomind-tap", overlays=[OVERLAYS / "octomind"]),
    }
    rows = {name: Selection().rows([HERE / f"routing/{name}.jsonl"]) for name in taps}
    writers = sorted({row.writer for row in rows["starter"]})
    users: list[User] = []
    for writer in writers:
        if (writer in CHOSEN_WITH) is not is_choosing:
            continue
        fold = Fold("writer", writer_fold(writer))
        own = without(fold)
        for tap, capabilities in taps.items():
            router = route.Router(capabilities, own, encoders.without(fold))
            names = {str(each.id.name) for each in capabilities}
            messages = tuple(
                Message(row, router, router.ranked(row))
                for row in rows[tap]
                if row.writer == writer and (not row.right or row.right & names)
            )
            users.append(User(tap, messages))
    return users


def of_few(users: Sequence[User]) -> list[User]:
    """Return users who often want the same few capabilities, in the words of all writers."""
    found: list[User] = []
    for tap in dict.fromkeys(user.tap for user in users):
        messages = [each for user in users if user.tap == tap for each in user.messages]
        names = sorted({each.row.label for each in messages if each.row.label is not None})
        for number in range(FEW_USERS):
            chosen = set(sorted(names, key=lambda n: _mixed(number, n))[: FEW[tap]])
            wanted = tuple(each for each in messages if each.row.label in chosen)
            rest = [each for each in messages if each.row.label is None]
            rest = sorted(rest, key=lambda m: _mixed(number, m.row.text))[: len(wanted)]
            found.append(User(tap, (*wanted, *rest), 1))
    return found


def _mixed(number: int, text: str) -> bytes:
    return hashlib.sha256(f"{number} {text}".encode()).digest()


def _profiles(
    data: Path, profile: RoutingProfile, vectorizer: Vectorizer, encoders: Encoders
) -> Callable[[Fold], RoutingProfile]:
    """Return a function that returns `profile`, fitted to all rows but those of a group of writers.

    The thresholds stay.
    """
    file = HERE / "routing-tuning.toml"
    every = [prepared(spec, data, file.parent, vectorizer) for spec in read_list(file)]
    sets, choosing = divided(
        [one for one in every if not one.spec.least_correct], encoders, PENALTY
    )
    evidence = projected(sets, "writer", encoders, choosing)

    @cache
    def without(fold: Fold) -> RoutingProfile:
        parts = [
            found.only(one.writers != fold.number) if one.has_writers else found
            for one, found in zip(sets, evidence, strict=True)
        ]
        weights = fitted(parts, PENALTY)
        projection = learnt_projection(lessons_for(sets, fold, encoders.without(fold)))
        return replace(
            profile,
            weights=named(weights, has_projection=True),
            meaning=meaning(weights, has_projection=True),
            projection=projection.to_bytes(),
        )

    return without


def table(users: Sequence[User], acts: Acts, name: str) -> None:
    for tap in ("starter", "public"):
        some = [user for user in users if user.tap == tap]
        for stage, values in zip(STAGES, measured(some, acts, STAGES), strict=True):
            shares = " / ".join(
                f"{values[each]:.3f}" for each in ("correct", "wrong", "false_activation", "found")
            )
            print(f"| {tap} | {name} | {stage} | {shares} |")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.routing_learning", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--encoders", type=Path, help="the folder of `bench.adapter`")
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    vectorizer = Vectorizer(options.vectors)
    encoders = Encoders(options.encoders, vectorizer)
    users = users_of(options.data, vectorizer, encoders, is_choosing=options.choose)
    print("| tap | who | after | correct / wrong / false / found |")
    print("|---|---|---|---|")
    for name, acts in (
        ("corrects each message", diligent),
        ("corrects every third", seldom),
        ("switches on whatever is first", careless),
        ("calls whatever is named", induced),
        ("does the opposite", contrary),
    ):
        table(users, acts, name)
    table(of_few(users), diligent, "wants few, corrects each message")
    bar = learning.lowest_activated(read_profile().threshold)
    print(f"\nNo history activates a message under a score of {bar:.3f}.")
    for tap, (now, most) in worst(users).items():
        print(f"{tap}: false {now:.3f} without a history, at most {most:.3f} with any")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
