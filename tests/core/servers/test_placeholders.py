"""Placeholders: where they are found, what replaces them; errors contain no value."""

import msgspec
import pytest

from capd.core.servers.placeholders import (
    Folders,
    MissingValueError,
    has_folder_placeholder,
    keys_in_args,
    resolved,
    wanted_keys,
)
from capd_protos.types import ServerName, ServerSpec, TapName

FOLDERS = Folders(cwd="/src/app/sub", project="/src/app")
VALUES = {"A": "one", "B": "two", "EMPTY": ""}
EVERYWHERE = ServerSpec(
    ServerName("s"),
    "stdio",
    TapName("tap"),
    command="{{ENV:COMMAND}}",
    args=("--a={{ENV:A}}", "{{INPUT:B}}{{ENV:A}}"),
    url="http://{{ENV:HOST}}/",
    env={"X": "{{ENV:E}}", "{{ENV:NOT_IN_KEYS}}": ""},
    headers={"Authorization": "Bearer {{INPUT:H}}"},
)


def server(text: str) -> ServerSpec:
    return ServerSpec(ServerName("s"), "stdio", TapName("tap"), command="run", args=(text,))


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        pytest.param("{{ENV:A}}", "one", id="environment"),
        pytest.param("{{INPUT:B}}", "two", id="input"),
        pytest.param("x{{ENV:A}}y{{ENV:A}}{{ENV:B}}", "xoneyonetwo", id="several"),
        pytest.param("{{CWD}}:{{PROJECT}}", "/src/app/sub:/src/app", id="folders"),
        pytest.param("{{{{ENV:A}}}}", "{{ENV:A}}", id="escaped key"),
        pytest.param("{{{{X}}}}", "{{X}}", id="escaped text"),
        pytest.param("{{{{}}}}", "{{}}", id="escaped nothing"),
        pytest.param("{{{{ENV:A}}}}{{ENV:A}}", "{{ENV:A}}one", id="escaped beside a real one"),
        pytest.param('{"k":{{ENV:A}}}', '{"k":one}', id="inside of JSON"),
        pytest.param("{{{ENV:A}}}", "{one}", id="inside of one more brace"),
        pytest.param("{{SECRET:A}}", "{{SECRET:A}}", id="unknown kind is kept"),
        pytest.param(
            "{{ENV:}} {{ENV:1A}} {{ENV:A-B}}", "{{ENV:}} {{ENV:1A}} {{ENV:A-B}}", id="no key"
        ),
        pytest.param(
            "{{env:A}} {{ ENV:A }} {ENV:A}", "{{env:A}} {{ ENV:A }} {ENV:A}", id="misspelt"
        ),
        pytest.param("$A ${A}", "$A ${A}", id="the shell's own"),
        pytest.param("", "", id="empty"),
    ],
)
def test_a_text_is_filled(text: str, filled: str) -> None:
    got = resolved(server(text), VALUES, FOLDERS)

    assert got == server(filled)


def test_every_place_of_a_definition_is_filled() -> None:
    values = {key: key.lower() for key in ("COMMAND", "A", "B", "HOST", "E", "H")}

    got = resolved(EVERYWHERE, values, FOLDERS)

    assert got == msgspec.structs.replace(
        EVERYWHERE,
        command="command",
        args=("--a=a", "ba"),
        url="http://host/",
        env={"X": "e", "{{ENV:NOT_IN_KEYS}}": ""},
        headers={"Authorization": "Bearer h"},
    )


def test_what_a_value_holds_is_not_filled_again() -> None:
    got = resolved(server("{{ENV:A}}"), {"A": "{{ENV:B}}{{{{X}}}}", "B": "no"}, FOLDERS)

    assert got == server("{{ENV:B}}{{{{X}}}}")


def test_wanted_keys_come_from_everywhere_once_and_in_order() -> None:
    got = (wanted_keys(EVERYWHERE), keys_in_args(EVERYWHERE))

    assert got == (("COMMAND", "A", "B", "HOST", "E", "H"), ("A", "B"))


@pytest.mark.parametrize("text", ["{{{{ENV:A}}}}", "{{CWD}}", "{{SECRET:A}}", "A"])
def test_nothing_is_wanted_by(text: str) -> None:
    assert wanted_keys(server(text)) == ()


@pytest.mark.parametrize(
    ("text", "has"),
    [("{{CWD}}", True), ("x{{PROJECT}}", True), ("{{{{CWD}}}}", False), ("{{ENV:CWD}}", False)],
)
def test_a_definition_that_depends_on_a_folder_is_known(text: str, *, has: bool) -> None:
    assert has_folder_placeholder(server(text)) is has


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("{{ENV:NONE}}", ["NONE"]),
        ("{{ENV:EMPTY}}", ["EMPTY"]),
        ("{{ENV:A}}{{INPUT:NONE}}{{ENV:EMPTY}}{{ENV:NONE}}", ["NONE", "EMPTY"]),
    ],
)
def test_missing_and_empty_values_are_all_named_and_no_value_is_told(
    text: str, keys: list[str]
) -> None:
    with pytest.raises(MissingValueError) as caught:
        resolved(server(text), VALUES, FOLDERS)

    assert caught.value.keys == keys
    assert str(caught.value) == f"needs {', '.join(keys)}: store it with capd secret set {keys[0]}"
    assert "one" not in repr(caught.value)
