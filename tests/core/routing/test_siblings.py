"""Which capabilities a message cannot distinguish, and which words name one of them."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.routing.siblings import OF_ALTERNATIVES, Siblings
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Score,
    ServerName,
    ServerSpec,
    TapName,
)


def id_of(name: str) -> CapabilityId:
    return CapabilityId(TapName("t"), CapabilityName(name))


def spec(name: str, *triggers: str, title: str = "", server: str = "") -> CapabilitySpec:
    servers = (ServerSpec(ServerName(server), "stdio", TapName("t"), "x"),) if server else ()
    return CapabilitySpec(id_of(name), "", title=title, triggers=triggers, servers=servers)


def ranked(scores: Mapping[str, float]) -> list[Score]:
    found = [Score(id_of(name), score) for name, score in scores.items()]
    return sorted(found, key=lambda each: -each.score)


NOTHING: dict[str, Collection[CapabilityId]] = {}
ORDERS = [f"how many orders in week {week}" for week in range(12)]
BASES = [
    spec(
        "database-postgres",
        *ORDERS,
        "ask postgres for the rows",
        "query the postgres database",
        "postgres tables",
        "run psql",
        "what psql says",
        title="PostgreSQL Database",
    ),
    spec(
        "database-sqlite",
        "open the sqlite file",
        "tables of the sqlite file",
        "sqlite rows",
        "sqlite3 schema",
        title="SQLite Database",
    ),
    spec("shop", "refund an order", "list the orders of today", "orders that are not paid"),
]
CHATS = [
    spec("messaging-slack", "post on slack", "slack the team", "slack threads", server="slack"),
    spec("messaging-whatsapp", "send a whatsapp", "whatsapp my sister", title="WhatsApp Messaging"),
    spec("messaging-discord", "discord message", "tell the guild on discord", "guild roles"),
]
LAWS = [
    spec("legal-us", "look up the US law", "US statutes on tips", title="US Law", server="lawyer"),
    spec("legal-in", "Indian statutes", "the law in India", title="Indian Law", server="india"),
]


@pytest.mark.parametrize(
    ("text", "catalog", "winner", "expected"),
    [
        # A word of the phrases that others use as well names nothing.
        ("count the orders", BASES, "database-postgres", "database-sqlite"),
        ("count the orders in postgres", BASES, "database-postgres", ""),
        ("count the orders with psql", BASES, "database-postgres", ""),
        ("what is in the sqlite file", BASES, "database-sqlite", ""),
        ("what does the postgres table have", BASES, "database-sqlite", "database-postgres"),
        # Half of a name names nothing.
        ("whats new, tell the app team", CHATS, "messaging-whatsapp", "messaging-slack"),
        ("WhatsApp the app team", CHATS, "messaging-whatsapp", ""),
        ("tell the guild", CHATS, "messaging-discord", ""),
        # What the titles of all have names none; a small word counts in capitals alone.
        ("what does the law say on tips", LAWS, "legal-us", "legal-in"),
        ("what does our law do for us", LAWS, "legal-us", "legal-in"),
        ("US law on tips", LAWS, "legal-us", ""),
        ("tell us what is in the statutes", LAWS, "legal-in", "legal-us"),
    ],
)
def test_only_words_of_its_own_name_an_alternative(
    text: str, catalog: list[CapabilitySpec], winner: str, expected: str
) -> None:
    family = winner.partition("-")[0]
    rivals = [str(each.id.name) for each in catalog if each.id.name.startswith(family)]
    scores = {name: 0.8 if name == winner else 0.1 for name in rivals}

    got = Siblings(catalog).unclear(text, ranked(scores), NOTHING)

    assert [str(each.name) for each in got[1:2]] == ([expected] if expected else [])


@pytest.mark.parametrize(("phrases_with_the_name", "expected"), [(12, True), (8, False)])
def test_members_that_are_named_in_a_tenth_of_their_phrases_are_alternatives(
    phrases_with_the_name: int, expected: bool
) -> None:
    rest = [f"ship {number}" for number in range(100 - phrases_with_the_name)]
    catalog = [
        spec(
            f"way-{name}",
            *[f"{name}road {number}" for number in range(phrases_with_the_name)],
            *rest,
            title=f"{name}road",
        )
        for name in ("air", "rail")
    ]
    scores = ranked({"way-air": 0.8, "way-rail": OF_ALTERNATIVES})

    got = Siblings(catalog).unclear("ship it", scores, NOTHING)

    assert [str(each.name) for each in got] == (["way-air", "way-rail"] if expected else [])


TOOLS = [
    spec("git-read", "show the log", "what changed"),
    spec("git-write", "commit it", "stage the changes"),
    spec("git-push", "push the changes", "publish the branch"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("commit the changes", []),
        ("put the changes in", ["git-write", "git-push"]),
    ],
)
def test_a_word_that_no_sibling_has_names_what_does_another_thing(
    text: str, expected: list[str]
) -> None:
    got = Siblings(TOOLS).unclear(text, ranked({"git-write": 0.8, "git-push": 0.1}), NOTHING)

    assert [str(each.name) for each in got] == expected


WORDS = st.sampled_from(["post", "send", "the", "team", "lunch", "channel", "group", "photo"])
SCORES = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3)


@given(st.lists(WORDS, max_size=12), SCORES)
def test_a_message_that_names_no_alternative_is_open_as_long_as_another_is_possible(
    said: list[str], scores: list[float]
) -> None:
    order = ranked(dict(zip([each.id.name for each in CHATS], scores, strict=True)))
    possible = [each.id for each in order[1:] if each.score >= OF_ALTERNATIVES]

    got = Siblings(CHATS).unclear(" ".join(said), order, NOTHING)

    assert list(got) == ([order[0].id, *possible] if possible else [])


@given(st.lists(WORDS, max_size=12), SCORES, st.integers(0, 12))
def test_a_message_that_names_the_winner_is_clear(
    said: list[str], scores: list[float], at: int
) -> None:
    order = ranked(dict(zip([each.id.name for each in CHATS], scores, strict=True)))
    name = order[0].id.name.partition("-")[2]

    got = Siblings(CHATS).unclear(" ".join([*said[:at], name, *said[at:]]), order, NOTHING)

    assert got == ()


@given(st.permutations(CHATS), st.lists(WORDS, max_size=12), SCORES)
def test_the_order_of_the_catalog_does_not_matter(
    catalog: list[CapabilitySpec], said: list[str], scores: list[float]
) -> None:
    order = ranked(dict(zip([each.id.name for each in CHATS], scores, strict=True)))
    text = " ".join(said)

    got = Siblings(catalog).unclear(text, order, NOTHING)

    assert got == Siblings(CHATS).unclear(text, order, NOTHING)
