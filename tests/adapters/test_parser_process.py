"""The parser process may be started before its first job."""

from collections.abc import Iterator

import pytest

from capd.adapters.parsing.jobs import ReadSkillText, SkillText
from capd.adapters.parsing.parser import Parser


@pytest.fixture
def parser() -> Iterator[Parser]:
    made = Parser()
    yield made
    made.close()


def test_a_process_that_was_started_ahead_does_the_first_job(parser: Parser) -> None:
    parser.start()
    ahead = parser.pid
    parser.start()

    found = parser.read(ReadSkillText(b"---\nname: a\ndescription: b\n---\nThe text.\n"))

    assert found == SkillText("The text.")
    assert ahead is not None
    assert parser.pid == ahead


def test_a_process_that_cannot_be_started_ahead_is_left_to_the_first_job(
    parser: Parser, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_python:
        without_python.setattr("sys.executable", "/nonexistent/python")

        parser.start()

    assert parser.pid is None
    assert parser.read(ReadSkillText(b"no front matter")) == SkillText(None)
