"""All checks, in the order in which a person would look."""

from collections.abc import Callable, Iterator

from capd_client.doctor.containers import check_containers
from capd_client.doctor.daemon import check_daemon, check_degraded, check_model
from capd_client.doctor.definitions import check_node, check_packages, check_secrets
from capd_client.doctor.editors import check_editors
from capd_client.doctor.environment import CheckContext
from capd_client.doctor.files import check_configuration, check_locks
from capd_client.doctor.findings import Finding
from capd_client.doctor.hooks import check_hooks
from capd_client.doctor.launchd import check_agent
from capd_client.doctor.other_editors import check_other_editors
from capd_client.doctor.processes import check_processes
from capd_client.doctor.programs import (
    check_commands,
    check_launchers,
    check_runners,
    check_search_path,
)
from capd_client.doctor.sandbox import check_default_level, check_sandbox
from capd_client.doctor.servers import check_servers
from capd_client.doctor.service import check_service
from capd_client.doctor.sockets import check_other_sockets, check_socket
from capd_client.doctor.storage import check_storage
from capd_client.doctor.taps import check_taps

Check = Callable[[CheckContext], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    check_daemon,
    check_degraded,
    check_configuration,
    check_service,
    check_agent,
    check_socket,
    check_locks,
    check_other_sockets,
    check_model,
    check_taps,
    check_secrets,
    check_packages,
    check_commands,
    check_search_path,
    check_runners,
    check_servers,
    check_launchers,
    check_node,
    check_sandbox,
    check_processes,
    check_default_level,
    check_containers,
    check_editors,
    check_other_editors,
    check_hooks,
    check_storage,
)


def run_checks(seen: CheckContext) -> Iterator[Finding]:
    """Yield what each check finds; if one check fails, the others still run."""
    for check in CHECKS:
        try:
            yield from check(seen)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            yield Finding(
                check.__name__.removeprefix("check_").replace("_", " "),
                "warning",
                "this could not be checked",
                f"{where}{error.strerror or error}",
                "see who owns it, and whether it is a file or a folder",
            )
