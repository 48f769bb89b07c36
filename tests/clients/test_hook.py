"""`capd hook` beside a daemon that it cannot use: silent, whatever the reason."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("code", ["protocol", "overloaded", "stopping"])
def test_a_hook_says_nothing_where_the_daemon_refuses_it(
    start_daemon: Any, base_env: dict[str, str], tmp_path: Path, code: str
) -> None:
    daemon = start_daemon()
    daemon.refusal = {"capd": "refused", "code": code, "message": "no", "protocol": 9}

    result = subprocess.run(
        [sys.executable, "-P", "-m", "capd_client.entry", "hook", "claude", "UserPromptSubmit"],
        input=json.dumps({"prompt": "what changed?", "session_id": "a", "cwd": str(tmp_path)}),
        env=base_env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
