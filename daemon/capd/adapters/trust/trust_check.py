"""Checks, directly before a project's server starts, that the server is what a person trusted.

The check ignores everything that the daemon remembers of the project. The definition has to be in
the project's files exactly as it is about to be started, and the definition and all files that it
names have to be trusted.
"""

from capd.adapters.parsing.jobs import DIRECT, Reader
from capd.adapters.trust.project_taps import read_project
from capd.adapters.trust.startable_files import startable
from capd.adapters.trust.trust_file import TrustFile
from capd.core.errors import CapdError
from capd.core.trust.startable import CHANGED, TRUSTED
from capd_protos.types import ServerSpec


class UntrustedError(CapdError):
    """A server of a project may not be started; the text says why, and what to do."""


def refuse_untrusted(server: ServerSpec, trust: TrustFile, reader: Reader = DIRECT) -> None:
    """Check that the project defines exactly this `server`, and that a person trusts it.

    `reader` parses the project's files.

    Raises:
        UntrustedError: the server must not be started; the text says why.
    """
    trusted = trust.read()
    agreed = trusted.of(server.project)
    found = startable(server)
    state = found.state(agreed)
    if trusted.problem:
        raise UntrustedError(trusted.problem)
    if state != TRUSTED:
        changes = ", ".join(found.changes(agreed)) or found.problem
        why = (
            f"has changed since it was trusted ({changes})" if state == CHANGED else "is untrusted"
        )
        raise UntrustedError(_refusal(server, why))
    defined = read_project(server.project, trust, reader).startables
    if all(each.server != server for each in defined):
        raise UntrustedError(_refusal(server, "is not what the project's files define by now"))


def _refusal(server: ServerSpec, why: str) -> str:
    what = f"{server.name} of the project {server.project} {why}"
    return f"{what}: see what it would start, and agree to it, with capd trust {server.project}"
