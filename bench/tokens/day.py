"""The scripted day, as `day.toml` has it."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

DAY = Path(__file__).with_name("day.toml")


class Call(msgspec.Struct, frozen=True):
    """One tool call of the model."""

    tool: str
    """`server:tool`, whatever its name on the wire is."""
    arguments: dict[str, Any]

    @property
    def server(self) -> str:
        return self.tool.partition(":")[0]


class Turn(msgspec.Struct, frozen=True):
    """The user's message, the calls for it, and the model's answer."""

    say: str
    steps: list[list[Call]]
    answer: str


class Conversation(msgspec.Struct, frozen=True):
    title: str
    turns: list[Turn]


class Day(msgspec.Struct, frozen=True):
    conversations: list[Conversation]
    wants: dict[str, str]
    """What the model searches for when it does not see a tool, by the tool."""

    def limited(self, servers: set[str]) -> "Day":
        """Return the day with only these servers; other requests become plain text."""
        conversations = [
            Conversation(
                conversation.title,
                [
                    Turn(
                        turn.say,
                        [
                            kept
                            for step in turn.steps
                            if (kept := [call for call in step if call.server in servers])
                        ],
                        turn.answer,
                    )
                    for turn in conversation.turns
                ],
            )
            for conversation in self.conversations
        ]
        return Day(conversations, self.wants)


def day(places: dict[str, str]) -> Day:
    """Return the day with its placeholders filled."""
    read = tomllib.loads(DAY.read_text(encoding="utf-8"))
    return msgspec.convert(filled(read, places), Day)


def filled(value: Any, places: dict[str, str]) -> Any:
    """Return a value with `{{NAME}}` in its texts replaced."""
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace("{{" + name + "}}", place)
        return value
    if isinstance(value, list):
        return [filled(each, places) for each in value]
    if isinstance(value, dict):
        return {key: filled(each, places) for key, each in value.items()}
    return value
