"""Layers are merged key by key, and invalid ones are reported."""

import tomllib
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.settings.known_keys import unknown_keys
from capd.core.settings.layers import (
    Layer,
    UnusableError,
    key_path_text,
    merge_layers,
    parse_layer,
    with_variable,
)
from capd.core.settings.toml_lines import line_of


class Table(msgspec.Struct, frozen=True):
    linger: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    names: tuple[str, ...] = ()


class Named(msgspec.Struct, frozen=True):
    domain: str = ""


class Model(msgspec.Struct, frozen=True):
    servers: Table = Table()
    clients: dict[str, Named] = {}


def test_a_key_that_a_nearer_layer_lacks_is_reset_by_none() -> None:
    far = Layer(
        "far", {"servers": {"linger": 5, "names": ["a"]}, "clients": {"x": {"domain": "d"}}}
    )
    near = Layer("near", {"servers": {"linger": 7}, "clients": {"y": {"domain": "e"}}})

    got = merge_layers([far, near])

    assert got.tables == {
        "servers": {"linger": 7, "names": ["a"]},
        "clients": {"x": {"domain": "d"}, "y": {"domain": "e"}},
    }
    assert got.origins == {
        ("servers", "linger"): "near",
        ("servers", "names"): "far",
        ("clients", "x", "domain"): "far",
        ("clients", "y", "domain"): "near",
    }


_TABLES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from("ab"),
    st.integers() | st.dictionaries(st.sampled_from("cd"), st.integers(), min_size=1),
)


@given(st.lists(_TABLES, max_size=4))
def test_every_key_of_a_layer_is_from_the_nearest_that_has_it(tables: list[dict[str, Any]]) -> None:
    got = merge_layers([Layer(str(number), each) for number, each in enumerate(tables)])

    for path, origin in got.origins.items():
        inner: Any = tables[int(origin)]
        for part in path:
            inner = inner[part]
        assert not isinstance(inner, dict)
        nearer = tables[int(origin) + 1 :]
        assert not any(_has(each, path) for each in nearer)


def _has(tables: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if not isinstance(tables, dict) or part not in tables:
            return False
        tables = tables[part]
    return True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[servers", "Expected ']' at the end of a table declaration (at end of document)"),
        ("a = 1\n[servers]]\n", "(at line 2, column 10)"),
        ('[servers]\n\nlinger = "5"\n', "line 3, `servers.linger`: Expected `float`, got `str`"),
        ("servers.linger = -1\n", "line 1, `servers.linger`: Expected `float` >= 0.0"),
        ('[servers]\nnames = ["a", 3]\n', "line 2, `servers.names`: Expected `str`, got `int`"),
        ("[clients.zed]\ndomain = 3\n", "line 2, `clients.NAME.domain`: Expected `str`, got `int`"),
        ("servers = 3\n", "line 1, `servers`: Expected `object`, got `int`"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "9" * 5000, "not TOML: "),
    ],
)
def test_a_wrong_layer_says_where_and_why(text: str, said: str) -> None:
    with pytest.raises(UnusableError) as raised:
        parse_layer(text, Model, "f")

    assert said in str(raised.value)


def test_a_key_that_nobody_knows_is_said_with_its_line_and_the_nearest_one() -> None:
    text = "[servers]\nlinger = 1\nlnger = 5\n[future]\nx = 1\n[clients.zed]\ndomian = 'd'\n"

    got = parse_layer(text, Model, "f")

    assert got.notes == (
        "line 3: unknown key `servers.lnger` is read over; did you mean `linger`?",
        "line 4: unknown key `future` is read over",
        "line 7: unknown key `clients.zed.domian` is read over; did you mean `domain`?",
    )


def test_every_unknown_key_is_found_however_deep() -> None:
    tables = {"servers": {"x": 1}, "clients": {"a": {"y": 2}}, "z": 3}

    got = [path for path, _ in unknown_keys(tables, Model)]

    assert got == [("servers", "x"), ("clients", "a", "y"), ("z",)]


def test_a_variable_sets_its_key_alone() -> None:
    got = with_variable({"servers": {"names": ["a"]}}, Model, ("servers", "linger"), "5", "V")

    assert got == Layer("V", {"servers": {"linger": "5"}})


@pytest.mark.parametrize("value", ["", "x", "-1", "5 s"])
def test_a_variable_that_is_no_value_is_refused(value: str) -> None:
    with pytest.raises(UnusableError):
        with_variable({}, Model, ("servers", "linger"), value, "V")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 2),
        (("t", "b"), 4),
        (("t", "deep", "c"), 5),
        (("u v", "d"), 8),
        (("t", "absent"), 3),
        (("nowhere",), 0),
        (("list", "e"), 10),
    ],
)
def test_a_key_is_found_on_its_line(path: tuple[str, ...], line: int) -> None:
    text = '# head\na = 1\n[t] # end\nb = 2\ndeep.c = 3\n\n["u v"]\nd = 4\n[[list]]\ne = 5\n'
    assert tomllib.loads(text)

    assert line_of(text, path) == line


def test_a_key_that_is_not_bare_is_written_in_quotes() -> None:
    assert key_path_text(("projects", "/src/app", "domain")) == 'projects."/src/app".domain'
