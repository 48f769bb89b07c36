"""A server in a Kubernetes cluster: there while a session needs it, and never longer.

The program `kubectl` of most tests is a stand-in that only forwards a port. The test marked `real`
uses the one of this machine, on a stand-in of the cluster (`support/cluster.py`).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from whole.test_remote_servers import site
from whole_daemon import Home, pids_with, wait_for

CLUSTER = Path(__file__).parents[1] / "support/cluster.py"
STAND_IN = '''#!{python} -I
"""kubectl, as far as it forwards ports: every connection goes to one port of this machine."""
import os, socket, sys, threading

assert sys.argv[1:] == [
    "port-forward", "--address=127.0.0.1", "--namespace=team", "service/github-mcp", ":http",
], sys.argv
if os.environ["TARGET"] == "nothing":
    sys.exit('error: services "github-mcp" not found')

def carry(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)

def forward(one):
    other = socket.create_connection(("127.0.0.1", int(os.environ["TARGET"])))
    threading.Thread(target=carry, args=(other, one), daemon=True).start()
    carry(one, other)

listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
print(f"Forwarding from 127.0.0.1:{{port}} -> 8080", flush=True)
while True:
    one, _ = listener.accept()
    print(f"Handling connection for {{port}}", flush=True)
    threading.Thread(target=forward, args=(one,), daemon=True).start()
'''


def in_cluster(home: Home, **env: str) -> None:
    """Define a capability on a server in a cluster, whose kubectl gets `env`."""
    home.plain("web")
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in env.items())
    (home.folder / "tap/capabilities/web/default.toml").write_text(
        f'[[mcp.servers]]\nname = "web"\nkubernetes = "team/github-mcp"\n[mcp.servers.env]\n{lines}'
    )


def put_kubectl(home: Home) -> str:
    """Put a fake kubectl on PATH; return the mark of its processes."""
    folder = home.folder / f"{home.tag}-bin"
    folder.mkdir()
    program = folder / "kubectl"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    home.env["PATH"] = f"{folder}{os.pathsep}{home.env['PATH']}"
    return folder.name


def test_it_is_used_like_any_other_and_forwarded_while_a_session_needs_it(home: Home) -> None:
    with site("streamable") as base:
        kubectl = put_kubectl(home)
        in_cluster(home, TARGET=base.rpartition(":")[2])
        home.start()
        first, second = home.shim("one"), home.shim("two")
        assert pids_with(kubectl) == []
        assert home.ask("enable", session="one", name="web")["ok"]
        assert home.ask("enable", session="two", name="web")["ok"]

        said = [each.call("web__echo", {"text": "far away"}) for each in (first, second)]
        first.leave()
        again = second.call("web__echo", {"text": "still there"})

        assert [each["structuredContent"] for each in (*said, again)] == [
            {"result": "far away"},
            {"result": "far away"},
            {"result": "still there"},
        ]
        second.leave()
        wait_for(lambda: pids_with(kubectl) == [])


def test_when_kubectl_dies_both_are_started_again_for_the_next_call(home: Home) -> None:
    with site("streamable") as base:
        kubectl = put_kubectl(home)
        in_cluster(home, TARGET=base.rpartition(":")[2])
        home.start()
        editor = home.shim("one")
        assert home.ask("enable", session="one", name="web")["ok"]
        editor.call("web__echo", {"text": "before"})
        [before] = home.ask("servers")["servers"]

        os.kill(before["pid"], signal.SIGKILL)

        wait_for(lambda: home.ask("servers")["servers"][0]["state"] == "failed")
        result = editor.call("web__echo", {"text": "after"})
        assert result["structuredContent"] == {"result": "after"}
        editor.leave()
        wait_for(lambda: pids_with(kubectl) == [])


def test_nothing_is_left_of_it_when_the_daemon_is_killed(home: Home) -> None:
    with site("streamable") as base:
        kubectl = put_kubectl(home)
        in_cluster(home, TARGET=base.rpartition(":")[2])
        daemon = home.start()
        editor = home.shim("one")
        assert home.ask("enable", session="one", name="web")["ok"]
        assert pids_with(kubectl)

        daemon.kill()

        wait_for(lambda: pids_with(kubectl) == [])
        editor.leave()


def test_why_kubectl_cannot_forward_is_told(home: Home) -> None:
    put_kubectl(home)
    in_cluster(home, TARGET="nothing")
    home.start()
    editor = home.shim("one")

    refused = home.ask("enable", session="one", name="web")

    assert not refused["ok"]
    assert (
        'cannot forward to team/github-mcp: error: services "github-mcp" not found'
        in (refused["text"])
    )
    editor.leave()


def test_without_kubectl_the_answer_says_so(home: Home) -> None:
    empty = home.folder / "no-programs"
    empty.mkdir()
    home.env["PATH"] = str(empty)
    home.env["SHELL"] = "/bin/false"
    in_cluster(home)
    home.start()
    editor = home.shim("one")

    refused = home.ask("enable", session="one", name="web")

    assert not refused["ok"]
    assert "kubectl was not found in PATH" in refused["text"]
    editor.leave()


@contextmanager
def cluster(target: str) -> Iterator[str]:
    """Run the stand-in of a cluster; give the text of a kubeconfig for it."""
    process = subprocess.Popen(
        [sys.executable, "-I", str(CLUSTER), target], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        server = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        yield json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": server}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "ada"}}],
                "users": [{"name": "ada", "user": {}}],
            }
        )
    finally:
        process.kill()
        process.communicate()


def kubectls() -> list[str]:
    """Return this machine's kubectl, and the versions that an SDK installed."""
    found = shutil.which("kubectl")
    if found is None:
        return []
    real = Path(found).resolve()
    return [str(real), *map(str, sorted(real.parent.glob("kubectl.1.*")))]


@pytest.mark.real
@pytest.mark.parametrize("program", kubectls(), ids=lambda path: Path(path).name)
def test_the_real_kubectl_reaches_it_through_the_api_of_a_cluster(home: Home, program: str) -> None:
    (home.folder / "bin").mkdir()
    (home.folder / "bin/kubectl").symlink_to(program)
    home.env["PATH"] = f"{home.folder / 'bin'}{os.pathsep}{home.env['PATH']}"
    with site("streamable") as base, cluster(base.rpartition(":")[2]) as kubeconfig:
        (home.folder / "kubeconfig").write_text(kubeconfig)
        home.env["KUBECONFIG"] = str(home.folder / "kubeconfig")
        in_cluster(home)
        home.start()
        editor = home.shim("one")

        enabled = home.ask("enable", session="one", name="web")
        assert enabled["ok"], enabled
        result = editor.call("web__echo", {"text": "far away"})

        assert result["structuredContent"] == {"result": "far away"}
        [entry] = home.ask("servers")["servers"]
        pid = entry["pid"]
        assert b"kubectl" in Path(f"/proc/{pid}/cmdline").read_bytes()
        editor.leave()
        wait_for(lambda: not Path(f"/proc/{pid}").exists())
