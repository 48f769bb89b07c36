"""Real editors and agents on a scripted model: what they sent it is the proof.

Everything is on loopback: the programs come from npm once, into a cache outside the checkout,
and talk to `fake_llm.py`, which logs the body of each request.
"""

import contextlib
import fcntl
import json
import os
import queue
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from capd_client.control import DaemonDownError
from capd_client.mcp_host import without_capd
from whole_daemon import PATIENCE, Home, wait_for

MESSAGE = "what changed in the last three commits of this repository?"
SUBJECTS = ["keep the count of boats", "paint the harbour wall", "light the lamp at dusk"]
"""What the project's commits say, oldest first."""

TOOL = "git__git_log"

SEARCHING = Path(__file__).with_name("searching_llm.py")
CLAUDE = ("@anthropic-ai/claude-code", "2.1.330")
OPENCODE = ("opencode-ai", "1.18.33")
_INSTALL_PATIENCE = 600
_RUN_PATIENCE = 120
_LOOKS_AGAIN = 50
"""Looks at a screen without a change after which a key is pressed again."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capd-lab"
_COUNTING = """
import sys, urllib.request
for _ in range(int(sys.argv[2])):
    urllib.request.urlopen(urllib.request.Request(sys.argv[1], data=b"{}")).close()
"""
_REGISTRY = ("UV_", "SSL_CERT_", "PIP_")


def installed(package: tuple[str, str], *, script: str = "") -> Path:
    """Return the folder of an npm package, installing it if need be, or skip."""
    name, version = package
    folder = CACHE / f"{name.rpartition('/')[2]}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            _npm(folder, f"{name}@{version}")
            if script:
                _tried([_program("node"), script], folder / "node_modules" / name)
            (folder / ".complete").touch()
    return folder / "node_modules" / name


def _npm(folder: Path, wanted: str) -> None:
    npm = [_program("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    _tried([*npm, "--prefix", str(folder), wanted], folder)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _tried(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_INSTALL_PATIENCE,
        check=False,
    )
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"{' '.join(command)} failed: {words}")


def following(project: Path, *, times: int = 1) -> list[dict[str, Any]]:
    """Return the script of a model that uses the offered tools to answer `MESSAGE`.

    It is done when the conversation has the answer `times` times.
    """
    arguments = {"repo_path": str(project), "max_count": 3}
    asked = {"name": TOOL, "arguments": arguments, "message": MESSAGE}
    return [{"follow": {**asked, "until": SUBJECTS, "times": times}}]


class Model:
    """The scripted model, and the requests it got."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        script: list[dict[str, Any]],
        inside: Sequence[str] = (),
    ) -> None:
        """`inside` are the words before a command that runs in another network namespace."""
        self._inside = inside
        self._program = program
        self._folders = folder
        self.port = free_port()
        self._scripts = 0
        self._start(script)

    def go_on(self, script: list[dict[str, Any]]) -> None:
        """Follow another script from now on, and forget earlier requests."""
        self.close()
        asked = len(list(self.folder.glob("body-*.json")))
        self._start(script)
        # Its ids are counted per process, and no client takes one twice.
        count = [sys.executable, "-c", _COUNTING, f"{self.url}/v1/messages", str(asked)]
        subprocess.run([*self._inside, *count], timeout=PATIENCE, check=True)

    def _start(self, script: list[dict[str, Any]]) -> None:
        self._scripts += 1
        self.folder = self._folders / str(self._scripts)
        self.folder.mkdir(parents=True)
        (self.folder / "script.json").write_text(json.dumps(script))
        command = [sys.executable, str(SEARCHING), str(self._program)]
        command += [str(self.port), str(self.folder)]
        self.process = subprocess.Popen(
            [*self._inside, *command, str(self.folder / "script.json")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: has_listener(self.process.pid, self.port))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self) -> list[dict[str, Any]]:
        """Return the bodies of the requests that offered tools; requests for titles offer none."""
        paths = sorted(self.folder.glob("body-*.json"))
        bodies = [json.loads(path.read_text()) for path in paths]
        return [body for body in bodies if body.get("tools")]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def tool_names(body: dict[str, Any]) -> list[str]:
    """Return the names of the tools in a request, whichever API it is of.

    A deferred one is not among them: the model would have to search for it first.
    """
    shown = [tool for tool in body["tools"] if not tool.get("defer_loading")]
    return [(tool.get("function") or tool).get("name", "") for tool in shown]


def capability_tools(body: dict[str, Any], prefix: str) -> set[str]:
    """Return the tools of capabilities in a request, without the client's prefix.

    capd's own tools have no part before a double underscore.
    """
    names = [name.removeprefix(prefix) for name in tool_names(body) if name.startswith(prefix)]
    return {name for name in names if re.match(r"[a-z0-9_]+?__", name)}


class Lab:
    """A user's folder, a project, a daemon and a model, and the clients that are run on them."""

    def __init__(self, home: Home, model: Model, folder: Path) -> None:
        self.home = home
        self.model = model
        self.user = folder / "user"
        self.project = folder / "harbour"
        self.programs = folder / "bin"
        for each in (self.user, self.project, self.programs):
            each.mkdir()
        self.env = {
            "HOME": str(self.user),
            "PATH": f"{self.programs}:{os.defpath}",
            "LANG": "C.UTF-8",
            # A daemon that a shim starts gets servers from where the lab's own does.
            **{key: value for key, value in os.environ.items() if key.startswith(_REGISTRY)},
        }
        commit(self.project)

    def add_claude(self, program: Path) -> None:
        """Install Claude Code for the user, with the scripted model."""
        (self.programs / "claude").symlink_to(program)
        self.env |= {
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": "fake",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def add_opencode(self, program: Path) -> None:
        """Install opencode for the user, with the scripted model."""
        (self.programs / "opencode").symlink_to(program)
        self.env |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": f"{self.model.url}/v1", "apiKey": "fake"},
            "models": {"one": {"name": "one"}},
        }
        document = {"model": "scripted/one", "provider": {"scripted": provider}}
        folder = self.user / ".config" / "opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.jsonc").write_text(f"// mine\n{json.dumps(document, indent=2)}\n")

    def install(self, client: str, *options: str, is_checked: bool = False) -> str:
        """Run `capd install` as the lab's user; return its output.

        Its check starts a daemon where none runs.
        """
        options = options if is_checked else ("--no-check", *options)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "capd_client.entry", "install", client, *options],
            env={**self.env, "CAPD_HOME": str(self.home.folder)},
            capture_output=True,
            text=True,
            timeout=_RUN_PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def set_mode(self, mode: str) -> None:
        """Set the surface mode of every session."""
        folder = self.home.folder / "config"
        folder.mkdir(exist_ok=True)
        with (folder / "config.toml").open("a") as file:
            file.write(f'[surface]\nmode = "{mode}"\n')

    def start_warm(self) -> subprocess.Popen[bytes]:
        """Start the daemon; return it when its model is loaded and git's server was installed.

        A first turn on a fresh machine downloads the server: minutes that no client waits. The
        vectors of the starter tap, which are the same each time, are computed once.
        """
        kept, cache = CACHE / "vectors", self.home.folder / "cache"
        if kept.is_dir() and not cache.exists():
            shutil.copytree(kept, cache)
        process = self.home.start()
        with self.home.shim("warming"):
            wait_for(self.is_ready, 120)
            enabled = self.home.ask("enable", name="git", session="warming")
            assert enabled["ok"], enabled
            wait_for(lambda: self.home.ask("search", query="git")["mode"] == "fused", 120)
        wait_for(lambda: not self.home.ask("sessions")["sessions"])
        if not kept.exists():
            made = Path(tempfile.mkdtemp(dir=CACHE)) / "vectors"
            made.mkdir(mode=0o700)
            for file in cache.glob("*vectors*.bin"):
                shutil.copy2(file, made)
            with contextlib.suppress(OSError):
                made.rename(kept)
            shutil.rmtree(made.parent)
        return process

    @contextlib.contextmanager
    def git_at_hand(self) -> Iterator[None]:
        """Start git's server for the project, so that no turn waits for its start."""
        with self.home.shim("another", cwd=self.project):
            assert self.home.ask("enable", name="git", session="another")["ok"]
            yield

    def is_ready(self) -> bool:
        """Tell whether a daemon runs, with its model loaded."""
        with contextlib.suppress(DaemonDownError):
            return bool(self.home.ask("status")["embedder"]["state"] == "ready")
        return False

    def run(self, *command: str, timeout: float = _RUN_PATIENCE) -> str:
        """Run a client in the project; return its output."""
        return self._run(command, timeout).stdout

    def show(self, *command: str) -> tuple[str, float]:
        """Run a client in the project; return all that its user saw, and the seconds it took."""
        started_at = time.monotonic()
        done = self._run(command, _RUN_PATIENCE)
        return done.stdout + done.stderr, round(time.monotonic() - started_at, 2)

    def _run(self, command: tuple[str, ...], timeout: float) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command,
            env=self.env,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self._log()}"
        return done

    def _log(self) -> str:
        return self.home.log()[-4000:] if (self.home.folder / "daemon.log").exists() else ""


class Dialogue:
    """A client that keeps running and reads one turn after another from standard input."""

    def __init__(self, lab: Lab | None, *command: str) -> None:
        """Without `lab` the command itself says where it runs, and with what."""
        self._process = subprocess.Popen(
            command,
            env=lab.env if lab else None,
            cwd=lab.project if lab else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def hear(self, kind: str) -> dict[str, Any]:
        """Return the next message of type `kind`."""
        while line := self._lines.get(timeout=_RUN_PATIENCE):
            message: dict[str, Any] = json.loads(line)
            if message.get("type") == kind:
                return message
        raise AssertionError(f"the client ended without {kind}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()


class Terminal:
    """A client in a terminal, which a person types to."""

    def __init__(self, lab: Lab, *command: str) -> None:
        self._env = lab.env | {"TERM": "xterm-256color"}
        self._tmux = [_program("tmux"), "-L", f"capd-{uuid.uuid4().hex[:8]}", "-f", os.devnull]
        line = f"cd {shlex.quote(str(lab.project))} && exec {shlex.join(command)}"
        self._run("new-session", "-d", "-x", "160", "-y", "50", "sh", "-c", line)

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def wait(self, pattern: str) -> str:
        """Wait until a pattern matches the screen; return the screen."""
        try:
            return wait_for(lambda: self._shown(pattern), _RUN_PATIENCE)
        except AssertionError:
            print(self.screen())
            raise

    def _shown(self, pattern: str) -> str:
        screen = self.screen()
        return screen if re.search(pattern, screen, re.MULTILINE) else ""

    def say(self, text: str, prompt: str = r"^\s*[>❯]", *, before: str = "") -> None:
        """Type a line, once the client shows its `prompt`, and send it.

        Some clients take an Enter that comes soon after a text for a part of it. With what such a
        client shows `before` a line that is not sent, Enter is pressed again until it is.
        """
        self.wait(prompt)
        self._run("send-keys", "-l", text)
        if before:
            self.answer(before + text, {".": "Enter"})
            return
        self.wait(re.escape(text[-20:]))
        self.press("Enter")

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def answer(self, question: str, keys: Mapping[str, str]) -> str:
        """Press keys until a question is gone; return the screen that showed it.

        The key is that of the first pattern on the screen. A client takes no key for a moment
        after it shows a question: the key is pressed again where nothing changes.
        """
        asked = before = self.wait(re.escape(question))
        looks = 0

        def is_gone() -> bool:
            nonlocal before, looks
            screen = self.screen()
            if question not in screen:
                return True
            marks = [mark for mark in keys if re.search(mark, screen)]
            if marks and (looks % _LOOKS_AGAIN == 0 or marks[0] != before):
                before = marks[0]
                self.press(keys[before])
            looks += 1
            return False

        wait_for(is_gone, _RUN_PATIENCE)
        return asked

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            [*self._tmux, *command], env=self._env, capture_output=True, text=True, check=False
        )
        return done.stdout

    def close(self) -> None:
        self._run("kill-server")


def settle_claude(lab: Lab) -> None:
    """Answer the questions of Claude Code's first start in a terminal."""
    document = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [lab.env["ANTHROPIC_API_KEY"]], "rejected": []},
        "projects": {
            str(lab.project): {
                "hasTrustDialogAccepted": True,
                "hasCompletedProjectOnboarding": True,
            }
        },
    }
    (lab.user / ".claude.json").write_text(json.dumps(document))


class OpencodeServer:
    """A running opencode, which gets its turns over its own HTTP interface."""

    def __init__(self, lab: Lab) -> None:
        self._port = free_port()
        command = ["opencode", "serve", "--hostname", "127.0.0.1", "--port", str(self._port)]
        said = lab.user / "serve.log"
        with said.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=lab.env,
                cwd=lab.project,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            # Its port is open earlier, and a request of that moment is never answered.
            wait_for(lambda: "server listening" in said.read_text())
            self._session = str(self._post("/session", {})["id"])
            undo.pop_all()

    def say(self, text: str) -> str:
        """Take a turn of one conversation; return what the model said at its end."""
        body = {"parts": [{"type": "text", "text": text}]}
        message = self._post(f"/session/{self._session}/message", body)
        return "".join(part["text"] for part in message["parts"] if part["type"] == "text")

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_RUN_PATIENCE) as response:
            return json.load(response)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """Return a port of the loopback interface on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def has_listener(pid: int, port: int) -> bool:
    """Tell whether something listens on a loopback port in the network of a process."""
    with contextlib.suppress(OSError):
        table = Path("/proc", str(pid), "net/tcp").read_text()
        return f" 0100007F:{port:04X} 00000000:0000 0A " in table
    return False


def commit(project: Path) -> None:
    who = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
    them = {key.replace("AUTHOR", "COMMITTER"): value for key, value in who.items()}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    env = {**without_capd(), **who, **them, **alone}

    def git(*arguments: str) -> None:
        command = [_program("git"), *arguments]
        subprocess.run(command, cwd=project, env=env, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    for number, subject in enumerate(SUBJECTS):
        (project / "log.txt").write_text(f"{number} {subject}\n")
        git("add", "log.txt")
        git("commit", "-m", subject)
