"""What a conversation's model requests cost, by a provider's rules for cached prompts.

Each request sends the whole prompt again. The prefix that it has in common with the request before
is read from the cache; the rest is written to the cache. After a change at the front, where many
clients put the tools, nothing that follows can be read. Prices are ratios to one input token.

This assumes that conversations do not share a cache, that a request finds what the one before it
has written, and that an entry lives as long as the conversation. Providers keep an entry for five
minutes after its last use; `expires_between_turns` prices a user who takes longer than that to
answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices per token, as multiples of the price of an uncached input token."""

    input: float = 1.0
    write: float = 1.25
    read: float = 0.1
    output: float = 5.0
    least_cached: int = 1024
    """In tokens. A shorter prefix is never cached."""


@dataclass(frozen=True, slots=True)
class Priced:
    """One request: its prompt in tokens, and how many tokens the model answered."""

    prompt: tuple[int, ...]
    output: int
    begins_turn: bool = False


@dataclass(frozen=True, slots=True)
class Bill:
    """The sums over some requests; in tokens, except `requests` and `breaks`."""

    requests: int = 0
    prompt: int = 0
    read: int = 0
    written: int = 0
    plain: int = 0
    """Neither read from a cache nor written to one."""
    output: int = 0
    breaks: int = 0
    """Requests that did not begin with the whole prompt of the one before."""
    broken: int = 0
    """The tokens of the prompt before, from the first difference on: they cannot be read."""

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(
            self.requests + other.requests,
            self.prompt + other.prompt,
            self.read + other.read,
            self.written + other.written,
            self.plain + other.plain,
            self.output + other.output,
            self.breaks + other.breaks,
            self.broken + other.broken,
        )

    def units(self, rates: Rates) -> float:
        """Return the price, in units of one uncached input token."""
        return (
            self.plain * rates.input
            + self.written * rates.write
            + self.read * rates.read
            + self.output * rates.output
        )


def bill(requests: Iterable[Priced], rates: Rates, *, expires_between_turns: bool = False) -> Bill:
    """Return the bill of one conversation's requests, which are in order."""
    total = Bill()
    before: tuple[int, ...] = ()
    for request in requests:
        size, shared = len(request.prompt), common_prefix(before, request.prompt)
        is_broken = shared < len(before)
        is_expired = expires_between_turns and request.begins_turn
        read = 0 if is_expired or shared < rates.least_cached else shared
        is_kept = size >= rates.least_cached
        total += Bill(
            requests=1,
            prompt=size,
            read=read,
            written=size - read if is_kept else 0,
            plain=0 if is_kept else size - read,
            output=request.output,
            breaks=int(is_broken),
            broken=len(before) - shared,
        )
        before = request.prompt
    return total


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two prompts have in common from the first on."""
    shortest = min(len(one), len(other))
    if one[:shortest] == other[:shortest]:
        return shortest
    low, high = 0, shortest
    # The longest equal prefix lies in [low, high): slices compare far faster than a loop.
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
