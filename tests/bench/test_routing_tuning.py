"""Fitting the routing profile is deterministic."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
SETS = f"""
[[sets]]
name = "starter"
tap = "taps/starter"
overlays = ["{ROOT}/taps/overlays/starter"]
data = ["{ROOT}/tests/evaluation/starter_rows.jsonl"]
teaches = true
"""


def tuned(sets: Path, out: Path, vectors: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "bench.routing_tuning", "--sets", str(sets)]
    command += ["--root", str(ROOT), "--out", str(out), "--vectors", str(vectors)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, check=False
    )


def test_two_tunings_write_the_same_bytes(tmp_path: Path) -> None:
    sets = tmp_path / "sets.toml"
    sets.write_text(SETS)
    files = [tmp_path / "one.json", tmp_path / "two.json"]

    ran = [tuned(sets, file, tmp_path / "vectors.bin") for file in files]

    assert [each.stderr for each in ran] == ["", ""]
    assert [each.returncode for each in ran] == [0, 0]
    assert ran[0].stdout == ran[1].stdout
    assert files[0].read_bytes() == files[1].read_bytes()
    written = json.loads(files[0].read_bytes())
    assert written["scorer"] == "evidence"
    assert written["projection"]
