"""The prompt of a model request, for two kinds of clients.

Both send the tools, the system text and the messages, in this order, and all of it again with each
request. A client of the kind `tools first` sends the list of tools as it is at that moment. One of
the kind `appends` keeps the first list: it adds a later tool after the messages so far, and never
removes one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.tokens.token_price import Priced

Kind = Literal["tools first", "appends"]
Tokens = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The parts of one request, as text; `messages` are all since the conversation began."""

    tools: tuple[str, ...]
    system: str
    messages: tuple[str, ...]
    answered: str
    """What the model wrote in answer."""
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
            # A tool that is new since the last request comes before the new messages.
            told += [tool for tool in request.tools if tool not in known]
            known.update(request.tools)
            told += request.messages[taken:]
            taken = len(request.messages)
            text = (*head, *told)
        prompt = tuple(token for part in text for token in tokens(part))
        priced.append(Priced(prompt, len(tokens(request.answered)), request.begins_turn))
    return priced
