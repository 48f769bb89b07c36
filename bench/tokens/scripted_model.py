"""The model of the day: it knows what it wants to call, and only what its prompt has told it.

It calls a listed tool by its name. It calls another tool through the toolbox's `caller`, if it has
read the tool's schema in this conversation, or a call card that names every argument of the call: a
model cannot guess an argument. If it has read only a tool's name or too short a card, it looks the
schema up by name, for all tools that a turn needs at once. Otherwise it searches by what the tool
should do, when a step needs it, with several queries at once where the search takes them. Each of
these is one more model request. A call whose tool two searches do not find is counted as lost, and
the step goes on without it.

A model that writes scripts puts the calls of a turn, if there are three or more, into one script
whose value is all their results.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.tokens.day import Call, Conversation, Turn
from bench.tokens.prompts import ModelRequest
from bench.tokens.toolboxes import Toolbox, offered, text_of

from capd.core.scripts.script_tool import SCRIPT_RUN

HOST = (
    "You are a coding assistant in the user's editor. Answer in plain words and keep it short. "
    "Use the tools where they help, several at once where they do not need each other, and say "
    "what you did. Never guess the contents of a file: read it. Ask before you delete anything."
)
"""What every row's system prompt begins with."""
# A search hit with its whole schema, as capd or the proxy writes it.
_SCHEMA_OF = re.compile(r'^(?:## (\S+)|\{"name":"([^"]+)",)', re.MULTILINE)
# A call card: `- name(argument, other=1, third?: [str])  What it does`.
_CARD_OF = re.compile(r"^- ([\w.-]+)\((.*)\)(?:  .*)?$", re.MULTILINE)
SCRIPT_CALLS = 3
"""The model writes a script for a turn of at least this many calls."""
_ARGUMENT = re.compile(r"[\w.$-]+")


@dataclass(slots=True)
class Played:
    """One conversation, with its requests and answers."""

    requests: list[ModelRequest] = field(default_factory=list)
    calls: int = 0
    searches: int = 0
    lost: list[str] = field(default_factory=list)
    """Calls that did not reach their tool."""
    failed: list[str] = field(default_factory=list)
    """Calls that reached their tool, and came back as errors."""
    lists: int = 0
    """How often the list of tools differed from that of the request before."""
    longest_list: int = 0


class ScriptedModel:
    """One conversation through one toolbox."""

    def __init__(
        self, toolbox: Toolbox, wants: dict[str, str], *, writes_scripts: bool = False
    ) -> None:
        self._toolbox = toolbox
        self._wants = wants
        self._writes_scripts = writes_scripts
        self._system = "\n\n".join(part for part in (HOST, toolbox.system) if part)
        self._messages: list[str] = []
        self._schemas: set[str] = set()
        """Tools whose schema a search has brought."""
        self._cards: dict[str, set[str]] = {}
        """The arguments that each call card has named."""
        self._begins_turn = False
        self._listed: dict[str, str] = {}
        self.played = Played()

    def play(self, conversation: Conversation) -> Played:
        for turn in conversation.turns:
            self._play(turn)
        return self.played

    def _play(self, turn: Turn) -> None:
        told = self._toolbox.turn(turn.say)
        self._messages.append(turn.say)
        if told:
            self._messages.append(f"<context>{told}</context>")
            self._cards.update(cards(told))
        self._begins_turn = True
        self._look()
        calls = [call for step in turn.steps for call in step]
        self._look_up_named(calls)
        is_script = self._writes_scripts and len(calls) >= SCRIPT_CALLS
        for step in [calls] if is_script else turn.steps:
            self._search_for(step, turn.say)
            reachable = [call for call in step if self._is_known(call)]
            self.played.lost += [call.tool for call in step if not self._is_known(call)]
            if reachable:
                (self._call_in_script if is_script else self._call)(reachable)
        self._answer(turn.answer.strip())

    def _is_known(self, call: Call) -> bool:
        name = self._toolbox.name(call)
        if name in self._listed or name in self._schemas:
            return True
        return name in self._cards and self._cards[name].issuperset(call.arguments)

    def _look_up_named(self, calls: Sequence[Call]) -> None:
        """Get the missing schemas of the tools whose names it has read, in one request."""
        names = [self._toolbox.name(call) for call in calls if not self._is_known(call)]
        named = [name for name in dict.fromkeys(names) if any(name in m for m in self._messages)]
        if named and self._toolbox.search:
            self._searched([f"select:{','.join(named)}"])

    def _search_for(self, calls: Sequence[Call], say: str) -> None:
        """Search for a step's missing tools: by purpose, then by the user's words.

        After each, look up those of which only a short card was found.
        """
        for words in (self._wants, dict.fromkeys(self._wants, say)):
            missing = [call.tool for call in calls if not self._is_known(call)]
            if not missing or not self._toolbox.search:
                return
            self._searched(list(dict.fromkeys(words[tool] for tool in missing)))
            # A card may lack an argument of the call; the schema has it.
            self._look_up_named([call for call in calls if self._toolbox.name(call) in self._cards])

    def _searched(self, queries: Sequence[str]) -> None:
        self.played.searches += len(queries)
        asked: list[tuple[str, dict[str, Any]]]
        if self._toolbox.takes_queries and len(queries) > 1:
            asked = [(self._toolbox.search, {"queries": list(queries)})]
        else:
            asked = [(self._toolbox.search, {"query": query}) for query in queries]
        for found in self._asked(asked):
            self._schemas.update(with_schemas(found))
            self._cards.update(cards(found))

    def _call(self, calls: Sequence[Call]) -> None:
        asked: list[tuple[str, dict[str, Any]]] = []
        for call in calls:
            name = self._toolbox.name(call)
            if name in self._listed:
                asked.append((name, call.arguments))
            else:
                asked.append((self._toolbox.caller, {"name": name, "arguments": call.arguments}))
        self.played.calls += len(calls)
        self._asked(asked, calls)

    def _call_in_script(self, calls: Sequence[Call]) -> None:
        arguments = {"name": SCRIPT_RUN, "arguments": {"code": script_of(calls)}}
        self.played.calls += len(calls)
        self._asked([(self._toolbox.caller, arguments)], calls[:1])

    def _asked(
        self, asked: Sequence[tuple[str, dict[str, Any]]], calls: Sequence[Call] = ()
    ) -> list[str]:
        """Let the model write tool calls, and return their results."""
        uses = [
            json.dumps({"name": name, "input": arguments}, ensure_ascii=False)
            for name, arguments in asked
        ]
        self._requested("\n".join(uses))
        results = [self._toolbox.call(name, arguments) for name, arguments in asked]
        texts = [text_of(result) for result in results]
        for call, result, text in zip(calls, results, texts, strict=False):
            if result.get("isError"):
                self.played.failed.append(f"{call.tool}: {text[:200]}")
        self._messages += texts
        self._look()
        return texts

    def _answer(self, text: str) -> None:
        self._requested(text)

    def _look(self) -> None:
        """Read the list of tools for the next request, and note whether it has changed."""
        listed = {str(tool["name"]): offered(tool) for tool in self._toolbox.listed()}
        if self._listed and list(listed.items()) != list(self._listed.items()):
            self.played.lists += 1
        self._listed = listed
        self.played.longest_list = max(self.played.longest_list, len(listed))

    def _requested(self, written: str) -> None:
        request = ModelRequest(
            tuple(self._listed.values()),
            self._system,
            tuple(self._messages),
            written,
            self._begins_turn,
        )
        self.played.requests.append(request)
        self._messages.append(written)
        self._begins_turn = False


def script_of(calls: Sequence[Call]) -> str:
    """Return a script that makes calls one after the other, and has their results as its value."""
    lines = []
    for call in calls:
        server, _, tool = call.tool.partition(":")
        given = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        lines.append(f"    await {server.replace('-', '_')}.{tool}({given}),\n")
    return f"[\n{''.join(lines)}]"


def with_schemas(found: str) -> set[str]:
    """Return the tools for which a search's answer has schemas, not only names."""
    return {one or other for one, other in _SCHEMA_OF.findall(found)}


def cards(text: str) -> dict[str, set[str]]:
    """Return the call cards of a text: the arguments that each names."""
    return {name: _arguments(written) for name, written in _CARD_OF.findall(text)}


def _arguments(written: str) -> set[str]:
    """Return the names of the arguments of one card, not those of members nested in them."""
    names: set[str] = set()
    depth, is_name = 0, True
    for at, character in enumerate(written):
        depth += (character in "[{") - (character in "]}")
        if is_name and (found := _ARGUMENT.match(written, at)):
            names.add(found[0])
            is_name = False
        if character == "," and not depth:
            is_name = True
    return names
