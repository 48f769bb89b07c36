"""Every number of `capd status --tokens` equals a recount of the bytes a client read."""

import json
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from capd.adapters.tokens.token_counts import count
from capd_client.mcp_host import McpHost
from whole_daemon import OWN_TOOLS, SHIM, Home, wait_for

pytestmark = pytest.mark.model

MANY_SERVER = Path(__file__).parent / "many_server.py"
TOOLS = "measure_size,change_size,delete_size"


class Recorded(McpHost):
    """An editor that keeps every line of its shim unchanged."""

    def __init__(self, home: Home, session: str) -> None:
        self.lines: list[bytes] = []
        super().__init__(
            [sys.executable, "-I", "-S", str(SHIM), home.socket],
            env={**home.env, "CAPD_SESSION": session, "CAPD_CLIENT": "test-editor"},
            cwd=str(home.folder),
        )
        self.initialize("test-editor")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def results(self, member: str) -> list[msgspec.Raw]:
        """Return this member of every result that has it, byte for byte."""
        found = []
        for line in self.lines:
            message = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            if "result" in message:
                result = msgspec.json.decode(message["result"], type=dict[str, msgspec.Raw])
                found += [result[member]] if member in result else []
        return found

    @property
    def lists(self) -> list[list[bytes]]:
        """Every list of tools, each definition byte for byte."""
        lists = [msgspec.json.decode(r, type=list[msgspec.Raw]) for r in self.results("tools")]
        return [[bytes(each) for each in listed] for listed in lists]

    @property
    def instructions(self) -> str:
        return msgspec.json.decode(self.results("instructions")[-1], type=str)

    @property
    def texts(self) -> list[str]:
        """The text of every call's result."""
        return [json.loads(bytes(r))[0]["text"] for r in self.results("content")]

    def change(self) -> None:
        self.wait_for("notifications/tools/list_changed")
        self.tools()


def anew(old: list[bytes], new: list[bytes]) -> int:
    """Count what of a list a prefix cache does not have, by the list as one text."""
    before, after = b",".join(old).decode(), b",".join(new).decode()
    same = next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    tokens = start = 0
    for each in (definition.decode() for definition in new):
        end = start + len(each)
        if same < end:
            tokens += count(each[max(0, same - start) :])
        start = end + 1
    return tokens


def of(definitions: list[bytes]) -> int:
    return sum(count(each) for each in definitions)


def name_of(definition: bytes) -> str:
    return str(json.loads(definition)["name"])


def counted(home: Home) -> dict[str, Any]:
    """Return the only session's tokens, once all that was sent is counted."""

    def look() -> dict[str, Any] | None:
        answer = home.ask("tokens")
        assert answer["problem"] == ""
        (session,) = answer["sessions"]
        return None if session["counting"] else session

    return wait_for(look, patience=120.0)


def printed(home: Home) -> list[tuple[str, int]]:
    """Return every number in the table by the name of its row."""

    def look() -> str:
        table = home.capd("status", "--tokens")
        assert table.returncode == 0, table.stderr
        return "" if "counting" in table.stdout else table.stdout

    lines = wait_for(look, patience=120.0).splitlines()
    rows = [line.strip() for line in lines if line.startswith("  ")]
    split = [row.replace("capd's own", "own").split("  ", 1) for row in rows]
    return [(name, int(rest.split()[0].replace(",", ""))) for name, rest in split]


def found(home: Home, name: str) -> list[Any]:
    """Return the finder's data on a tool."""
    return list(home.ask("search", query=f"select:{name}")["hits"])


def shown_by(home: Home, method: str) -> list[dict[str, Any]]:
    """Return the sessions of a document once they are counted."""
    sessions: list[dict[str, Any]] = home.ask(method)["sessions"]
    return sessions if all(each["tokens_state"] == "counted" for each in sessions) else []


def test_each_printed_number_is_the_one_of_the_bytes_on_the_wire(home: Home) -> None:
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text('[policy]\ndeny = ["wide:delete_*"]\n')
    home.plain("talk")
    argv = [sys.executable, "-I", str(MANY_SERVER), "größe", TOOLS, home.tag]
    home.capability("wide", argv)
    home.start()
    editor = Recorded(home, "one")
    editor.tools()
    for name in ("talk", "wide"):
        home.ask("enable", session="one", name=name)
        editor.change()
    editor.tools()
    editor.call("tool_search", {"query": "shout"})
    editor.call("tool_search", {"query": ""})
    editor.call("capability", {"action": "list"})
    editor.call("talk__echo", {"text": "not capd's own words"})
    home.ask("call", session="one", name="tool_search", arguments={"query": "not the model's"})
    home.ask("disable", session="one", name="talk")
    editor.change()
    for name in ("talk__echo", "wide__measure_size"):
        wait_for(partial(found, home, name))

    session = counted(home)

    lists, texts = editor.lists, editor.texts
    listed, own = lists[-1], lists[-1][: len(OWN_TOOLS)]
    offered = {name_of(each): each for found in lists for each in found}
    everything = [each for name, each in offered.items() if name not in OWN_TOOLS]
    changes = [(a, b) for a, b in pairwise(lists) if a != b]
    costs = [anew(a, b) for a, b in changes]
    surface = of(listed) + count(editor.instructions)
    searches, answers = [count(text) for text in texts[:2]], [count(texts[2])]
    added = sum(searches) + sum(answers) + sum(costs)
    saved = of(everything) - surface
    assert [name_of(each) for each in own] == OWN_TOOLS
    assert sorted(offered) == sorted(
        [*OWN_TOOLS, "talk__echo", "talk__shout", "wide__measure_size", "wide__change_size"]
    )
    assert session["surface"] == {
        "tools": len(listed),
        "tokens": surface,
        "list": of(listed),
        "own_tools": of(own),
        "instructions": count(editor.instructions),
    }
    known = {"talk", "wide"}
    unlisted = {s for c in home.ask("caps")["capabilities"] for s in c["servers"]} - known
    assert session["all_tools"] == {
        "tools": len(everything),
        "tokens": of(everything),
        "unlisted": sorted(unlisted),
    }
    assert session["saved"] == saved
    assert session["added"] == {
        "tokens": added,
        "turns": {"count": 0, "tokens": 0, "uncounted": 0},
        "searches": {"count": 2, "tokens": sum(searches), "uncounted": 0},
        "answers": {"count": 1, "tokens": sum(answers), "uncounted": 0},
        "list_changes": {"count": 3, "tokens": sum(costs), "uncounted": 0},
    }
    assert session["net"] == saved - added
    came_and_went = [(len(set(b) - set(a)), len(set(a) - set(b)), anew(a, b)) for a, b in changes]
    last = [(each["added"], each["removed"], each["tokens"]) for each in session["last_changes"]]
    assert last == came_and_went
    # A loss is called one, and printed without a sign.
    assert [number for _, number in printed(home)] == [
        *(of(listed), of(own), count(editor.instructions), surface, of(everything), abs(saved)),
        *(0, sum(searches), sum(answers), sum(costs), abs(saved - added), *costs),
    ]
    for method in ("status", "sessions"):
        (shown,) = wait_for(partial(shown_by, home, method), patience=120.0)
        assert (shown["tokens"], shown["tokens_saved"]) == (surface, saved - added)
    editor.leave()


@pytest.mark.real
def test_what_a_turn_tells_the_model_is_counted_as_it_was_told(home: Home) -> None:
    home.plain("talk")
    home.start()
    editor = Recorded(home, "one")
    editor.tools()
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready")
    editor.call("capd_turn", {"prompt": "please run talk"})

    session = counted(home)

    output = json.loads(editor.texts[-1])["hookSpecificOutput"]
    told = count(output["additionalContext"])
    assert session["added"]["turns"] == {"count": 1, "tokens": told, "uncounted": 0}
    editor.leave()
