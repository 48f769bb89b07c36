"""No secret of an imported configuration appears outside the store or in the report."""

import json
import tempfile
from pathlib import Path
from typing import Any

import keyring
from hypothesis import given, settings
from hypothesis import strategies as st
from keyring.backends.fail import Keyring

from capd_client.importing import report
from capd_client.importing.execution import carry_out
from capd_client.importing.plan import own_definitions, plan_import
from capd_client.importing.source_files import read_sources
from capd_client.importing.stores import KnownValues, SecretStore
from capd_client.importing.variables import ImportValues
from capd_client.install.known_clients import known_clients
from capd_client.own_tap import OwnTap
from support.examples import examples

CANARY = "Can4ry"
_NAMES = st.sampled_from(
    ["TOKEN", "GITHUB_TOKEN", "apiKey", "DB_PASSWORD", "X_SECRET", "AUTH", "SLACK_BOT_TOKEN", "PAT"]
)
_HEADERS = st.sampled_from(["Authorization", "X-API-Key", "Cookie", "x-auth-token"])
_FLAGS = st.sampled_from(["--token", "--api-key", "--password", "-token", "--auth-token"])
_SECRETS = st.builds(
    lambda tail: CANARY + tail, st.text("abzAZ09_-.'\"$ {}\\é:/@?&=#", max_size=30)
)
_WORDS = st.builds(lambda tail: CANARY + tail, st.text("abzAZ09_-", max_size=30))
_LONG = st.just(f"{CANARY}0123456789abcdefABCDEF")
_ARGS = st.one_of(
    st.tuples(_FLAGS, _WORDS),
    st.builds(lambda flag, word: (f"{flag}={word}",), _FLAGS, _SECRETS),
    st.builds(lambda name, word: ("-e", f"{name}={word}"), _NAMES, _SECRETS),
    st.builds(lambda word: ("--header", f"Authorization: Bearer {word}"), _SECRETS),
    st.builds(lambda word: (f"postgres://me:{word}@host:5432/db",), _WORDS),
    st.builds(lambda word: (f"https://host/mcp?a=1&api_key={word}",), _WORDS),
    st.builds(lambda word: (f"https://host/s/{word}/mcp",), _LONG),
    st.builds(lambda word: ("ghp_" + word.replace("-", "") + "x" * 30,), _LONG),
    st.builds(lambda name, word: ("--config", json.dumps({"a": 1, name: word})), _NAMES, _WORDS),
    st.builds(lambda word: (f"Server=h;Password={word};Port=1",), _WORDS),
    st.just(("--verbose",)),
)
_STDIO = st.fixed_dictionaries(
    {
        "command": st.sampled_from(["npx", "uvx", "/bin/server"]),
        "args": st.lists(_ARGS, max_size=3),
    },
    optional={"env": st.dictionaries(_NAMES, _SECRETS, max_size=3)},
).map(lambda each: {**each, "args": [word for part in each["args"] for word in part]})
_HTTP = st.fixed_dictionaries(
    {"url": st.builds(lambda word: f"https://host/mcp?token={word}", _WORDS)},
    optional={
        "headers": st.dictionaries(
            _HEADERS, st.one_of(_SECRETS, st.builds(lambda word: f"Bearer {word}", _SECRETS))
        )
    },
)
_SERVERS = st.dictionaries(st.sampled_from("abcd"), st.one_of(_STDIO, _HTTP), max_size=4)


@settings(max_examples=examples(40), deadline=None)
@given(_SERVERS, _SERVERS)
def test_nothing_that_is_written_or_said_has_a_secret(
    cursors: dict[str, Any], windsurfs: dict[str, Any]
) -> None:
    keyring.set_keyring(Keyring())  # type: ignore[no-untyped-call]  # it is keyring's
    with tempfile.TemporaryDirectory() as folder:
        home, config = Path(folder, "home"), Path(folder, "config")
        for name, servers in ((".cursor/mcp.json", cursors), (".junie/mcp/mcp.json", windsurfs)):
            path = home / name
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps({"mcpServers": servers}))
        env = {"HOME": str(home)}
        tap, known = OwnTap(str(config)), KnownValues(env, str(config))
        sources = read_sources(known_clients().values(), env, home)
        store = SecretStore(str(config), in_file=True)

        plan = plan_import(sources, ImportValues(env, home, home), own_definitions(tap), known)
        carry_out(plan, tap, store, known)

        said = "\n".join(report.lines(plan, str(store))) + json.dumps(
            report.document(plan, is_done=True)
        )
        files = [path for path in config.rglob("*") if path.is_file()]
        written = [path for path in files if path.name != "secrets.env"]
        assert CANARY not in said
        assert CANARY not in repr(plan)
        assert [path for path in written if CANARY in path.read_text()] == []
        assert {each.reason for each in plan.left_out} <= {
            "it has braces in a row, which capd would read as a placeholder",
        }


def test_a_variable_that_is_empty_is_no_known_value(tmp_path: Path) -> None:
    known = KnownValues({"EMPTY": "", "SET": "a-value"}, str(tmp_path))

    assert dict(known) == {"SET": "a-value"}
    assert len(known) == 1
