"""The globs of policies, filters and pins: like the standard library's, in bounded time."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capd.core.globs import GlobSet, compiled, matches
from support.examples import examples

LETTERS = st.text(alphabet="ab-]![*?\\^.é", max_size=14)


@settings(max_examples=examples(2000))
@given(text=st.text(alphabet="ab-]![*?\\^.é", max_size=14), pattern=LETTERS)
@example("a", "[!]")
@example("]", "[]]")
@example("-", "[a-]")
@example("b", "[a-c-e]")
@example("-", "[a-c-e]")
@example("x", "[z-a]")
@example("x", "[!z-a]")
@example("aXb", "a*b")
@example("ab", "ab*b")
def test_it_means_what_the_standard_library_means(text: str, pattern: str) -> None:
    assert matches(text, pattern) == fnmatchcase(text, pattern)


@pytest.mark.parametrize("pattern", ["*a" * 60 + "*b", "?*" * 60 + "[b]", "[ab]*" * 60 + "c"])
def test_no_pattern_goes_back_over_a_text(pattern: str) -> None:
    steps = 0

    class Counted(str):
        __slots__ = ()

        def __iter__(self) -> Iterator[str]:
            nonlocal steps
            for character in super().__iter__():
                steps += 1
                yield character

    text = Counted("a" * 5000)

    assert not compiled(pattern)(text)

    assert steps <= len(text)


@given(text=LETTERS, patterns=st.lists(LETTERS, max_size=5))
def test_several_looked_for_together_are_found_as_each_alone(
    text: str, patterns: list[str]
) -> None:
    alone = tuple(n for n, pattern in enumerate(patterns) if fnmatchcase(text, pattern))

    assert GlobSet(patterns).matching(text) == alone


def test_no_alphabet_fills_the_memory() -> None:
    patterns = GlobSet(["?*[x]", "[!a]"])
    before = len(patterns._masks)
    for code in range(0x4E00, 0x4E00 + 3000):
        patterns.matching(chr(code))

    assert len(patterns._masks) == before
