"""Scripts that a capability requires and that its tap lacks."""

from dataclasses import replace

import msgspec
import pytest

from capd.core.taps.catalog import Tap
from capd.core.taps.required_scripts import MOST_LOOKED_UP, missing_programs, missing_scripts
from capd.core.taps.tap_format import CapabilityRead
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Finding,
    ServerName,
    ServerSpec,
    Severity,
    TapName,
)

MISSING = "requires 'org/a', and the tap has no deps/org/a.sh"


def tap(command: str = "", scripts: tuple[str, ...] = ()) -> Tap:
    t, x = TapName("t"), CapabilityName("x")
    servers = (ServerSpec(ServerName("s"), "stdio", t, command=command),) if command else ()
    spec = CapabilitySpec(CapabilityId(t, x), "uvx", servers=servers, requires=("org/a", "org/b"))
    found = {script: f"/t/deps/{script}.sh" for script in ("org/b", *scripts)}
    return Tap(t, "/t", "0" * 12, (CapabilityRead(x, spec, "", ()),), found)


@pytest.mark.parametrize(
    ("the_tap", "severity", "reason"),
    [
        pytest.param(tap("uvx"), "warning", f"{MISSING}; uvx is on the PATH", id="there"),
        pytest.param(tap("npx"), "error", MISSING, id="not there"),
        pytest.param(tap(), "error", MISSING, id="a script alone"),
    ],
)
def test_a_missing_script_counts_by_whether_the_command_is_there(
    the_tap: Tap, severity: Severity, reason: str
) -> None:
    got = missing_scripts(the_tap, {"uvx"}.__contains__)

    assert got == (Finding("capabilities/x/uvx.toml", 0, reason, severity),)


def test_a_script_that_the_tap_has_is_nothing_to_report() -> None:
    got = missing_scripts(tap("npx", ("org/a",)), {"uvx"}.__contains__)

    assert got == ()


def of_commands(*commands: str, requires: tuple[str, ...] = ()) -> Tap:
    t, x = TapName("t"), CapabilityName("x")
    servers = tuple(
        ServerSpec(ServerName(f"s{at}"), "stdio", t, command=each)
        for at, each in enumerate(commands)
    )
    spec = CapabilitySpec(CapabilityId(t, x), "", servers=servers, requires=requires)
    return Tap(t, "/t", "0" * 12, (CapabilityRead(x, spec, "", ()),), {"org/b": "/t/b.sh"})


@pytest.mark.parametrize(
    ("the_tap", "programs"),
    [
        (of_commands("npx", "uvx", "npx", "docker"), ("npx", "docker")),
        (of_commands("npx", requires=("org/a",)), ("npx",)),
        (of_commands("uvx"), None),
        (of_commands(), None),
        (of_commands("{{CWD}}/run"), None),
        (of_commands("npx", requires=("org/b",)), None),
    ],
    ids=["each once", "no script", "there", "no server", "a placeholder", "a script installs it"],
)
def test_a_program_is_missing_if_no_script_may_install_it(
    the_tap: Tap, programs: tuple[str, ...] | None
) -> None:
    found = missing_programs([the_tap], lambda command: command == "uvx")

    (capability,) = the_tap.capabilities
    assert found == ({capability.id: programs} if programs else {})


def test_a_program_that_is_needed_where_the_project_is_is_not_missing_here() -> None:
    tap = of_commands("npx")
    (capability,) = tap.capabilities
    [server] = capability.servers
    there = msgspec.structs.replace(server, where="project")
    read = CapabilityRead(
        capability.id.name, msgspec.structs.replace(capability, servers=(there,)), "", ()
    )

    found = missing_programs([replace(tap, reads=(read,))], lambda _: False)

    assert found == {}


def test_no_more_commands_are_looked_up_than_the_bound() -> None:
    looked: list[str] = []

    def has_command(command: str) -> bool:
        looked.append(command)
        return True

    missing_programs([of_commands(*map(str, range(MOST_LOOKED_UP + 9)))], has_command)

    assert len(looked) == MOST_LOOKED_UP
