"""The system call filter that a guard sets on itself, evaluated like the kernel does."""

import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.adapters.platform.confine import (
    SECCOMP_ALLOW,
    SECCOMP_EPERM,
    keyrings_filter,
    limits_filter,
)

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="as the filter is written")

X86_64, I386, AARCH64 = 0xC000003E, 0x40000003, 0xC00000B7
LIMIT = 0x7FFD_0000_1234


def decision(machine: str, architecture: int, number: int, pid: int, new_limit: int) -> int:
    """Return how a machine's filter of limits decides on a system call."""
    return decided(limits_filter(machine), architecture, number, pid, new_limit)


def decided(
    program: bytes, architecture: int, number: int, pid: int = 0, new_limit: int = 0
) -> int:
    """Return how a filter decides on a system call."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, pid, 7, new_limit, 0, 0, 0)
    at = value = 0
    while True:
        code, yes, no, operand = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if code == 0x20:
            [value] = struct.unpack_from("<I", data, operand)
        elif code == 0x15:
            at += yes if value == operand else no
        else:
            assert code == 0x06
            return int(operand)


@pytest.mark.parametrize(
    "call",
    [
        ("x86_64", X86_64, 302),
        ("x86_64", X86_64, 302 | 0x40000000),
        ("x86_64", I386, 340),
        ("aarch64", AARCH64, 261),
        ("aarch64", 0x40000028, 369),
    ],
)
@pytest.mark.parametrize(
    ("pid", "new_limit", "made"),
    [
        (0, LIMIT, SECCOMP_ALLOW),
        (77, 0, SECCOMP_ALLOW),
        (77, LIMIT, SECCOMP_EPERM),
        (77, 1 << 32, SECCOMP_EPERM),
        (77, 1, SECCOMP_EPERM),
        # The kernel takes the lower half of a number of a process.
        (1 << 32, LIMIT, SECCOMP_ALLOW),
    ],
)
def test_limits_are_set_for_oneself_alone(
    call: tuple[str, int, int], pid: int, new_limit: int, made: int
) -> None:
    assert decision(*call, pid, new_limit) == made


@given(
    architecture=st.sampled_from([X86_64, I386, AARCH64, 0]),
    number=st.integers(0, 600),
    pid=st.integers(0, 1 << 40),
)
def test_every_other_call_is_left_alone(architecture: int, number: int, pid: int) -> None:
    if (architecture, number) in {(X86_64, 302), (I386, 340)}:
        return

    assert decision("x86_64", architecture, number, pid, LIMIT) == SECCOMP_ALLOW


def test_a_machine_whose_numbers_are_not_known_has_no_filter() -> None:
    assert limits_filter("riscv64") == keyrings_filter("riscv64") == b""


@pytest.mark.parametrize(
    ("machine", "architecture", "first"),
    [
        ("x86_64", X86_64, 248),
        ("x86_64", X86_64, 248 | 0x40000000),
        ("x86_64", I386, 286),
        ("aarch64", AARCH64, 217),
        ("aarch64", 0x40000028, 309),
    ],
)
def test_the_calls_on_keyrings_are_refused_and_no_others(
    machine: str, architecture: int, first: int
) -> None:
    numbers = [0, *range(first - 2, first + 5), 400]

    refused = [
        number
        for number in numbers
        if decided(keyrings_filter(machine), architecture, number) == SECCOMP_EPERM
    ]

    assert refused == [first, first + 1, first + 2]
