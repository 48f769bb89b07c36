"""Checks that a daemon answers, that its version is current, and what it reports."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.files import lock_holder
from capd_client.doctor.findings import Finding
from capd_client.install.files import kind_of
from capd_client.remedies import remedy

_ROUTING = "no routing: "
_LAST_BYTES = 8192


def check_daemon(seen: CheckContext) -> Iterator[Finding]:
    """Check that a daemon answers, and that its version is this command's."""
    if seen.trouble:
        yield _not_answering(seen)
    elif seen.down:
        yield Finding(
            "daemon",
            "warning",
            "no daemon runs",
            seen.down,
            "start it: `capd daemon start`",
        )
        yield from _ended_badly(seen)
    else:
        pid, running = seen.daemon.get("pid", "?"), str(seen.daemon.get("version", "?"))
        yield Finding("daemon", "ok", f"capd {running} answers, pid {pid}")
        if running != seen.version:
            yield Finding(
                "version",
                "warning",
                f"the daemon is capd {running}, this command is {seen.version}",
                "it was started before capd was changed, or from another installation",
                "capd restart",
            )


def _not_answering(seen: CheckContext) -> Finding:
    """Return the finding for a listener that accepts connections and does not answer."""
    pid = int(seen.daemon.get("pid") or 0) or lock_holder(seen)
    if not pid:
        return Finding(
            "daemon",
            "error",
            f"the program at {seen.places.socket} does not answer as capd does",
            seen.trouble,
            "end that process (`capd daemon run` in a terminal shows what a fresh one says)",
        )
    return Finding(
        "daemon",
        "error",
        f"the daemon, process {pid}, does not answer",
        seen.trouble,
        f"kill -9 {pid}, then `capd daemon start`; sessions are restored",
    )


def _ended_badly(seen: CheckContext) -> Iterator[Finding]:
    """Report the last line of the log if it is not JSON: then it is the end of a traceback."""
    path = Path(seen.places.state, "capd.log")
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            yield Finding(
                "daemon", "error", f"{path} is {kind_of(mode)}, not a file", "", f"rm {path}"
            )
            return
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return
    last = next((line.strip(" |+-") for line in reversed(lines) if line.strip(" |+-")), "")
    if last and not last.startswith("{"):
        yield Finding(
            "daemon",
            "error",
            "the last daemon ended with an error",
            last,
            f"`capd daemon run` shows all of it; {path} has it as well",
        )


def check_degraded(seen: CheckContext) -> Iterator[Finding]:
    """Report the problems that the daemon lists as `degraded` in its status.

    Problems of taps and of the model are left to their own checks.
    """
    told_elsewhere = {tap.get("error") for tap in seen.status.get("taps") or []}
    for problem in (seen.status.get("daemon") or {}).get("degraded") or []:
        if problem not in told_elsewhere and not str(problem).startswith(_ROUTING):
            yield Finding(
                "configuration",
                "warning",
                "the daemon runs without a part of its configuration",
                str(problem),
                remedy(str(problem)),
            )


def check_model(seen: CheckContext) -> Iterator[Finding]:
    """Check whether the daemon's embedding model can be used, so that it can route messages."""
    model = seen.status.get("embedder")
    if not model:
        return
    reason = str(model.get("reason") or "")
    match model.get("state"):
        case "ready":
            size = int(model.get("rss_bytes") or 0) // 1_000_000
            yield Finding("model", "ok", f"{model.get('model')} is ready, {size} MB")
        case "unusable":
            problem, _, own_remedy = reason.rpartition("; ")
            yield Finding(
                "model",
                "error",
                "no message is routed: the model cannot be used (model_not_ready)",
                problem or reason,
                own_remedy if problem else "reinstall capd; `capd status` shows whether it helped",
            )
        case state if reason:
            yield Finding(
                "model",
                "warning",
                f"messages are not routed for the moment: the model is {state} (model_not_ready)",
                reason,
                "wait a minute; if it stays so: capd restart",
            )
        case state:
            yield Finding("model", "note", f"the model is {state}: a message loads it")
