"""The values that the library returns: turns, tools and results.

`raw` is the JSON that the daemon sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from capd_client.agent.errors import CapdError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """What capd decided on a user's message, and the text that the agent should give its model."""

    outcome: Literal["activate", "suggest", "abstain"]
    name: str
    """The chosen capability; empty if there is none."""
    reason: str
    added: tuple[str, ...]
    """Names of the tools that joined the list."""
    removed: tuple[str, ...]
    suggested: tuple[str, ...]
    """Capabilities that the message may mean, and that are not on."""
    context: str
    """The text for the model, to be sent with the message; empty if there is nothing new to say."""
    problem: str
    """Why the chosen capability could not be switched on; empty if it could."""
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def read(cls, raw: Json) -> Self:
        """Return the turn that the result of `capd/turn` describes."""
        outcome = raw.get("outcome")
        if outcome not in {"activate", "suggest", "abstain"}:
            raise CapdError(f"the daemon answered a turn with the outcome {outcome!r}")
        return cls(
            outcome=outcome,
            name=_text(raw, "name"),
            reason=_text(raw, "reason"),
            added=_names(raw.get("changed"), "added"),
            removed=_names(raw.get("changed"), "removed"),
            suggested=_names(raw, "suggested"),
            context=_text(raw, "context"),
            problem=_text(raw, "problem"),
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """The result of switching a capability on or off."""

    text: str
    added: tuple[str, ...]
    removed: tuple[str, ...]

    @classmethod
    def read(cls, raw: Json) -> Self:
        """Return the change that the result of `enable` or `disable` describes."""
        changed = raw.get("changed")
        return cls(_text(raw, "text"), _names(changed, "added"), _names(changed, "removed"))


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that is listed at this moment."""

    name: str
    description: str
    input_schema: Json
    """JSON Schema of the arguments."""
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def read(cls, raw: Json) -> Self:
        """Return the tool that an entry of the result of `tools/list` describes."""
        schema = raw.get("inputSchema")
        return cls(
            name=_text(raw, "name"),
            description=_text(raw, "description"),
            input_schema=schema if isinstance(schema, dict) else {"type": "object"},
            raw=raw,
        )

    def as_openai(self) -> Json:
        """Return the tool as an entry of `tools` in an OpenAI-style chat completion request."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.input_schema,
        }
        return {"type": "function", "function": function}

    def as_anthropic(self) -> Json:
        """Return the tool as an entry of `tools` in a request to Anthropic's messages API."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call."""

    content: tuple[Json, ...]
    """The blocks as the server wrote them: texts, images, links."""
    structured: Any
    """`structuredContent`, if the server sent any."""
    is_error: bool
    """Whether the tool itself failed; its text is for the model."""
    raw: Json = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """All texts of the content, separated by line breaks."""
        texts = [each["text"] for each in self.content if isinstance(each.get("text"), str)]
        return "\n".join(texts)

    @classmethod
    def read(cls, raw: Json) -> Self:
        """Return the result that the JSON result of `tools/call` describes."""
        content = raw.get("content")
        blocks = content if isinstance(content, list) else []
        return cls(
            content=tuple(each for each in blocks if isinstance(each, dict)),
            structured=raw.get("structuredContent"),
            is_error=raw.get("isError") is True,
            raw=raw,
        )


def tools_of(raw: Json) -> list[Tool]:
    """Return the tools that the result of `tools/list` describes."""
    listed = raw.get("tools")
    entries = listed if isinstance(listed, list) else []
    return [Tool.read(each) for each in entries if isinstance(each, dict)]


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def _names(raw: object, key: str) -> tuple[str, ...]:
    values = raw.get(key) if isinstance(raw, dict) else None
    return tuple(map(str, values)) if isinstance(values, list) else ()
