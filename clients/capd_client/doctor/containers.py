"""Checks what the container engine can do for servers with `runtime = "container"`."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding

_NAME = "containers"
_TIMEOUT = 20.0
_MOST_BYTES = 4 << 20
_INFO = {"podman": ("info", "--format=json"), "docker": ("info", "--format={{json .}}")}

Ask = Callable[[tuple[str, ...]], tuple[str, str]]
"""Runs an engine's command; returns its output, and why it failed (empty if it did not)."""


def check_containers(seen: CheckContext, ask: Ask | None = None) -> Iterator[Finding]:
    """Yield which engine is used, whether it is rootless, and which limits it enforces.

    Podman is asked first, because the daemon prefers it. `ask` replaces the engine in tests.
    """
    reasons = []
    for kind, words in _INFO.items():
        command = shutil.which(kind, path=seen.env.get("PATH", os.defpath))
        if command is None:
            continue
        answer, why = (ask or _asked)((command, *words))
        try:
            info = json.loads(answer) if not why else None
        except ValueError:
            info, why = None, "its answer is not JSON"
        if isinstance(info, dict):
            yield finding(kind, info)
            return
        reasons.append(f"{kind}: {why or 'its answer is not a JSON object'}")
    if reasons:
        what = "servers cannot run in containers here"
        yield Finding(
            _NAME, "note", what, "; ".join(reasons), f"try: {reasons[0].partition(':')[0]} info"
        )


def finding(kind: str, info: Mapping[str, Any]) -> Finding:
    """Return what the engine `kind` (podman or docker) can do, from the JSON of its `info`."""
    if kind == "podman":
        host = _table(info, "host")
        version = _table(info, "version").get("Version", "?")
        is_rootless = _table(host, "security").get("rootless") is True
        listed = host.get("cgroupControllers")
        controllers = listed if isinstance(listed, list) else []
        bounds = {"memory": "memory" in controllers, "processes": "pids" in controllers}
    else:
        version = info.get("ServerVersion", "?")
        options = info.get("SecurityOptions")
        is_rootless = "rootless" in str(options)
        has = {"memory": "MemoryLimit", "processes": "PidsLimit"}
        bounds = {name: info.get(key) is True for name, key in has.items()}
    how = "rootless" if is_rootless else "as root"
    missing = [name for name, is_bounded in bounds.items() if not is_bounded]
    what = f"servers can run in containers: {kind} {str(version)[:40]}, {how}"
    if missing:
        return Finding(
            _NAME,
            "note",
            f"{what}; it does not bound {' and '.join(missing)}",
            "no control group is delegated to it",
            "use cgroup version 2 with systemd; until then [servers] bounds podman's containers",
        )
    if not is_rootless and kind == "docker":
        why = "whoever may use this engine is root here"
        return Finding(_NAME, "note", what, why, "install the package podman, which is preferred")
    return Finding(_NAME, "ok", what)


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _asked(words: tuple[str, ...]) -> tuple[str, str]:
    try:
        ended = subprocess.run(words, capture_output=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if ended.returncode != 0:
        lines = ended.stderr[:_MOST_BYTES].decode(errors="replace").strip().splitlines()
        return "", lines[-1][:300] if lines else f"it ended with {ended.returncode}"
    return ended.stdout[:_MOST_BYTES].decode(errors="replace"), ""
