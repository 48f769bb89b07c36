"""Settings are followed while the daemon runs, and no change fails a call."""

import threading
from pathlib import Path

import pytest

from whole_daemon import Home, wait_for

GOOD = '[policy]\ndeny = ["plain:shout", "x:{number}"]\n'
BAD = ("[servers\n", "[servers]\nlinger = -1\n", 'servers = "x"\n', "\x00", "[policy]\ndeny = 3\n")


def config(home: Home) -> Path:
    folder = home.folder / "config"
    folder.mkdir(exist_ok=True)
    return folder / "config.toml"


def test_files_that_change_are_followed_and_a_bad_one_changes_nothing(home: Home) -> None:
    home.plain("plain")
    project = home.folder / "project"
    project.mkdir()
    home.start()
    editor = home.shim("s")
    home.ask("enable", session="s", name="plain")

    def lists(name: str) -> bool:
        return name in [each["name"] for each in home.ask("tools", session="s")["tools"]]

    assert lists("plain__shout")
    wait_for(lambda: "daemon_ready" in home.log())

    config(home).write_text(GOOD.format(number=3))
    wait_for(lambda: not lists("plain__shout"))
    config(home).write_text("[policy]\ndeny = 3\n")
    degraded = wait_for(lambda: home.ask("status")["daemon"]["degraded"])
    (home.folder / ".capd.toml").write_text('[policy]\ndeny = ["plain:echo"]\n')
    wait_for(lambda: not lists("plain__echo"))

    assert not lists("plain__shout")
    wrong = "line 2, `policy.deny`: Expected `array`, got `int`"
    assert degraded == [f"{config(home)} is not used: {wrong} (its last good state stays in use)"]
    assert home.capd("status").returncode == 4
    config(home).write_text('[embedder]\nplacement = "daemon"\n')
    wait_for(lambda: home.ask("status")["daemon"]["needs_restart"] == ["embedder.placement"])
    assert "needs a restart: embedder.placement" in home.capd("status").stdout
    editor.leave()


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.reliability)])
def test_alternating_good_and_bad_reloads_lose_no_call(home: Home, rounds: int) -> None:
    home.plain("plain")
    home.start()
    editor = home.shim("s")
    home.ask("enable", session="s", name="plain")
    stopped = threading.Event()
    answers: list[str] = []

    def call_on() -> None:
        while not stopped.is_set():
            words = f"call {len(answers)}"
            answers.append(editor.call("plain__echo", {"text": words})["content"][0]["text"])

    caller = threading.Thread(target=call_on)
    caller.start()
    try:
        for number in range(rounds):
            is_good = number % 2 == 0
            text = GOOD.format(number=number) if is_good else BAD[number // 2 % len(BAD)]
            config(home).write_text(text)
            home.ask("reload")
            told = home.ask("config")
            deny = {each["key"]: each["value"] for each in told["values"]}["policy.deny"]
            last_good = number if is_good else number - 1
            assert deny == ["plain:shout", f"x:{last_good}"]
            assert len(told["problems"]) == (0 if is_good else 1)
    finally:
        stopped.set()
        caller.join()

    assert len(answers) >= rounds
    assert [n for n, text in enumerate(answers) if f"call {n}" not in text] == []
    assert [each["restarts"] for each in home.servers()] == [0]
    editor.leave()
