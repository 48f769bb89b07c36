"""The scripted model calls tools it knows, searches for others, and counts lost tools."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.tokens.day import Call, Conversation, Turn, day
from bench.tokens.mcp_client import Tool
from bench.tokens.scripted_model import Played, ScriptedModel, cards, script_of
from bench.tokens.toolboxes import Result

LOG = Call("git:log", {"count": 5})
ADD = Call("git:add", {})
WANTS = {"git:log": "recent commits", "git:add": "stage files"}


class Toolbox:
    """Lists the tools that the test sets, and answers each search with one text."""

    system = "More exist."
    search = "find"
    caller = "call"
    takes_queries = False

    def __init__(
        self, listed: Sequence[str] = (), *, told: str = "", found: Mapping[str, str] | None = None
    ) -> None:
        self.called: list[tuple[str, Any]] = []
        self._listed = listed
        self._told = told
        self._found = found or {}

    def turn(self, text: str) -> str:
        return self._told if text else ""

    def listed(self) -> Sequence[Tool]:
        return [{"name": name, "inputSchema": {}} for name in self._listed]

    def name(self, call: Call) -> str:
        return call.tool.replace(":", "__")

    def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        self.called.append((name, dict(arguments)))
        text = self._found.get(arguments["query"], "nothing") if name == self.search else "done"
        return {"content": [{"type": "text", "text": text}]}

    def close(self) -> None:
        pass


def play(toolbox: Toolbox, *steps: list[Call], writes_scripts: bool = False) -> Played:
    conversation = Conversation("one", [Turn("what happened?", list(steps), "This.")])
    return ScriptedModel(toolbox, WANTS, writes_scripts=writes_scripts).play(conversation)


def test_a_listed_tool_is_called_by_its_name() -> None:
    toolbox = Toolbox(["git__log"])

    played = play(toolbox, [LOG])

    assert toolbox.called == [("git__log", {"count": 5})]
    assert [len(request.messages) for request in played.requests] == [1, 3]
    assert (played.calls, played.searches, played.lost) == (1, 0, [])


def test_an_unlisted_tool_is_searched_for_once_and_called_through_the_caller() -> None:
    toolbox = Toolbox(found={"recent commits": "## git__log\n{}\n## git__add\n{}\n- git__show()"})

    played = play(toolbox, [LOG], [ADD], [LOG])

    assert toolbox.called == [
        ("find", {"query": "recent commits"}),
        ("call", {"name": "git__log", "arguments": {"count": 5}}),
        ("call", {"name": "git__add", "arguments": {}}),
        ("call", {"name": "git__log", "arguments": {"count": 5}}),
    ]
    assert (len(played.requests), played.searches, played.lost) == (5, 1, [])


def test_tools_whose_names_were_told_are_looked_up_by_name_all_at_once() -> None:
    whole = '{"name":"git__log","x":1}\n{"name":"git__add","x":1}'
    toolbox = Toolbox(told="On: git__log, git__add.", found={"select:git__log,git__add": whole})

    played = play(toolbox, [LOG], [ADD])

    assert toolbox.called[0] == ("find", {"query": "select:git__log,git__add"})
    assert (len(played.requests), played.searches, played.lost) == (4, 1, [])


def test_a_tool_whose_card_was_told_is_called_without_a_search() -> None:
    toolbox = Toolbox(told="By call:\n- git__log(repo, count=10, since?)  Shows commits")

    played = play(toolbox, [LOG])

    assert toolbox.called == [("call", {"name": "git__log", "arguments": {"count": 5}})]
    assert (len(played.requests), played.searches, played.lost) == (2, 0, [])


def test_a_card_that_does_not_name_an_argument_is_looked_up() -> None:
    toolbox = Toolbox(
        told="By call:\n- git__log(repo, ...)", found={"select:git__log": "## git__log\n{}"}
    )

    played = play(toolbox, [LOG])

    assert (played.searches, played.calls, played.lost) == (1, 1, [])


def test_a_card_names_its_own_arguments_and_not_those_nested_in_them() -> None:
    text = '- a__b(path, mode?: "x"|"y", items: [{id, tags?: [str]}], depth=2)  Does it\n- c__d()'

    assert cards(text) == {"a__b": {"path", "mode", "items", "depth"}, "c__d": set()}


def test_what_two_searches_do_not_bring_is_lost_and_the_turn_goes_on() -> None:
    toolbox = Toolbox(["git__add"], found={"recent commits": "- git__log: shows"})

    played = play(toolbox, [LOG], [ADD])

    assert [arguments for name, arguments in toolbox.called if name == "find"] == [
        {"query": "recent commits"},
        {"query": "what happened?"},
    ]
    assert (played.calls, played.lost) == (1, ["git:log"])
    assert played.requests[-1].answered == "This."


def test_a_card_that_is_too_short_for_a_call_is_looked_up_by_name() -> None:
    schema = '## git__log\n{"properties":{"count":{}}}'
    found = {"recent commits": "- git__log(repo_path, ...)  Shows", "select:git__log": schema}
    toolbox = Toolbox(["git__add"], found=found)

    played = play(toolbox, [LOG])

    asked = [arguments["query"] for name, arguments in toolbox.called if name == "find"]
    assert (asked, played.lost) == (["recent commits", "select:git__log"], [])


def test_the_day_has_fifty_turns_and_a_search_for_each_tool() -> None:
    read = day({"P": "/p", "WEB": "http://w"})

    turns = [turn for conversation in read.conversations for turn in conversation.turns]
    calls = [call for turn in turns for step in turn.steps for call in step]
    assert (len(read.conversations), len(turns), sum(not turn.steps for turn in turns)) == (
        5,
        50,
        15,
    )
    assert {call.tool for call in calls} == set(read.wants)
    assert "{{" not in repr(read)


def test_a_day_with_fewer_servers_only_talks_about_the_rest() -> None:
    read = day({"P": "/p", "WEB": "http://w"}).limited({"time"})

    turns = [turn for conversation in read.conversations for turn in conversation.turns]
    calls = [call.tool for turn in turns for step in turn.steps for call in step]
    assert (len(turns), calls) == (50, ["time:get_current_time", "time:convert_time"])


def test_three_calls_of_a_turn_are_one_script_and_two_are_not() -> None:
    three, two = Toolbox(["git__log", "git__add"]), Toolbox(["git__log", "git__add"])

    many = play(three, [LOG, ADD], [LOG], writes_scripts=True)
    few = play(two, [LOG], [ADD], writes_scripts=True)

    code = script_of([LOG, ADD, LOG])
    assert three.called == [("call", {"name": "script_run", "arguments": {"code": code}})]
    assert "await git.log(count=5),\n    await git.add(),\n" in code
    assert (many.calls, len(many.requests)) == (3, 2)
    assert [name for name, _ in two.called] == ["git__log", "git__add"]
    assert (few.calls, len(few.requests)) == (2, 3)
