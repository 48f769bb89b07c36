"""The example of a team's shared servers, on a whole daemon: from its tap to the first call.

A server with logins on this machine is in the place of the cluster's. The commands are the page's.
"""

import contextlib
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from documents import pages
from whole_daemon import Home

from .test_page_examples import blocks
from .test_remote_servers import site

TAP = pages.ROOT / "packaging/team/tap"
ADDRESS = "https://tracker.mcp.example.com"
REPOSITORY = "https://git.example.com/team/team-tap.git"


def team_tap(folder: Path, base: str) -> str:
    """Publish the team's tap, its server at `base`, as a git repository; return its address."""
    work = folder / "team-tap"
    shutil.copytree(TAP, work)
    default = work / "capabilities/tracker/default.toml"
    text = default.read_text("utf-8")
    assert text.count(ADDRESS) == 1
    default.write_text(text.replace(ADDRESS, base), "utf-8")
    git = ["git", "-c", "user.name=team", "-c", "user.email=team@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "the team's servers"]):
        subprocess.run([*git, *command], cwd=work, check=True)
    return f"file://{work}"


def typed() -> list[list[str]]:
    """Return the commands of the page's part for developers."""
    lines = [line for block in blocks("team.md", "## Each developer") for line in block]
    return [shlex.split(line) for line in lines if line.startswith("capd ")]


def log_in(home: Home, *arguments: str) -> str:
    """Run `capd login`, open the page that it names, and return the rest of its output."""
    login = subprocess.Popen(
        [sys.executable, "-P", "-m", "capd_client.entry", *arguments, "--no-browser"],
        env=home.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert login.stdout is not None
    address = next(line.strip() for line in login.stdout if line.strip().startswith("http"))
    with urllib.request.urlopen(address):
        pass
    return login.communicate(timeout=120)[0]


def test_the_commands_of_the_page_lead_to_a_first_call_and_then_the_cluster_is_away(
    home: Home,
) -> None:
    (home.folder / "config").mkdir(exist_ok=True)
    with site("login") as base:
        addresses = {REPOSITORY: team_tap(home.folder, base)}
        home.start()
        editor = home.shim("one")
        for _, *arguments in typed():
            given = [addresses.get(each, each) for each in arguments]
            if given[0] == "login":
                assert "Logged in at tracker." in log_in(home, *given)
            else:
                done = home.capd(*given)
                assert (done.returncode, done.stdout) == (0, "team-tap: 1 routable\n")

        assert home.ask("enable", session="one", name="tracker")["ok"]
        result = editor.call("tracker__echo", {"text": "an issue"})
        assert result["structuredContent"] == {"result": "an issue"}

    [[away]] = [each for each in blocks("team.md", "## When the cluster cannot be reached") if each]
    late = home.shim("two")

    refused = editor.call("tracker__echo", {"text": "another"})
    assert refused["content"] == [{"type": "text", "text": away}]
    assert refused["_meta"] == {"capd/outcome": "not_sent", "capd/retriable": True}
    enabled = home.ask("enable", session="two", name="tracker")
    assert not enabled["ok"]
    assert away in enabled["text"]
    assert away in home.capd("servers").stdout
    editor.leave()
    late.leave()


def test_the_page_adds_a_tap_and_logs_in_and_that_is_all() -> None:
    assert typed() == [["capd", "tap", "add", REPOSITORY], ["capd", "login", "tracker"]]


@contextmanager
def ingress() -> Iterator[tuple[str, list[int]]]:
    """Forward each connection to the last of the ports in a list; give the URL, and the list."""
    ports: list[int] = []
    opened: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def run(work: Callable[..., None], *arguments: socket.socket) -> None:
        threads.append(threading.Thread(target=work, args=arguments))
        threads[-1].start()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        end(source, target)

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                opened.append(near)
                try:
                    far = socket.create_connection(("127.0.0.1", ports[-1]))
                except ConnectionRefusedError:
                    # The client may look for its stream between two pods.
                    end(near)
                    continue
                opened.append(far)
                run(carry, near, far)
                run(carry, far, near)

    listener = socket.create_server(("127.0.0.1", 0))
    run(serve, listener)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", ports
    finally:
        end(listener)
        threads[0].join()
        end(*opened)
        for thread in threads:
            thread.join()
        for each in (listener, *opened):
            each.close()


def end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def test_calls_work_again_with_a_new_pod_that_does_not_know_the_session(home: Home) -> None:
    (home.folder / "config").mkdir(exist_ok=True)
    with ingress() as (base, ports):
        home.capd("tap", "add", team_tap(home.folder, base))
        home.start()
        editor = home.shim("one")
        with site("streamable") as pod:
            ports.append(int(pod.rpartition(":")[2]))
            assert home.ask("enable", session="one", name="tracker")["ok"]
            editor.call("tracker__echo", {"text": "before"})
        with site("streamable") as pod:
            ports.append(int(pod.rpartition(":")[2]))

            first = editor.call("tracker__echo", {"text": "after"})
            assert first["_meta"] == {"capd/outcome": "not_sent", "capd/retriable": True}
            second = editor.call("tracker__echo", {"text": "after"})

        assert second["structuredContent"] == {"result": "after"}
        editor.leave()


@pytest.mark.parametrize(
    ("provider", "lacking"),
    [("clusters", "TRACKER_TOKEN"), ("forward", "kubectl was not found in PATH")],
)
def test_another_provider_is_chosen_as_the_page_says(
    home: Home, provider: str, lacking: str
) -> None:
    (home.folder / "config").mkdir(exist_ok=True)
    home.capd("tap", "add", team_tap(home.folder, "http://127.0.0.1:9"))
    [chosen] = [
        each for each in blocks("team.md", "## Without an Ingress") if "[providers]" in each
    ]
    taps = home.folder / "config/taps.toml"
    text = "\n".join(chosen).replace('"forward"', f'"{provider}"')
    taps.write_text(f"{taps.read_text('utf-8')}\n{text}\n", "utf-8")
    # So that each fails by what it alone needs.
    (home.folder / "no-programs").mkdir()
    home.env |= {"PATH": str(home.folder / "no-programs"), "SHELL": "/bin/false"}
    home.start()
    editor = home.shim("one")

    refused = home.ask("enable", session="one", name="tracker")

    assert not refused["ok"]
    assert lacking in refused["text"]
    editor.leave()
