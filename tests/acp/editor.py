"""A scripted editor of the Agent Client Protocol, with `capd acp` between it and its agent."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from whole_daemon import PATIENCE, Home

AGENT = [sys.executable, str(Path(__file__).with_name("agent.py"))]


class Editor:
    """Starts an agent through `capd acp`, and speaks to it line by line."""

    def __init__(
        self,
        home: Home,
        agent: Sequence[str] = AGENT,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        command = [sys.executable, "-P", "-m", "capd_client.entry", "acp", "--", *agent]
        self.process = subprocess.Popen(
            command,
            env={**home.env, **(env or {})},
            cwd=cwd or home.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.heard: list[dict[str, Any]] = []
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the agent has ended"
        message: dict[str, Any] = json.loads(line)
        return message

    def tell(self, method: str, **params: Any) -> None:
        self.write(_line({"jsonrpc": "2.0", "method": method, "params": params}))

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        self.write(_line({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}))
        while (message := self.read()).get("id") != self._last or "method" in message:
            self.heard.append(message)
            self.answer(message)
        assert "result" in message, message
        result: dict[str, Any] = message["result"]
        return result

    def answer(self, message: dict[str, Any]) -> None:
        """Approve every permission request of the agent."""
        if message.get("method") == "session/request_permission":
            options = message["params"]["options"]
            allowed = next(each for each in options if each["kind"].startswith("allow"))
            outcome = {"outcome": {"outcome": "selected", "optionId": allowed["optionId"]}}
            self.write(_line({"jsonrpc": "2.0", "id": message["id"], "result": outcome}))

    def open(self, folder: Path) -> str:
        return str(self.ask("session/new", cwd=str(folder), mcpServers=[])["sessionId"])

    def say(self, session: str, text: str) -> dict[str, Any]:
        blocks = [{"type": "text", "text": text}]
        return self.ask("session/prompt", sessionId=session, prompt=blocks)

    def leave(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
