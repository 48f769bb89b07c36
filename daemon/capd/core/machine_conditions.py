"""What the daemon requires of its machine.

Below a minimum the daemon does not start, because a daemon that then fails at each session, call or
search helps nobody and hides why. Below a comfortable amount it starts, and reports the shortage.
"""

from dataclasses import dataclass

from capd.core.errors import CapdError

LEAST_DESCRIPTORS = 128
"""The fewest file descriptors with which the daemon starts. An idle daemon has 60 open, and the
start of a server briefly takes 20."""
FEW_DESCRIPTORS = 1024
LEAST_ADDRESS_BYTES = 1000 * 10**6
LITTLE_ADDRESS_BYTES = 4000 * 10**6
LEAST_DATA_BYTES = 400 * 10**6
LITTLE_DATA_BYTES = 2000 * 10**6
"""If the machine limits data memory to fewer bytes, the daemon reports it. As measured, numpy's own
threads reserve most of this amount, and the model takes 200 MB more."""
_MIB = 1 << 20


class MachineError(CapdError):
    """The daemon cannot run here; the text says what to change."""


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The limits that the machine sets for the daemon; None means no limit."""

    pid: int
    proc_pid: int | None
    """The pid that /proc gives this process; None if /proc is not available."""
    descriptors: int | None
    address_bytes: int | None
    data_bytes: int | None


def check_machine(machine: MachineLimits) -> list[str]:
    """Return the machine's shortcomings that the daemon can live with, each with its repair.

    Raises:
        MachineError: the daemon cannot run here.
    """
    if machine.proc_pid != machine.pid:
        what = "is not there" if machine.proc_pid is None else "is that of another process space"
        raise MachineError(
            f"/proc {what}, so capd cannot tell who connects to its socket, nor end what its "
            "servers start. Mount it: mount -t proc proc /proc"
        )
    found = []
    few = machine.descriptors
    if few is not None and few < FEW_DESCRIPTORS:
        if few < LEAST_DESCRIPTORS:
            raise MachineError(
                f"only {few} files may be open at once, and capd needs {LEAST_DESCRIPTORS}. "
                "Allow more: ulimit -n 4096, or LimitNOFILE=4096 in the service"
            )
        found.append(
            f"only {few} files may be open at once: about {max(1, (few - 80) // 5)} servers and "
            "sessions. Allow more: ulimit -n 4096, or LimitNOFILE=4096 in the service"
        )
    found += _memory(
        "address space",
        "ulimit -v unlimited, or LimitAS=infinity",
        machine.address_bytes,
        LEAST_ADDRESS_BYTES,
        LITTLE_ADDRESS_BYTES,
    )
    found += _memory(
        "data",
        "ulimit -d unlimited, or LimitDATA=infinity",
        machine.data_bytes,
        LEAST_DATA_BYTES,
        LITTLE_DATA_BYTES,
    )
    return found


def _memory(what: str, repair: str, limit: int | None, least: int, little: int) -> list[str]:
    if limit is None or limit >= little:
        return []
    if limit < least:
        raise MachineError(
            f"this process may have {limit // _MIB} MiB of {what}, and capd needs "
            f"{least // _MIB}. Allow more: {repair} in the service"
        )
    note = (
        f"this process, its model and each server may have {limit // _MIB} MiB of {what} only, "
        f"and may fail for want of it. Allow more: {repair} in the service"
    )
    return [note]
