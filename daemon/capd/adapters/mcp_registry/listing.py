"""Lists the tools of a server that nobody trusts yet, in the strictest sandbox in which it starts.

    strict without a network  ->  strict  ->  guard        each is tried if the one before fails

`strict` and `guard` are levels of the sandbox (docs/sandbox.md). An image is started by the daemon
of Docker or Podman, whose socket `strict` hides, so it is only tried at `guard`. A remote server
runs elsewhere, without a sandbox of capd's.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import structlog
import trio

from capd.adapters.servers.instance import Instance
from capd.adapters.servers.server_run import ServerEnd, ServerRun, StartFailedError
from capd.core.errors import CapdError, leaves
from capd.core.servers.sandbox_rules import SandboxRule, SandboxRules
from capd_protos.types import ClientFacts, ServerSpec, ToolDefinition

log = structlog.get_logger()

Opened = Callable[[SandboxRules], AbstractAsyncContextManager[ServerEnd]]
"""Returns a context manager that starts the server under the given rules."""

STRICT_ALONE = SandboxRule("strict", (), network=False)
STRICT = SandboxRule("strict", (), network=True)
GUARD = SandboxRule("guard", ())


@dataclass(frozen=True, slots=True)
class ListedTools:
    """The tools that a server listed, and the sandbox in which it ran."""

    tools: list[ToolDefinition]
    server_version: str
    sandbox: str
    """The sandbox, in words for a person; empty for a remote server."""


class NotListedError(CapdError):
    """The tools of a server could not be listed in any of the sandboxes that were tried.

    The text has the reason of the last attempt.
    """

    def __init__(self, text: str, stderr: list[str], *, needs_person: bool) -> None:
        super().__init__(text)
        self.stderr = stderr
        self.needs_person = needs_person
        """Whether the server waits for a person, for example for a login."""


def sandboxes_to_try(server: ServerSpec, *, is_image: bool) -> list[SandboxRule]:
    """Return the sandboxes in which to try `server`, the strictest first.

    `is_image` says whether the server is a container image.
    """
    if server.transport != "stdio" or is_image:
        return [GUARD]
    return [STRICT_ALONE, STRICT, GUARD]


async def listed(
    server: ServerSpec,
    opened: Opened,
    tries: list[SandboxRule],
    redact: Callable[[str], str],
    on_attempt: Callable[[str], None] = lambda _: None,
) -> ListedTools:
    """Return the tools that `server` lists, from the first of the sandboxes `tries` that works.

    `opened` starts the server in a sandbox. `redact` removes secrets from a text. `on_attempt` is
    called after each failed attempt but the last, with a text for a person.

    Raises:
        NotListedError: the server lists its tools in none of the sandboxes.
    """
    problem = NotListedError("was not started", [], needs_person=False)
    for rule in tries:
        rules = SandboxRules(servers={"*": rule})
        try:
            return await _once(server, opened(rules), redact)
        except StartFailedError as error:
            problem = NotListedError(str(error), error.stderr, needs_person=error.is_parked)
        except CapdError as error:
            problem = NotListedError(str(error), [], needs_person=False)
        if rule is not tries[-1]:
            on_attempt(f"it does not list its tools {_named(rule)}")
    raise problem


async def _once(
    server: ServerSpec,
    opened: AbstractAsyncContextManager[ServerEnd],
    redact: Callable[[str], str],
) -> ListedTools:
    run = ServerRun(server.name, ClientFacts(), log, redact)
    found: list[ListedTools] = []
    scope = trio.CancelScope()

    def on_ready(instance: Instance) -> None:
        version = instance.server_connection.server_version
        found.append(ListedTools(list(run.tools), version, run.facts.sandbox))
        scope.cancel()

    problems: list[CapdError] = []
    try:
        with scope:
            await run.serve(opened, on_ready=on_ready, on_tools=lambda: None)
    except* CapdError as errors:
        problems = list(leaves(errors))
    if found:
        return found[0]
    raise problems[0] if problems else CapdError("ended before it listed its tools")


def _named(rule: SandboxRule) -> str:
    return "without a network" if rule.network is False else "in the strict sandbox"


def offline(environment: Mapping[str, str], rule: SandboxRule) -> dict[str, str]:
    """Return the environment of a server for one attempt in the sandbox `rule`.

    If the sandbox has no network, the environment tells launchers to work offline.
    """
    if rule.network is False:
        return {**environment, "NPM_CONFIG_OFFLINE": "true", "UV_OFFLINE": "1"}
    return dict(environment)
