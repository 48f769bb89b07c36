"""Checks that the prompts which hooks send reach their sessions.

A prompt that reaches no session activates nothing. Then only a model can activate something, by a
tool call.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_client.install import InstallError
from capd_client.install.client import Client
from capd_client.install.edits import plan_install
from capd_client.install.installed_clients import edited_clients
from capd_client.install.known_clients import known_client
from capd_client.install.ledger import Ledger


def check_hooks(seen: CheckContext) -> Iterator[Finding]:
    """Check whether the prompt hooks have run, and whether their prompts reached a session."""
    for count in seen.status.get("hooks") or []:
        if count.get("unlinked"):
            yield from _unlinked(count)
    for client in edited_clients(seen.env):
        if not client.hooks() or not _is_installed(seen, client):
            continue
        sessions = [
            each for each in seen.status.get("sessions") or [] if _is_session_of(each, client)
        ]
        # Every tool call follows a prompt. So a session with calls and no prompt has a silent hook.
        silent = [
            str(each.get("key"))
            for each in sessions
            if each.get("calls") and not each.get("linked_by")
        ]
        if silent:
            yield Finding(
                "hooks",
                "warning",
                f"{client.title} has called tools in {', '.join(silent)}, and its prompt hook has"
                " not been heard there",
                "the hook was installed after it was started, or it does not run hooks",
                f"restart {client.title}; if it stays so: capd uninstall {client.name},"
                f" then capd install {client.name}",
            )
        elif any(each.get("linked_by") for each in sessions):
            yield Finding("hooks", "ok", f"prompts of {client.title} reach their sessions")


def _unlinked(count: dict[str, object]) -> Iterator[Finding]:
    linked, unlinked = count.get("linked", 0), count.get("unlinked", 0)
    is_ambiguous = count.get("reason") == "ambiguous"
    why = "more than one session may be meant" if is_ambiguous else "no session is known for them"
    yield Finding(
        "hooks",
        "note" if linked else "warning",
        f"{unlinked} prompts of {_titled(str(count.get('client') or ''))} reached no session"
        f" ({linked} did)",
        why if not linked else "",
        "start the client in the project's folder, with capd as its MCP server"
        " (`capd sessions` shows how each is linked)",
    )


def _titled(name: str) -> str:
    known = known_client(name)
    return name or "a client" if known is None else known.title


def _is_session_of(session: Mapping[str, Any], client: Client) -> bool:
    """Tell whether the daemon says that `session` is one of this client."""
    if session.get("client_line"):
        return bool(session["client_line"] == client.known.behaviour)
    return str(session.get("client", "")).startswith((client.name, client.known.behaviour))


def _is_installed(seen: CheckContext, client: Client) -> bool:
    ledger = Ledger(Path(seen.places.state), client.name)
    try:
        return all(change.is_none for change in plan_install(ledger, client.edits()))
    except InstallError:
        # The check of the client itself reports why.
        return False
