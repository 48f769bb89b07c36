"""`capd check`: its output and its exit code."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import trio

from capd import check
from capd.adapters.model.minilm import ROUTING
from capd.adapters.tap_files import TapPlace, read_tap
from capd.adapters.tool_lists import ToolLists
from capd.core.servers.identity import server_identity
from capd.core.taps.tap_vectors import FILE as VECTORS
from capd.core.taps.tap_vectors import written_vectors
from capd.tap_build import phrases
from capd_protos.types import TapName, ToolDefinition, ToolName

CONFIG = 'triggers = ["one thing", "two things", "three things"]\n'
DEFAULT = '[[mcp.servers]]\nname = "x"\ncommand = "x"\n'


def tap(folder: Path, config: str = CONFIG, default: str = DEFAULT) -> Path:
    capability = folder / "capabilities" / "x"
    capability.mkdir(parents=True)
    (capability / "config.toml").write_text(config)
    (capability / "default.toml").write_text(default)
    return folder


def test_a_tap_without_faults_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = check.main([str(tap(tmp_path))], tmp_path)

    assert (code, capsys.readouterr().out) == (
        0,
        f"{tmp_path.name}: 1 routable\n0 errors, 0 warnings\n",
    )


def test_each_fault_is_printed_with_file_line_and_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tap(tmp_path, 'triggers = [\n"a",\n"",\n"b",\n"c"]\n', '[deps]\nrequire = ["o/t"]\n')
    (folder / "capabilities" / "voice\x1b").mkdir()

    code = check.main([str(folder)], tmp_path)

    root = f"{folder}/capabilities"
    assert (code, capsys.readouterr().out.splitlines()) == (
        1,
        [
            f"{root}/x/config.toml:3: error: trigger '' is blank or not text: left out",
            f"{root}/voice\\x1b: warning: not routable: no config.toml",
            f"{root}/x/default.toml: error: requires 'o/t', and the tap has no deps/o/t.sh",
            f"{folder.name}: 1 routable, 1 not (no config.toml)",
            "2 errors, 1 warning",
        ],
    )


def test_a_folder_that_is_no_tap_is_one_error_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()

    codes = [check.main([str(tmp_path / name)], tmp_path) for name in ("missing", "empty")]

    said = capsys.readouterr().out
    assert codes == [1, 1]
    assert f"there is no folder {tmp_path}/missing" in said
    assert f"{tmp_path}/empty has no folder capabilities/, skills/ or memories/" in said
    assert "Errno" not in said


def test_an_overlay_is_checked_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "overlay.toml").write_text('tap = "t"\n')
    (tmp_path / "capabilities").mkdir()
    (tmp_path / "capabilities" / "x.toml").write_text('triggers = ["a"]\nservers = []\n')

    code = check.main([str(tmp_path)], tmp_path)

    line = (
        f"{tmp_path}/capabilities/x.toml:2: error: `servers` is not a key of an overlay: left out"
    )
    assert (code, capsys.readouterr().out) == (1, f"{line}\n1 error, 0 warnings\n")


def test_without_a_path_the_users_taps_and_overlays_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, gone = tap(tmp_path / "mine", 'triggers = ["a"]\n'), tmp_path / "gone"
    (tmp_path / "taps.toml").write_text(
        f'shipped_overlays = false\n[[taps]]\nname = "mine"\npath = "{mine}"\n'
        f'[[taps]]\nname = "gone"\npath = "{gone}"\n[[overlays]]\npath = "none"\n'
    )

    code = check.main([], tmp_path)

    first, second, third, mine_line, _, count = (
        line for line in capsys.readouterr().out.splitlines() if "/starter" not in line
    )
    assert code == 1
    assert first.startswith(f"{gone}: error: tap gone: ")
    assert second == (
        f"{mine}/capabilities/x/config.toml:1: warning: only 1 triggers: fewer than 3 route badly"
    )
    assert third.startswith(f"{tmp_path}/none/overlay.toml: error: no overlay.toml")
    assert (mine_line, count) == ("mine: 1 routable", "2 errors, 1 warning")


@pytest.mark.parametrize("arguments", [["--jsn"], ["a", "b"]])
def test_other_arguments_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    code = check.main(arguments, tmp_path)

    assert (code, capsys.readouterr().err) == (2, "usage: capd check [PATH] [--json]\n")


def test_without_the_starter_tap_its_overlay_is_no_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taps.toml").write_text("starter = false\n")

    code = check.main([], tmp_path)

    assert (code, capsys.readouterr().out) == (0, "0 errors, 0 warnings\n")


def test_the_starter_tap_and_the_shipped_overlays_pass(tmp_path: Path) -> None:
    code = check.main([], tmp_path)

    assert code == 0


def test_the_command_hands_over_to_it_and_ends_as_it_does(tmp_path: Path) -> None:
    folder = tap(tmp_path, "triggers = []\n")
    command = [sys.executable, "-m", "capd_client.entry", "check", str(folder)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    reason = "no triggers: 5 to 15 phrases in a user's words"
    assert done.stdout == (
        f"{folder}/capabilities/x/config.toml:1: error: {reason}\n"
        f"{folder.name}: 0 routable, 1 not (no triggers)\n1 error, 0 warnings\n"
    )
    assert (done.returncode, done.stderr) == (1, "")


def listed(folder: Path, cache: Path, *names: str) -> None:
    """Save the tool list that the tap's only server had in its last run."""
    (capability,) = read_tap(TapPlace(TapName("t"), folder)).capabilities
    (server,) = capability.servers
    tools = [ToolDefinition(ToolName(n), msgspec.json.encode({"name": n})) for n in names]
    lists = ToolLists(cache / "tools")
    trio.run(lists.keep, server_identity(server), server.name, "1", tools)


def checked(capsys: pytest.CaptureFixture[str], folder: Path, cache: Path) -> list[str]:
    check.main([str(folder)], folder / "none", cache)
    return [line.removeprefix(f"{folder}/") for line in capsys.readouterr().out.splitlines()[:-2]]


@pytest.mark.parametrize(
    ("filters", "findings"),
    [
        ('["read"]', []),
        ('["x:re*", "write"]', []),
        ('["x:raed"]', ["`allowed_tools` matches none of the 2 tools of server 'x': read, write"]),
        ('["y:read"]', ["`allowed_tools` speaks of no tool of server 'x': it has none"]),
        ('["read", "x:del*"]', ["pattern 'x:del*' matches no tool of the servers that are known"]),
    ],
)
def test_a_filter_that_matches_nothing_is_found_in_what_the_server_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], filters: str, findings: list[str]
) -> None:
    folder = tap(tmp_path / "tap", default=f"[roles.mcp]\nallowed_tools = {filters}\n{DEFAULT}")
    listed(folder, tmp_path, "read", "write")

    lines = checked(capsys, folder, tmp_path)

    where = "capabilities/x/default.toml:2: warning: "
    assert lines == [where + finding for finding in findings]


def test_without_a_list_no_filter_is_judged_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tap(tmp_path / "tap", default=f'[roles.mcp]\nallowed_tools = ["raed"]\n{DEFAULT}')

    lines = checked(capsys, folder, tmp_path)

    assert lines == []


def test_every_provider_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tap(tmp_path / "tap")
    other = '[[mcp.servers]]\nname = "x"\ncommand = "npx"\nargs = ["left-pad"]\n'
    (folder / "capabilities/x/other.toml").write_text(other)

    lines = checked(capsys, folder, tmp_path)

    why = "server 'x': left-pad has no exact version, so each start may run other code"
    assert lines == [f"capabilities/x/other.toml:4: warning: {why}"]


def test_a_skill_that_needs_what_no_tap_has_is_an_error_where_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tap(tmp_path / "tap")
    file = folder / "skills/review/SKILL.md"
    file.parent.mkdir(parents=True)
    # `time` is the starter tap's.
    file.write_text("---\nname: review\ndescription: d\ncapabilities: x time gone\n---\nDo it.\n")

    code = check.main([str(folder)], tmp_path)

    why = "capability 'gone' cannot be switched on: no tap has a capability 'gone'"
    assert (code, capsys.readouterr().out) == (
        1,
        f"{file}:4: error: {why}\ntap: 1 routable, 1 skill\n1 error, 0 warnings\n",
    )


def test_as_json_it_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tap(tmp_path / "tap", 'triggers = ["a"]\n')
    (folder / "capabilities/voice").mkdir()

    code = check.main([str(folder), "--json"], tmp_path)

    capabilities = f"{folder}/capabilities"
    assert (code, json.loads(capsys.readouterr().out)) == (
        0,
        {
            "schema": 1,
            "taps": [
                {
                    "name": "tap",
                    "path": str(folder),
                    "routable": 1,
                    "unroutable": {"voice": "no config.toml"},
                    "skills": 0,
                    "memories": 0,
                }
            ],
            "findings": [
                {
                    "path": f"{capabilities}/x/config.toml",
                    "line": 1,
                    "reason": "only 1 triggers: fewer than 3 route badly",
                    "severity": "warning",
                },
                {
                    "path": f"{capabilities}/voice",
                    "line": 0,
                    "reason": "not routable: no config.toml",
                    "severity": "warning",
                },
            ],
            "errors": 0,
            "warnings": 2,
        },
    )


def test_the_public_tap_comes_to_the_counts_that_are_known_of_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    shared_fixtures: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = shared_fixtures / "data/octomind-tap"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    monkeypatch.setenv("PATH", str(tmp_path))

    check.main([str(folder), "--json"], tmp_path)

    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    (public,) = document["taps"]
    kinds = Counter(_kind(finding["reason"]) for finding in document["findings"])
    lines = [f["line"] for f in document["findings"] if _kind(f["reason"]) in {"args", "version"}]
    assert public["routable"] == 58
    assert Counter(public["unroutable"].values()) == {"no config.toml": 14}
    assert kinds == {"no config.toml": 14, "args": 6, "version": 1, "script": 63}
    assert all(lines)


def _kind(reason: str) -> str:
    known = {
        "not routable: no config.toml": "no config.toml",
        "goes into args": "args",
        "no exact version": "version",
        "and the tap has no deps/": "script",
    }
    return next((kind for part, kind in known.items() if re.search(part, reason)), reason)


def test_memories_are_checked_those_of_a_tap_and_the_users_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, own = tap(tmp_path / "tap"), tmp_path / "memories"
    wrong = 'kind = "corrective"\ncontent = "c"\n'
    for each in (folder / "memories", own):
        each.mkdir()
        (each / "a.toml").write_text(wrong)

    codes = [
        check.main([str(folder)], tmp_path, memories=own),
        check.main([], tmp_path, memories=own),
    ]

    lines = capsys.readouterr().out.splitlines()
    reason = "error: left out: it belongs to nothing, so that nobody would ever be told"
    found = [line for line in lines if reason in line]
    assert codes == [1, 1]
    assert [line.partition(":")[0] for line in found] == [
        f"{folder}/memories/a.toml",
        f"{own}/a.toml",
    ]


@pytest.mark.parametrize("file", ["default.toml", "other.toml"])
def test_a_file_that_takes_too_long_to_read_is_a_finding_as_in_the_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    folder = tap(tmp_path)
    (folder / "capabilities/slow").mkdir()
    (folder / "capabilities/slow/config.toml").write_text('triggers = ["a b", "c d", "e f"]\n')
    # It takes a parser written in Python minutes.
    (folder / "capabilities/slow" / file).write_text(f"{'.'.join(['a'] * 60_000)} = 1\n")

    code = check.main([str(folder)], tmp_path)

    assert code == 1
    assert "it takes more than 0.25 s to read" in capsys.readouterr().out


def test_an_overlay_that_takes_too_long_to_read_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "overlay"
    (folder / "capabilities").mkdir(parents=True)
    (folder / "overlay.toml").write_text('tap = "starter"\n')
    (folder / "capabilities/git.toml").write_text(f"{'.'.join(['a'] * 60_000)} = 1\n")

    code = check.main([str(folder)], tmp_path)

    assert code == 1
    assert "it takes more than 0.25 s to read" in capsys.readouterr().out


def test_vectors_that_the_model_does_not_agree_with_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tap(tmp_path)
    texts = phrases(read_tap(TapPlace(TapName("tap"), folder)))
    row = np.zeros(ROUTING.dimensions, np.float32)
    row[0] = 1
    lies = dict.fromkeys(texts[:-1], row)
    (folder / VECTORS).write_bytes(written_vectors(lies, ROUTING.key, ROUTING.dimensions))

    code = check.main([str(folder)], tmp_path)

    printed = capsys.readouterr().out
    assert code == 1
    assert "is not what the model says: `capd tap build` repairs it" in printed
    assert f"1 of {len(texts)} phrases have no vector in it: `capd tap build` adds them" in printed


def test_a_damaged_file_of_vectors_is_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tap(tmp_path)
    (folder / VECTORS).write_bytes(b"\0" * 100)

    code = check.main([str(folder)], tmp_path)

    assert code == 0
    assert capsys.readouterr().out.count("it is no file of vectors") == 1
