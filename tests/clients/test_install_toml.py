"""TOML: an added entry can be removed, and nothing else changes."""

import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from capd_client.install.plain_data import with_value
from capd_client.install.toml_edits import TomlError, put, take
from support.examples import examples

PATH = ("mcp_servers", "capd")
OURS = {"command": "/capd", "args": [], "env_vars": ["A", "B"]}
TABLE = '[mcp_servers.capd]\ncommand = "/capd"\nargs = []\nenv_vars = ["A", "B"]\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", TABLE),
        ("a = 1\n", f"a = 1\n\n{TABLE}"),
        ("a = 1", f"a = 1\n\n{TABLE}".removesuffix("\n")),
        ("[mcp_servers.x] # x\n# end\n", f"[mcp_servers.x] # x\n# end\n\n{TABLE}"),
        ("mcp_servers.x.y = 1\n[z]\n", f"mcp_servers.x.y = 1\n[z]\n\n{TABLE}"),
        ("\ufeffa = 1\r\n", "\ufeffa = 1\r\n\r\n" + TABLE.replace("\n", "\r\n")),
        ("[[z]]\n[[z]]\n", f"[[z]]\n[[z]]\n\n{TABLE}"),
    ],
)
def test_a_table_is_put_behind_the_rest_and_taken_out_again(text: str, expected: str) -> None:
    after = put(text, PATH, OURS)

    assert after == expected
    assert take(after, PATH) == text


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = {x = {y = 1}} # mine\nz = 1\n",
        "mcp_servers = {}\n",
        "mcp_servers.capd.command = 'x'\n",
        "[mcp_servers]\ncapd = {command = 'x'} # c\n[z]\n",
    ],
)
def test_tables_that_are_closed_are_edited_where_they_are(text: str) -> None:
    data = tomllib.loads(text)

    after = put(text, PATH, OURS)

    assert tomllib.loads(after) == with_value(data, PATH, OURS)
    assert [line for line in text.splitlines() if "#" in line and "mine" in line] == [] or (
        "# mine" in after
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{TABLE}[z]\n", "[z]\n"),
        (f"a = 1\n\n{TABLE}\n# of z\n[z]\n", "a = 1\n\n# of z\n[z]\n"),
        (f"{TABLE}# of z\n[z]\n", "# of z\n[z]\n"),
        (f"[x]\n{TABLE}[mcp_servers.capd.env]\nA = '1'\n[y]\n", "[x]\n[y]\n"),
        ('[ mcp_servers . "capd" ]\nargs = [\n  "[x]",\n]\n[z]\n', "[z]\n"),
        (f'a = """\n{TABLE}"""\n', f'a = """\n{TABLE}"""\n'),
        (f'a = """\n{TABLE}"""\n{TABLE}', f'a = """\n{TABLE}"""\n'),
        ("[z]\n", "[z]\n"),
        ("[mcp_servers.capd2]\na = 1\n", "[mcp_servers.capd2]\na = 1\n"),
    ],
)
def test_the_table_goes_with_what_is_below_it_and_comments_stay(text: str, expected: str) -> None:
    assert take(text, PATH) == expected


def test_a_value_is_changed_in_its_place() -> None:
    text = "[mcp_servers.capd] # ours\r\ncommand = 'x' # mine\r\nargs = [] # none\r\n"

    after = put(text, (*PATH, "command"), "/capd")

    assert after == text.replace("'x'", '"/capd"')


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a = 1\nb\n", 2, "Expected '=' after a key in a key/value pair"),
        ("a = 1\n[b", 2, "Expected ']' at the end of a table declaration"),
        ("a = 1\na = 2\n", 2, "Cannot overwrite a value"),
        ("mcp_servers = 'x'\n", 1, "mcp_servers is not a table"),
        ("[[mcp_servers]]\n", 1, "mcp_servers is not a table"),
        ("a = " + "[" * 5000, 1, "it is nested too deeply"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(TomlError) as refusal:
        put(text, PATH, OURS)

    assert (refusal.value.line, str(refusal.value)) == (line, reason)


def test_a_file_that_has_what_json_has_not_is_compared_all_the_same() -> None:
    text = "a = nan\nb = 1979-05-27T07:32:00Z\nc = inf\n"

    assert take(put(text, PATH, OURS), PATH) == text


names = st.sampled_from(["a", "b c", "mcp_servers", "é", "x.y"])
values = st.recursive(
    st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["x", "", "[z]\n[mcp_servers.capd]\n", '"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=examples(50))
@given(st.dictionaries(names, values, max_size=4), st.sampled_from(["\n", "\r\n"]))
def test_what_is_put_in_is_there_and_goes_again(data: dict[str, Any], newline: str) -> None:
    if not isinstance(data.get("mcp_servers", {}), dict):
        return
    text = "# x\n" + tomlkit.dumps(data)
    text = text.replace("\n", newline)
    before = tomllib.loads(text)

    after = put(text, PATH, OURS)

    assert tomllib.loads(after) == with_value(before, PATH, OURS)
    assert put(after, PATH, OURS) == after
    left = tomllib.loads(take(after, PATH))
    assert {"mcp_servers": {}, **left} == {"mcp_servers": {}, **before}
    assert after.startswith("# x")
