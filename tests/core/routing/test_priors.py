"""Priors decide only between capabilities that they favour."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.adapters.routing_files import read_profile
from capd.core.routing.gates import decide
from capd.core.routing.priors import MOST_PLACES, MOST_USED, PRIORS, Use, shifted, spoken_for
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec, Score, TapName


def id_of(name: str) -> CapabilityId:
    return CapabilityId(TapName("t"), CapabilityName(name))


def ranked(**scores: float) -> list[Score]:
    return [Score(id_of(name), score) for name, score in scores.items()]


RUST, PYTHON = id_of("rust"), id_of("python")


@pytest.mark.parametrize(
    ("patterns", "listing", "speaks"),
    [
        (("Cargo.toml",), ("Cargo.toml", "src/"), True),
        (("*.tf",), ("main.tf",), True),
        (("*.tf",), ("main.tfvars",), False),
        ((".git/",), (".git/",), True),
        ((".git/",), (".git",), False),
        ((".env:STRIPE_*",), (".env", ".env:STRIPE_KEY"), True),
        ((".env:STRIPE_*",), (".env",), False),
        (("cargo.toml",), ("Cargo.toml",), False),
        ((), ("Cargo.toml",), False),
        (("Cargo.toml",), (), False),
    ],
)
def test_a_file_speaks_for_the_capabilities_that_name_it(
    patterns: tuple[str, ...], listing: tuple[str, ...], *, speaks: bool
) -> None:
    got = spoken_for([CapabilitySpec(RUST, "", files=patterns)], listing)

    assert got == (frozenset({RUST}) if speaks else frozenset())


def test_a_prior_decides_between_two_that_the_message_speaks_for() -> None:
    before = ranked(python=0.5, rust=0.25)

    got = shifted(before, {"files": {RUST}}, {"files": 1.3862943611198906})

    assert [(score.id, round(score.score, 6)) for score in got] == [(RUST, 0.5), (PYTHON, 0.25)]


@pytest.mark.parametrize(
    ("favoured", "weights"),
    [
        ({}, {"files": 2.0}),
        ({"files": {RUST}}, {}),
        ({"files": {RUST}}, {"session": 2.0}),
        ({"files": {id_of("other")}}, {"files": 2.0}),
    ],
)
def test_a_prior_that_is_off_or_favours_nobody_changes_nothing(
    favoured: dict[str, set[CapabilityId]], weights: dict[str, float]
) -> None:
    before = ranked(python=0.5, rust=0.25)

    got = shifted(before, favoured, weights)

    assert got == before


@given(
    # Of numbers that are almost none a share is no longer the share.
    st.lists(st.floats(0, 1).map(lambda share: round(share, 6)), min_size=1, max_size=6),
    st.dictionaries(st.sampled_from(PRIORS), st.floats(-20, 20)),
    st.sets(st.integers(0, 5)),
)
def test_a_message_without_evidence_never_activates_whatever_the_priors(
    shares: list[float], weights: dict[str, float], favoured: set[int]
) -> None:
    profile = read_profile()
    # However it is divided, all of it together is below the bar.
    whole = sum(shares) or 1.0
    scores = [
        Score(id_of(f"c{at}"), 0.99 * profile.threshold * (share / whole))
        for at, share in enumerate(shares)
    ]
    ids = {id_of(f"c{at}") for at in favoured}

    got = decide(shifted(scores, dict.fromkeys(PRIORS, ids), weights), (), profile)

    assert got.outcome != "activate"


def test_a_catalogue_of_zeros_stays_as_it_is() -> None:
    got = shifted(ranked(python=0.0), {"files": {PYTHON}}, {"files": 2.0})

    assert got == ranked(python=0.0)


def test_use_is_remembered_by_place() -> None:
    use = Use()
    use.note("session a", RUST)
    use.note("session b", PYTHON)

    got = [use.of(f"session {name}") for name in "abc"]

    assert got == [{RUST}, {PYTHON}, frozenset()]


def test_the_last_used_of_the_last_places_are_kept() -> None:
    use = Use()
    for number in range(MOST_PLACES + 1):
        use.note(f"place {number}", RUST)
    for number in range(MOST_USED + 1):
        use.note("busy", id_of(f"c{number}"))

    got = (use.of("place 0"), use.of(f"place {MOST_PLACES}"), use.of("busy"))

    busy = {id_of(f"c{number}") for number in range(1, MOST_USED + 1)}
    assert [set(ids) for ids in got] == [set(), {RUST}, busy]
