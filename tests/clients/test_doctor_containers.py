"""`capd doctor` on the container engine, from the engine's own report."""

import json
from pathlib import Path
from typing import Any

import pytest

from capd_client.doctor.containers import check_containers
from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_protos.places import places


def podman(rootless: bool, controllers: list[str]) -> dict[str, Any]:
    host = {"security": {"rootless": rootless}, "cgroupControllers": controllers}
    return {"host": host, "version": {"Version": "5.4.0"}}


def docker(**more: Any) -> dict[str, Any]:
    return {"ServerVersion": "28.0.1", "MemoryLimit": True, "PidsLimit": True, **more}


BOTH = ["cpu", "memory", "pids"]
CASES = {
    "podman, rootless": ("podman", podman(True, BOTH), "ok", "podman 5.4.0, rootless"),
    "podman, as root": ("podman", podman(False, BOTH), "ok", "podman 5.4.0, as root"),
    "podman without bounds": (
        *("podman", podman(True, []), "note"),
        "podman 5.4.0, rootless; it does not bound memory and processes",
    ),
    "podman that says nothing": (
        *("podman", {"host": [], "version": "x"}, "note"),
        "podman ?, as root; it does not bound memory and processes",
    ),
    "docker, as root": ("docker", docker(), "note", "docker 28.0.1, as root"),
    "docker, rootless": (
        *("docker", docker(SecurityOptions=["name=rootless"]), "ok"),
        "docker 28.0.1, rootless",
    ),
    "docker without bounds": (
        *("docker", docker(PidsLimit=False), "note"),
        "docker 28.0.1, as root; it does not bound processes",
    ),
}


def examined(folder: Path, engines: dict[str, tuple[str, str]]) -> list[Finding]:
    for name in engines:
        program = folder / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    env = {"PATH": str(folder), "CAPD_HOME": str(folder)}
    seen = CheckContext(env, 1000, places(env, 1000), "1")
    return list(check_containers(seen, lambda words: engines[Path(words[0]).name]))


@pytest.mark.parametrize("name", CASES)
def test_an_engine_is_told_by_what_it_can_do(name: str, tmp_path: Path) -> None:
    kind, told, level, text = CASES[name]

    [found] = examined(tmp_path, {kind: (json.dumps(told), "")})

    assert (found.level, found.what) == (level, f"servers can run in containers: {text}")


def test_nothing_is_said_where_there_is_no_engine(tmp_path: Path) -> None:
    assert examined(tmp_path, {}) == []


def test_podman_is_preferred(tmp_path: Path) -> None:
    both = {"podman": (json.dumps(podman(True, BOTH)), ""), "docker": (json.dumps(docker()), "")}

    [found] = examined(tmp_path, both)

    assert "podman 5.4.0" in found.what


@pytest.mark.parametrize("answer", [("", "cannot connect"), ("[]", ""), ("{", "")])
def test_an_engine_that_does_not_work_is_named_with_its_reason(
    answer: tuple[str, str], tmp_path: Path
) -> None:
    [found] = examined(tmp_path, {"docker": answer})

    assert found.level == "note"
    assert found.what == "servers cannot run in containers here"
    assert found.why.startswith("docker: ")
