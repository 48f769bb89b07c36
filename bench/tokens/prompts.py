"""The prompt of a model request, for the two kinds of clients that there are.

Both send tools, system text, messages, in this order, and the whole again with each request. A
client that puts its tools first writes the list as it is at that moment. One that only appends
leaves the first list where it is: a tool that comes later is added behind the messages that were
there by then, and one that goes is left.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.tokens.token_price import Priced

Kind = Literal["tools first", "appends"]
Tokens = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What one request is made of, as text; `messages` are all since the conversation began."""

    tools: tuple[str, ...]
    system: str
    messages: tuple[str, ...]
    answered: str
    """What the model wrote for it."""
    begins_turn: bool = False


def prompts(requests: Iterable[ModelRequest], kind: Kind, tokens: Tokens) -> list[Priced]:
    """Return one conversation's requests as tokens."""
    priced = []
    head: tuple[str, ...] = ()
    told: list[str] = []
    known: set[str] = set()
    taken = 0
    for number, request in enumerate(requests):
        if kind == "tools first":
            text = (*request.tools, request.system, *request.messages)
        else:
            if number == 0:
                head = (*request.tools, request.system)
                known.update(request.tools)
            # A tool that came since the last request is announced before what was said since.
            told += [tool for tool in request.tools if tool not in known]
            known.update(request.tools)
            told += request.messages[taken:]
            taken = len(request.messages)
            text = (*head, *told)
        prompt = tuple(token for part in text for token in tokens(part))
        priced.append(Priced(prompt, len(tokens(request.answered)), request.begins_turn))
    return priced
