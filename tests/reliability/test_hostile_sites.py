"""A server by URL that answers with bombs: it costs its own calls, and nobody else anything."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .world import World, outcome, text_of

pytestmark = pytest.mark.reliability

SITE = Path(__file__).with_name("bombing_site.py")


MOST_CONTINUATIONS = 40
"""Far more than capd needs within the 20 s of a call, and far fewer than the hundreds without a
bound."""


@contextlib.contextmanager
def bombing(
    world: World, what: str, timeout_seconds: int = 20
) -> Iterator[Callable[[], list[str]]]:
    """Run a site, define a capability on it whose calls have so long, and start the daemon.

    Yield a function that ends the site and returns the streams that it was asked to continue.
    """
    argv = [sys.executable, str(SITE), what]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout
        assert said is not None

        def continued() -> list[str]:
            process.kill()
            return said.read().splitlines()

        try:
            url = said.readline().strip()
            world.home.plain("far")
            (world.home.folder / "tap/capabilities/far/default.toml").write_text(
                f'[[mcp.servers]]\nname = "far"\nurl = {json.dumps(url)}\ntransport = "http"\n'
                f"timeout_seconds = {timeout_seconds}\n"
            )
            world.start()
            yield continued
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("batch", "a batch of more than 16777216 bytes"),
        ("messages", "a batch of more than 1000 messages"),
        ("lines", "an event of more than 1000000 lines"),
    ],
)
def test_an_answer_that_bursts_ends_its_call_alone(world: World, what: str, why: str) -> None:
    with bombing(world, what), world.beside_an_honest_session():
        session = world.session("one", "far")

        answer = session.call("far__echo")

        assert outcome(answer) == "outcome_unknown"
        assert why in text_of(answer)


def test_a_list_whose_marks_burst_is_not_read(world: World) -> None:
    with bombing(world, "marks"), world.beside_an_honest_session():
        world.session("one")

        enabled = world.enable("one", "far")

        assert not enabled["ok"]
        assert "far" in enabled["text"]


def test_large_answers_of_one_server_are_in_memory_one_at_a_time(world: World) -> None:
    with bombing(world, "large"), world.beside_an_honest_session():
        session = world.session("one", "far")

        calls = [session.begin("far__echo") for _ in range(4)]

        outcomes = {outcome(session.answer(call)) for call in calls}
        assert outcomes <= {"result", "outcome_unknown", "not_sent"}


def test_a_stream_without_news_is_given_up_at_its_calls_time(world: World) -> None:
    with bombing(world, "no_news") as continued, world.beside_an_honest_session():
        session = world.session("one", "far")

        answer = session.call("far__echo")

        assert outcome(answer) == "outcome_unknown"
        assert "task_failed" not in world.log()
        # It asks to be continued at once, again and again.
        assert 0 < len(continued()) <= MOST_CONTINUATIONS


def test_a_call_that_is_redirected_to_a_clouds_metadata_goes_nowhere(world: World) -> None:
    with bombing(world, "redirect"):
        session = world.session("one", "far")

        answer = session.call("far__echo")

        assert outcome(answer) == "refused"
        assert "redirects elsewhere (HTTP 307), which is not followed" in text_of(answer)
