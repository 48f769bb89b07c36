"""The format of the log, and the filter that removes secrets from it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capd.adapters.log import SecretRemover

SECRET = "pa55/word+long"


def cleaned(net: SecretRemover, **event: Any) -> dict[str, Any]:
    return dict(net(None, "info", event))


def test_a_known_secret_is_taken_out_of_every_place_of_a_line() -> None:
    net = SecretRemover()
    net.secrets = lambda: [SECRET]

    line = cleaned(
        net,
        event="odd",
        reason=f"it said {SECRET}",
        error=ValueError(SECRET),
        path=Path("/x") / SECRET,
        lines=["fine", SECRET],
        counts={SECRET: 1, "more": (SECRET,)},
        number=4,
        nothing=None,
    )

    assert line == {
        "event": "odd",
        "reason": "it said [secret]",
        "error": "[secret]",
        "path": "/x/[secret]",
        "lines": ["fine", "[secret]"],
        "counts": {"[secret]": 1, "more": ["[secret]"]},
        "number": 4,
        "nothing": None,
    }


def test_what_is_learned_and_forgotten_is_followed() -> None:
    net, known = SecretRemover(), list[str]()
    net.secrets = lambda: known

    before = cleaned(net, event=SECRET)
    known.append(SECRET)
    during = cleaned(net, event=SECRET)
    known.clear()
    after = cleaned(net, event=SECRET)

    assert [each["event"] for each in (before, during, after)] == [SECRET, "[secret]", SECRET]


@pytest.mark.parametrize("value", ["short", "/home/ada/src", "~/secrets"])
def test_short_values_and_paths_tear_no_line_apart(value: str) -> None:
    net = SecretRemover()
    net.secrets = lambda: [value]

    assert cleaned(net, event=f"at {value} now") == {"event": f"at {value} now"}


@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1_B2" * 10,
        "sk-proj-" + "a1-B2" * 8,
        "xoxb-123456789012-abcdefghij",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    ],
)
def test_what_looks_like_a_token_is_taken_out_though_nobody_knows_it(token: str) -> None:
    assert cleaned(SecretRemover(), event=f"bad token {token}, sorry") == {
        "event": "bad token [secret], sorry"
    }


@pytest.mark.parametrize(
    "text", ["sk-learn is missing", "session claude-eyJh", "npm_config_cache", "993f6c75d3bffeb6"]
)
def test_ordinary_words_stay(text: str) -> None:
    assert cleaned(SecretRemover(), event=text) == {"event": text}


def test_off_a_terminal_every_event_is_one_line_of_json() -> None:
    code = (
        "from capd.adapters.log import configure_logs; configure_logs({})\n"
        "import structlog; log = structlog.get_logger(actor='x', session='one')\n"
        "log.info('first', text='two\\nlines', at=None)\n"
        "log.warning('second', path='\\udcff')\n"
        "log.debug('unseen')"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [
        {key: value for key, value in line.items() if key != "timestamp"} for line in lines
    ] == [
        {"actor": "x", "session": "one", "text": "two\nlines", "at": None, "event": "first",
         "level": "info"},
        {"actor": "x", "session": "one", "path": "\udcff", "event": "second", "level": "warning"},
    ]  # fmt: skip
    assert done.stdout == ""
