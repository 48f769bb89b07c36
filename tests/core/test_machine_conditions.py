"""What the daemon reports about a machine with too few resources."""

from dataclasses import replace

import pytest

from capd.core.machine_conditions import (
    LEAST_ADDRESS_BYTES,
    LEAST_DATA_BYTES,
    LEAST_DESCRIPTORS,
    MachineError,
    MachineLimits,
    check_machine,
)

ORDINARY = MachineLimits(7, 7, 16_384, None, None)


def test_an_ordinary_machine_has_nothing_to_tell() -> None:
    assert check_machine(ORDINARY) == []


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ({"proc_pid": None}, "/proc is not there, .* Mount it: mount -t proc proc /proc"),
        ({"proc_pid": 70}, "/proc is that of another process space"),
        ({"descriptors": 64}, "only 64 files may be open at once, and capd needs 128. .*ulimit -n"),
        ({"address_bytes": 10**8}, "may have 95 MiB of address space, and .*ulimit -v unlimited"),
        ({"data_bytes": 10**7}, "may have 9 MiB of data, and .*ulimit -d unlimited"),
    ],
)
def test_without_the_least_it_does_not_start_and_says_why(
    lacks: dict[str, int | None], said: str
) -> None:
    with pytest.raises(MachineError, match=said):
        check_machine(replace(ORDINARY, **lacks))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("little", "said"),
    [
        ({"descriptors": LEAST_DESCRIPTORS}, "only 128 files"),
        ({"descriptors": 1023}, "about 188 servers and sessions"),
        ({"address_bytes": LEAST_ADDRESS_BYTES}, "MiB of address space only"),
        ({"data_bytes": LEAST_DATA_BYTES}, "MiB of data only"),
    ],
)
def test_with_little_it_starts_and_says_so(little: dict[str, int], said: str) -> None:
    (found,) = check_machine(replace(ORDINARY, **little))

    assert said in found


def test_everything_that_is_little_is_told() -> None:
    found = check_machine(MachineLimits(7, 7, 200, LEAST_ADDRESS_BYTES, LEAST_DATA_BYTES))

    assert len(found) == 3
