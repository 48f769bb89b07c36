"""Records of a daemon contain reasons and no messages, and never stop the daemon."""

import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from whole_daemon import Home, wait_for


def database(home: Home) -> bytes:
    """Return everything that is in the ledger's files."""
    files = sorted((home.folder / "state").glob("ledger.sqlite*"))
    assert files
    return b"".join(file.read_bytes() for file in files)


def until_written(home: Home) -> None:
    """Wait until nothing that was noted waits for the disk."""
    wait_for(lambda: home.ask("status")["ledger"]["waiting"] == 0 or None)


@pytest.mark.model
def test_why_tells_after_a_restart_why_something_was_not_switched_on(home: Home) -> None:
    home.plain("talk")
    provider = home.folder / "tap/capabilities/talk/default.toml"
    provider.write_text(provider.read_text() + 'env = { KEY = "{{ENV:TALK_KEY}}" }\n')
    daemon = home.start()
    editor = home.shim("one")
    home.ask("turn", session="one", text="ok")
    refused = home.capd("enable", "--session", "one", "talk")
    editor.leave()
    daemon.terminate()
    daemon.wait()
    home.start()

    told = json.loads(home.capd("why", "--json").stdout)
    spoken = home.capd("why", "--session", "one")

    assert refused.returncode == 1
    assert (told["schema"], told["source"], told["problem"]) == (1, "ledger", "")
    (decision,) = told["decisions"]
    assert (decision["session"], decision["outcome"]) == ("one", "abstain")
    assert decision["reason"] == "too_short"
    (activation,) = told["activations"]
    assert (activation["name"], activation["action"]) == ("mine/talk", "failed")
    assert activation["why"].startswith("Capability 'talk' needs TALK_KEY, and there is no value")
    assert "fewer than 8 characters are left of it" in spoken.stdout
    assert "one  mine/talk: Capability 'talk' needs TALK_KEY" in spoken.stdout


@pytest.mark.model
def test_no_word_of_a_user_and_no_secret_is_in_the_ledger(home: Home) -> None:
    home.plain("talk")
    runner = home.folder / "tap/capabilities/talk/default.toml"
    secrets = {f"SECRET_{n}": f"s3cret-{n:02}-{os.urandom(6).hex()}" for n in range(10)}
    names = ", ".join(f'{key} = "{{{{ENV:{key}}}}}"' for key in secrets)
    runner.write_text(runner.read_text() + f"env = {{ {names} }}\n")
    home.start()
    plain, home.env = home.env, {**home.env, **secrets}
    editor = home.shim("one")
    home.env = plain
    said = [f"please find canary{n:02}x{os.urandom(6).hex()} for me" for n in range(10)]

    for text in said:
        home.ask("turn", session="one", text=text)
        editor.call("capability", {"action": "enable", "name": text})
        editor.call("capability", {"action": "discover", "intent": text})
        editor.call("tool_search", {"query": text})
    home.ask("enable", session="one", name="talk")
    for text in said:
        editor.call("talk__echo", {"text": text})
    editor.leave()
    until_written(home)

    kept = database(home) + home.log().encode() + json.dumps(home.ask("why", limit=1000)).encode()
    words = [text.split()[2] for text in said]
    assert [each for each in (*words, *secrets.values()) if each.encode() in kept] == []
    assert home.ask("status")["ledger"]["rows"]["decisions"] == len(said)


def spoil(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(3):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(bytes(data[: rng.randrange(1, len(data) + 1)]))


def test_a_daemon_starts_and_serves_on_a_home_whose_every_file_is_spoiled(home: Home) -> None:
    home.plain("talk")
    (home.folder / "config" / "config.toml").write_text("[servers]\nlinger = 0.2\n")
    (home.folder / "config" / "clients.toml").write_text('[mine]\nnames = ["mine"]\n')
    first = home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")
    editor.call("talk__echo", {"text": "hello"})
    until_written(home)
    first.kill()
    first.wait()
    editor.leave()
    rng = random.Random(7)
    files = [
        file
        for folder in ("config", "state", "cache")
        for file in sorted(home.folder.glob(f"{folder}/**/*"))
        if file.is_file() and file.stat().st_size
    ]
    for file in files:
        # The list of taps stays: without it there is nothing to serve.
        if file.name != "taps.toml":
            spoil(file, rng)
    daemon = home.start()
    editor = home.shim("two")

    answer = home.ask("enable", session="two", name="talk")
    said = editor.call("talk__echo", {"text": "there"})["content"][0]["text"]
    until_written(home)

    assert len(files) >= 5, files
    assert answer["ok"], answer
    assert said.endswith(" there")
    assert daemon.poll() is None
    assert home.ask("status")["ledger"]["problem"] == ""
    editor.leave()


# A full disk


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of one MiB."""
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root mounts a small file system")
    folder = Path(tempfile.mkdtemp(prefix="capdisk"))
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def _switch_off_and_on(home: Home) -> None:
    home.ask("disable", session="one", name="talk")
    home.ask("enable", session="one", name="talk")


def _says(home: Home, beginning: str) -> bool:
    degraded = home.ask("status")["daemon"]["degraded"]
    return any(each.startswith(beginning) for each in degraded)


def test_a_full_disk_costs_no_call_is_told_and_heals(home: Home, small_disk: Path) -> None:
    home.plain("talk")
    (home.folder / "state").symlink_to(small_disk)
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")
    until_written(home)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue

    said = editor.call("talk__echo", {"text": "while it is full"})["content"][0]["text"]
    for _ in range(40):
        _switch_off_and_on(home)

    def is_recorded_no_more() -> bool:
        # A try may find a page of the file itself to write to, and all is well again until there
        # is more to write.
        _switch_off_and_on(home)
        return _says(home, "nothing is recorded at present: ")

    wait_for(is_recorded_no_more)
    wait_for(lambda: is_recorded_no_more() and home.capd("status").returncode == 4)
    again = editor.call("talk__echo", {"text": "still"})["content"][0]["text"]
    filler.unlink()
    # Each part that could not write tries again by itself.
    wait_for(lambda: home.ask("status")["daemon"]["degraded"] == [])
    wait_for(lambda: home.ask("status")["ledger"]["waiting"] == 0)
    healed = home.ask("status")

    assert said.endswith("while it is full")
    assert again.endswith("still")
    assert healed["daemon"]["degraded"] == []
    assert (healed["ledger"]["problem"], healed["ledger"]["dropped"]) == ("", 0)
    assert healed["ledger"]["rows"]["activations"] >= 80
    editor.leave()


@pytest.mark.model
def test_a_ledger_that_is_switched_off_leaves_no_file_and_costs_nothing_else(home: Home) -> None:
    (home.folder / "config").mkdir(exist_ok=True)
    (home.folder / "config" / "config.toml").write_text("[ledger]\nenabled = false\n")
    home.start()
    editor = home.shim("one")
    home.ask("turn", session="one", text="ok")

    told = home.capd("why")
    metrics = home.capd("metrics")

    assert "abstain (too_short)" in told.stdout
    assert "[ledger] enabled is false" in told.stderr
    assert 'capd_decisions_total{outcome="abstain",reason="too_short"} 1.0' in metrics.stdout
    assert not list((home.folder / "state").glob("ledger*"))
    assert home.ask("status")["daemon"]["degraded"] == []
    editor.leave()
