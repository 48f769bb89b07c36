"""What is read from a container engine's description of itself."""

import os

import pytest

from capd.adapters.servers.containers import _engine


@pytest.mark.parametrize(
    ("answer", "is_rootless", "bounds_processors"),
    [
        ("true [cpu memory pids]\n", True, True),
        ("true [memory pids]\n", True, False),
        ("true [cpuset]\n", True, False),
        ("true []\n", True, False),
        # As root with the first version of control groups it lists none, and bounds them.
        ("false []\n", False, True),
        ("false [cpu memory]\n", False, True),
    ],
)
def test_what_podman_bounds_is_taken_from_its_answer(
    answer: str, is_rootless: bool, bounds_processors: bool
) -> None:
    engine = _engine("podman", "/usr/bin/podman", answer)

    assert engine.is_rootless is is_rootless
    assert engine.cpus == (os.cpu_count() if bounds_processors else 0)


def test_docker_leaves_a_bound_out_by_itself() -> None:
    assert _engine("docker", "/usr/bin/docker", '["name=rootless"]').cpus == os.cpu_count()
