"""Prompt hooks that reach no session: then only the model switches anything on."""

from collections.abc import Iterator
from pathlib import Path

from capd_client.doctor.findings import Finding
from capd_client.doctor.surroundings import Surroundings
from capd_client.install.claude import Claude
from capd_client.install.edits import plan_install
from capd_client.install.launcher import launcher_path
from capd_client.install.ledger import Ledger
from capd_client.install.opencode import Opencode

_CLIENTS = {"claude": "claude-code", "opencode": "opencode"}
"""How each client calls itself when it connects."""


def check_hooks(seen: Surroundings) -> Iterator[Finding]:
    """Say whether the hooks that came found their sessions, and whether any came at all."""
    for count in seen.status.get("hooks") or []:
        if count.get("unlinked"):
            yield from _unlinked(count)
    launcher = launcher_path(seen.env)
    for client in (Claude(seen.env, launcher), Opencode(seen.env, launcher)):
        if not _is_installed(seen, client):
            continue
        sessions = [
            each
            for each in seen.status.get("sessions") or []
            if str(each.get("client", "")).startswith((client.name, _CLIENTS[client.name]))
        ]
        # A tool that was called answers a prompt, and with each prompt the hook runs.
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
        f"{unlinked} prompts of {count.get('client') or 'a client'} reached no session"
        f" ({linked} did)",
        why if not linked else "",
        "start the client in the project's folder, with capd as its MCP server"
        " (`capd sessions` shows how each is linked)",
    )


def _is_installed(seen: Surroundings, client: Claude | Opencode) -> bool:
    ledger = Ledger(Path(seen.places.state), client.name)
    return all(change.is_none for change in plan_install(ledger, client.edits()))
