"""Which values are secrets, and how each client's variables are translated."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.placeholders import Folders, resolved
from capd_client.importing import secret_detection
from capd_client.importing.definition import Hidden, Text
from capd_client.importing.entries import variables_in_file
from capd_client.importing.variables import (
    ImportValues,
    NotImportedError,
    Reader,
    key_of,
    written,
)
from capd_protos.secret_places import FILE_LIMIT_BYTES
from capd_protos.types import ServerName, ServerSpec, TapName

GITHUB = "ghp_" + "a1B2" * 9
HEX = "0123456789abcdef" * 2


def shown(text: Text) -> str:
    """Return `text` with each secret as [hint]."""
    return "".join(
        f"[{part.hint}]" if isinstance(part, Hidden) else written((part,), lambda _: "")
        for part in text
    )


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("GITHUB_TOKEN", "short", "[GITHUB_TOKEN]"),
        ("apiKey", "short", "[APIKEY]"),
        ("OPENAI_API_KEY", "sk-x", "[OPENAI_API_KEY]"),
        ("DB_PASSWORD", "hunter2", "[DB_PASSWORD]"),
        ("DATABASE_URL", "postgres://u:hunter2@h/d", "[DATABASE_URL]"),
        ("PLAIN", GITHUB, "[PLAIN]"),
        ("SETTINGS", f'{{"a": "{GITHUB}"}}', "[SETTINGS]"),
        ("SMTP_HOST_PASSWORD", "hunter2", "[SMTP_HOST_PASSWORD]"),
        ("DB_PASSWORD", "123", "[DB_PASSWORD]"),
        ("MAX_API_KEY", "hunter2", "[MAX_API_KEY]"),
        ("HEADERS", '{"Authorization": "Bearer abc", "V": "1"}', "[HEADERS]"),
        ("DATABASE", "Server=h;Password=abc;Port=1", "[DATABASE]"),
        ("AUTH_URL", "https://auth.example/login", "https://auth.example/login"),
        ("AUTH_URL", "https://me:abc@auth.example", "[AUTH_URL]"),
        ("MAX_TOKENS", "4000", "4000"),
        ("MAX_OUTPUT_TOKENS", "4000", "4000"),
        ("TOKEN_LIMIT", "4000", "4000"),
        ("AUTH_TYPE", "oauth", "oauth"),
        ("KEY_FILE", "/etc/key.pem", "/etc/key.pem"),
        ("KEYBOARD", "de", "de"),
        ("AUTHOR", "me", "me"),
        ("LOG_LEVEL", "debug", "debug"),
        ("USE_AUTH", "true", "true"),
        ("API_KEY", "<YOUR_KEY>", "{{ENV:API_KEY}}"),
        ("API_KEY", "your-api-key-here", "{{ENV:API_KEY}}"),
        ("API_KEY", "", "{{ENV:API_KEY}}"),
        ("MODEL", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5-20250929"),
    ],
)
def test_a_variable_is_hidden_by_its_name_or_by_its_look(name: str, value: str, kept: str) -> None:
    assert shown(secret_detection.of_variable(name, (value,) if value else ())) == kept


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("x --api-key abc --verbose", "x --api-key [API_KEY] --verbose"),
        ("x --token=abc", "x --token=[TOKEN]"),
        ("x --password /ab/cd", "x --password [PASSWORD]"),
        ("x --token -abc", "x --token [TOKEN]"),
        ('x --config {"apiKey":"abc","n":1}', 'x --config {"apiKey":"[APIKEY]","n":1}'),
        ('x --config {\\"api_key\\":\\"abc\\"}', 'x --config {\\"api_key\\":\\"[API_KEY]\\"}'),
        ("x Server=h;Password=abc;Port=1", "x Server=h;Password=[PASSWORD];Port=1"),
        ("x --token --verbose", "x --token --verbose"),
        ("x --no-auth server.js", "x --no-auth server.js"),
        ("x --private-key ~/.ssh/id", "x --private-key ~/.ssh/id"),
        ("docker run -e GITHUB_TOKEN=abc image", "docker run -e GITHUB_TOKEN=[GITHUB_TOKEN] image"),
        ("docker run -e GITHUB_TOKEN image", "docker run -e GITHUB_TOKEN image"),
        (f"x {GITHUB}", "x [TOKEN]"),
        ("x postgres://u:pw@h:5/d", "x postgres://u:[PASSWORD]@h:5/d"),
        ("x https://h/?a=1&api_key=abc&b=2", "x https://h/?a=1&api_key=[API_KEY]&b=2"),
        ("x https://h/s/a1b2c3d4e5f6a7b8c9d0e1f2/mcp", "x https://h/s/[PATH]/mcp"),
        (f"docker run i@sha256:{HEX}{HEX}", f"docker run i@sha256:{HEX}{HEX}"),
        (f"uvx git+https://h/r@{HEX}", f"uvx git+https://h/r@{HEX}"),
        ("npx -y @scope/server@1.2.3", "npx -y @scope/server@1.2.3"),
        ("node C:\\server.js", "node C:\\server.js"),
        ("x --url=https://h/path", "x --url=https://h/path"),
    ],
)
def test_of_a_command_only_what_is_a_secret_is_hidden(line: str, kept: str) -> None:
    made = secret_detection.of_line([(word,) for word in line.split()])

    assert " ".join(map(shown, made)) == kept


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--header", "Authorization: Bearer abc"], "Authorization: Bearer [TOKEN]"),
        (["--header=Authorization: Bearer abc"], "--header=Authorization: Bearer [TOKEN]"),
        (["--header", "X-Api-Key:abc"], "X-Api-Key:[X_API_KEY]"),
        (["--header", "Accept: text/html"], "Accept: text/html"),
    ],
)
def test_a_header_among_the_arguments_is_hidden(words: list[str], kept: str) -> None:
    made = secret_detection.of_line([(word,) for word in words])

    assert shown(made[-1]) == kept


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("Authorization", "Bearer abc", "Bearer [TOKEN]"),
        ("authorization", "abc", "[TOKEN]"),
        ("X-API-Key", "abc", "[X_API_KEY]"),
        ("Cookie", "a=b", "[COOKIE]"),
        ("X-Team", "core", "core"),
        ("X-Anything", GITHUB, "[X_ANYTHING]"),
    ],
)
def test_a_header_is_hidden_by_its_name_or_by_its_look(name: str, value: str, kept: str) -> None:
    assert shown(secret_detection.of_header(name, (value,))) == kept


def reader(tmp_path: Path, *syntaxes: str, **env: str) -> Reader:
    around = ImportValues(env, Path("/home/me"), Path("/work"), {"the-key": "The key"})
    return Reader(syntaxes, around, tmp_path)


@pytest.mark.parametrize(
    ("syntax", "value", "put"),
    [
        ("${VAR}", "a ${X} b", "a {{ENV:X}} b"),
        ("${VAR}", "${HOME}/x", "/home/me/x"),
        ("${VAR}", "${CLAUDE_PROJECT_DIR}/x", "{{PROJECT}}/x"),
        ("${VAR}", "$X {env:X}", "$X {env:X}"),
        ("$VAR", "$X/$Y.z", "{{ENV:X}}/{{ENV:Y}}.z"),
        ("${VAR:-DEFAULT}", "${SET:-d}", "{{ENV:SET}}"),
        ("${VAR:-DEFAULT}", "${UNSET:-d}", "d"),
        ("${env:VAR}", "${env:X}", "{{ENV:X}}"),
        ("{env:VAR}", "{env:X}", "{{ENV:X}}"),
        ("{env:VAR}", "${env:X}", "${env:X}"),
        ("${input:ID}", "${input:the-key}", "{{ENV:THE_KEY}}"),
        ("${workspaceFolder}", "${workspaceFolder}/x", "{{PROJECT}}/x"),
        ("${userHome}", "${userHome}/x", "/home/me/x"),
        ("${{ secrets.NAME }}", "${{ secrets.X }}", "{{ENV:X}}"),
        ("${{ secrets.NAME }}", "${{secrets.org/X}}", "{{ENV:ORG_X}}"),
        ("", "${X} {{ENV:X}} {{x}}", "${X} {{{{ENV:X}}}} {{x}}"),
    ],
)
def test_a_clients_variable_is_put_in_capds_words(
    tmp_path: Path, syntax: str, value: str, put: str
) -> None:
    text = reader(tmp_path, syntax, SET="1").text(value, "it")

    assert written(text, lambda _: "SECRET") == put


def test_what_a_file_holds_is_a_secret(tmp_path: Path) -> None:
    (tmp_path / "my.token").write_text("abc\n")

    text = reader(tmp_path, "{file:PATH}").text("Bearer {file:my.token}", "it")

    assert text == ("Bearer ", Hidden("abc", "MY_TOKEN"))


@pytest.mark.parametrize(
    ("syntax", "value"),
    [
        ("{file:PATH}", "{file:absent}"),
        ("$: COMMAND", "$: pass show x"),
        ("${workspaceFolder}", "${command:x}"),
        ("${env:VAR}", "${env:!}"),
        ("", "x" * 65537),
    ],
)
def test_what_capd_has_no_words_for_is_refused(tmp_path: Path, syntax: str, value: str) -> None:
    with pytest.raises(NotImportedError):
        reader(tmp_path, syntax).text(value, "it")


def test_a_pipe_that_a_clone_has_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    a_file = reader(tmp_path, "{file:PATH}")

    with pytest.raises(NotImportedError, match="cannot be read"):
        a_file.text("{file:pipe}", "it")
    with pytest.raises(NotImportedError, match="cannot be read"):
        variables_in_file("pipe", a_file)


def test_a_file_that_is_too_long_is_refused_and_not_cut(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * (FILE_LIMIT_BYTES + 1))
    a_file = reader(tmp_path, "{file:PATH}")

    with pytest.raises(NotImportedError, match="cannot be read"):
        a_file.text("{file:key}", "it")
    with pytest.raises(NotImportedError, match="cannot be read"):
        variables_in_file("key", a_file)


def test_a_secret_is_not_shown_with_what_it_is_in() -> None:
    assert "abc" not in repr(Hidden("abc", "KEY"))


_PLAIN = st.text("ab{}$:ENVX", max_size=20) | st.sampled_from(["{{", "}}", "{{CWD}}", "{{{{X}}}}"])


@given(_PLAIN, st.text("ab{}$", min_size=1, max_size=5), _PLAIN)
def test_a_text_reaches_the_server_as_its_client_would_have_given_it(
    before: str, secret: str, after: str
) -> None:
    text = tuple(part for part in (before, Hidden(secret, "K"), after) if part)

    try:
        put = written(text, lambda _: "K")
    except NotImportedError:
        # Only braces in a row are a reason to refuse.
        assert "{{" in before + after
        return

    spec = ServerSpec(ServerName("s"), "stdio", TapName("t"), command="c", args=(put,))
    got = resolved(spec, {"K": secret}, Folders("/", "/"))
    assert got.args == (f"{before}{secret}{after}",)


def test_keys_are_made_of_any_name() -> None:
    assert [key_of(name) for name in ("a-b", "1x", "é", "X_Y")] == ["A_B", "_1X", "", "X_Y"]
