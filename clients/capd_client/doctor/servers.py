"""Checks for servers that failed, and shows the last error of each."""

from collections.abc import Iterator
from typing import Any

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding

_BROKEN = {
    "failed": "does not start",
    "parked": "is given up",
    "backing_off": "ended, and is retried",
}


def check_servers(seen: CheckContext) -> Iterator[Finding]:
    """Report each failed server with its last error and the command that starts it again."""
    servers = seen.status.get("servers") or []
    broken = [each for each in servers if each.get("state") in _BROKEN]
    for server in broken:
        name = str(server.get("name", "?"))
        again = " or ".join(f"`capd enable {each}`" for each in _capabilities_of(seen, server))
        yield Finding(
            "servers",
            "warning",
            f"the server {name} {_BROKEN[server['state']]}",
            str(server.get("last_error") or "it said nothing"),
            f"correct what these lines say, then {again or 'switch its capability on again'};"
            " more: `capd logs --level warning`",
        )
    if servers and not broken:
        count = len(servers)
        yield Finding("servers", "ok", f"{count} server{'' if count == 1 else 's'} as wanted")


def _capabilities_of(seen: CheckContext, server: dict[str, Any]) -> list[str]:
    named = [
        str(each.get("name"))
        for each in seen.capabilities
        if server.get("name") in (each.get("servers") or [])
    ]
    return list(dict.fromkeys(named))[:2]
