"""A user with a fake shell, programs and daemon, for `capd doctor` to examine."""

import os
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_protos.places import places

from .installing import User

VERSION = version("capd")
READY = {"state": "ready", "model": "minilm", "reason": "", "rss_bytes": 150_000_000}
TAP: dict[str, Any] = {
    "name": "mine",
    "path": "/taps/mine",
    "routable": 3,
    "unroutable": {},
    "findings": [],
    "error": "",
}


class Patient(User):
    """A user whose shell and programs are fakes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.program("sh", 'exec /bin/sh -c "$4"')
        self.program("node", "echo v22.1.0")
        self.program("npx", "echo 10.1.0")
        self.program("uvx", "echo uvx 0.9.1")
        self.program("bwrap", "exit 0")
        self.run = folder / "run"
        self.run.mkdir(mode=0o700)
        self.more = {
            "SHELL": str(self.bin / "sh"),
            "PATH": str(self.bin),
            "XDG_RUNTIME_DIR": str(self.run),
            "NO_COLOR": "1",
        }

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.home), **self.more}

    @property
    def socket(self) -> Path:
        return self.run / "capd" / "capd.sock"

    def program(self, name: str, script: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def seen(self, **more: Any) -> CheckContext:
        """Return the input of the checks; without a daemon, unless one is given."""
        where = places(self.env, os.getuid())
        return CheckContext(self.env, os.getuid(), where, VERSION, **more)

    def served(
        self, *, path: str = "", capabilities: Iterable[Any] = (), **more: Any
    ) -> CheckContext:
        """Return the same input with a daemon that reports this status."""
        status = {"daemon": {"path": path or str(self.bin), "degraded": []}, "embedder": READY}
        return self.seen(
            daemon={"version": VERSION, "pid": 7},
            documents={
                "status": {**status, "taps": [], **more},
                "caps": {"capabilities": list(capabilities)},
            },
        )


def levels(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.check, finding.level) for finding in findings]
