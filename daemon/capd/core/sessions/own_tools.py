"""capd's own tool `capability`, and the texts that it answers with (docs/design/surface.md).

Models read the texts, and `for_person` rewords their advice for people. Each text says what
happened, why, and what to do next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern
from capd.core.taps.catalog import Unknown
from capd_protos.types import CapabilityId, CapabilityName, ServerName, WireName

CAPABILITY = WireName("capability")
ACTIONS = ("list", "discover", "enable", "disable")
PREVIEW = 3
ECHO_CHARACTERS = 200

DEFINITION = msgspec.json.encode(
    {
        "name": CAPABILITY,
        "title": "Capabilities",
        "description": (
            "List, find, switch on and switch off capabilities: bundles of tools that are "
            "installed but not shown until needed. `discover` ranks them for an intent, `enable` "
            "adds a capability's tools to this conversation, `disable` takes them away, `list` "
            "names all."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": list(ACTIONS)},
                "name": {
                    "type": "string",
                    "description": "Capability name, for enable and disable.",
                },
                "intent": {
                    "type": "string",
                    "description": "What you want to do, in a few words, for discover.",
                },
            },
            "required": ["action"],
        },
        "annotations": {"readOnlyHint": False, "openWorldHint": False},
    }
)


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of the tool `capability`, as a model wrote them."""

    action: str = ""
    name: str = ""
    intent: str = ""


class BadArgumentsError(CapdError):
    """The arguments are not valid; the text says what is wrong and what would be valid."""


def checked(arguments: Arguments) -> Arguments:
    """Return the arguments of the tool `capability` without surrounding spaces, if valid.

    Raises:
        BadArgumentsError: the action is missing or unknown, or lacks its argument.
    """
    action, name, intent = (
        arguments.action.strip(),
        arguments.name.strip(),
        arguments.intent.strip(),
    )
    choices = ", ".join(ACTIONS)
    if not action:
        raise BadArgumentsError(f"`action` is missing: one of {choices}.")
    if action not in ACTIONS:
        raise BadArgumentsError(f"Unknown action {echo(action)}: use one of {choices}.")
    if action in {"enable", "disable"} and not name:
        raise BadArgumentsError(f"`name` is missing: which capability to {action}?")
    if action == "discover" and not intent:
        raise BadArgumentsError("`intent` is missing: say in a few words what you want to do.")
    return Arguments(action, name, intent)


def echo(text: str) -> str:
    """Return `text` in quotes, on one line, cut to 200 characters: a model may have written it."""
    line = " ".join(text.split())
    cut = line if len(line) <= ECHO_CHARACTERS else line[: ECHO_CHARACTERS - 1] + "…"
    return f"'{cut}'"


@dataclass(frozen=True, slots=True)
class ListedCapability:
    """A capability in the answers of capd's tool `capability` to `list` and `discover`."""

    id: CapabilityId
    triggers: Sequence[str]
    missing: Sequence[str]
    """The names of the secrets that it needs and that have no value."""
    is_active: bool
    score: float | None = None

    def line(self) -> str:
        """Return `- [active] NAME (score): "TRIGGER", ... [needs KEY]`, as far as it applies."""
        active = "[active] " if self.is_active else ""
        score = f" (score {self.score:.2f})" if self.score is not None else ""
        preview = ", ".join(f'"{trigger}"' for trigger in self.triggers[:PREVIEW])
        missing = f" [needs {', '.join(self.missing)}]" if self.missing else ""
        return f"- {active}{self.id.name}{score}: {preview}{missing}"


def listing(
    shown: Sequence[ListedCapability], hidden_by_domain: int, domain: str, hidden_by_policy: int = 0
) -> str:
    """Return the answer to the action `list` of capd's tool `capability`.

    It has a line for each capability, then how many are hidden and why.
    """
    if shown:
        lines = "\n".join(entry.line() for entry in shown)
        hidden = (
            f"\n{hidden_by_domain} more are outside domain '{domain}'." if hidden_by_domain else ""
        )
        if hidden_by_policy:
            hidden += f"\n{hidden_by_policy} more are denied by policy."
        head = f"{len(shown)} capabilities are installed:"
        return f"{head}\n{lines}{hidden}\nSwitch one on with action enable."
    if hidden_by_policy:
        others = f", the others are outside domain '{domain}'" if hidden_by_domain else ""
        return (
            f"{hidden_by_domain + hidden_by_policy} capabilities are installed, and this session "
            f"may use none: {hidden_by_policy} are denied by policy{others}."
        )
    if hidden_by_domain:
        return (
            f"{hidden_by_domain} capabilities are installed, and none is in this session's domain "
            f"'{domain}'."
        )
    return "No capability is installed. Add a tap with: capd tap add PATH"


def discovered(intent: str, hits: Sequence[ListedCapability], hidden_by_policy: int = 0) -> str:
    """Return the answer to the action `discover` of capd's tool `capability`.

    It has the fitting capabilities, best first, or says that none fits.
    """
    if not hits:
        denied = f" {hidden_by_policy} that are denied by policy were not compared."
        return (
            f"No installed capability fits {echo(intent)}. Use other words, or action list to see "
            f"all.{denied if hidden_by_policy else ''}"
        )
    lines = "\n".join(entry.line() for entry in hits)
    return f"Capabilities for {echo(intent)}:\n{lines}\nSwitch one on with action enable."


_TRY_AGAIN = "Try again in a moment, or use action list."
MODEL_NOT_READY = f"The embedding model is still loading, so nothing can be ranked. {_TRY_AGAIN}"
SEE_ALL = "Use action list to see all."
TRY_DISCOVER = "Try other words, or the capability tool with action discover."

_FOR_A_PERSON = {
    _TRY_AGAIN: "Try again in a moment; `capd caps` lists what there is.",
    SEE_ALL: "`capd caps` lists all.",
    TRY_DISCOVER: "Try other words, or see what there is with `capd caps`.",
}
_FINDS_OTHERS = lazy_pattern(r"The tool `[\w-]{1,64}` finds others\.")


def for_person(text: str) -> str:
    """Return an answer with its advice for a model reworded for a person."""
    for advice, other in _FOR_A_PERSON.items():
        text = text.replace(advice, other)
    return _FINDS_OTHERS.sub("`capd search` finds others.", text)


def unknown(name: str, why: Unknown) -> str:
    """Return the answer for a name that means no usable capability; `why` has the reason."""
    near = f" Near names: {', '.join(why.near)}." if why.near else f" {SEE_ALL}"
    return f"Capability {echo(name)} cannot be used: {why.reason}.{near}"


def already_active(name: CapabilityName, tools: Sequence[WireName]) -> str:
    """Return the answer of the tool `capability` to `enable`, if the capability is on already."""
    shown = f" Its tools: {', '.join(tools)}." if tools else ""
    return f"Capability '{name}' is already on.{shown}"


def missing_keys(name: CapabilityName, keys: Sequence[str]) -> str:
    """Return the answer of the tool `capability` to `enable`, if secrets are missing."""
    return (
        f"Capability '{name}' needs {', '.join(keys)}, and there is no value for it. Ask the user "
        f"to run `capd secret set {keys[0]}` in a terminal, or to set it where the editor is "
        "started; a secret does not belong into this conversation."
    )


def outside_domain(name: CapabilityName, domains: Sequence[str], domain: str) -> str:
    """Return the answer to `enable` for a capability that is not for the session's domain.

    A domain, such as `work`, limits which capabilities a session may use.
    """
    return f"Capability '{name}' is for {', '.join(domains)}; this session's domain is '{domain}'."


def denied_by_policy(name: CapabilityName, reason: str) -> str:
    """Return the answer of the tool `capability` to `enable`, if policy denies the capability."""
    return f"Capability '{name}' cannot be switched on: {reason}."


def nothing_to_activate(name: CapabilityName) -> str:
    """Return the answer to `enable` for a capability with neither servers nor dependencies."""
    return (
        f"Capability '{name}' defines no server and no dependency: there is nothing to switch on."
    )


def builtin_unsupported(name: CapabilityName) -> str:
    """Return the answer to `enable` for a capability that is built into another program."""
    return (
        f"Capability '{name}' is built into the program that its tap was written for; capd cannot "
        "run it (builtin_unsupported)."
    )


def dependency_failed(name: CapabilityName, dependency: str, message: str) -> str:
    """Return the answer of the tool `capability` to `enable`, if an installer failed."""
    return f"Capability '{name}' was not switched on: dependency {dependency} failed: {message}"


def server_failed(server: ServerName, message: str, stderr: Sequence[str]) -> str:
    """Return the answer of the tool `capability` if a server cannot be started."""
    lines = "".join(f"\n  {line}" for line in stderr)
    tail = f"\nIts last lines on stderr:{lines}" if lines else ""
    return f"Server '{server}' cannot be used: {message}.{tail}"


def enabled(
    name: CapabilityName,
    servers: Sequence[ServerName],
    tools: Sequence[WireName],
    *,
    offered: int,
    evicted: Sequence[CapabilityId],
    installed: Sequence[str],
    denied: int = 0,
    denied_servers: Sequence[ServerName] = (),
) -> str:
    """Return the answer of the tool `capability` to an `enable` that worked.

    `offered` is how many tools the capability's servers list, `denied` how many of its tools policy
    denies. `denied_servers` were not started, because policy denies all of their tools. `evicted`
    are the capabilities that were switched off to make room, `installed` the dependencies that were
    installed.
    """
    parts = [f"Capability '{name}' is on."]
    if installed:
        parts.append(f"Installed: {', '.join(installed)}.")
    if servers and tools:
        parts.append(f"Tools now available: {', '.join(tools)}.")
    elif servers and offered and not denied:
        parts.append(f"Its filter matched none of the {offered} tools that its servers offer.")
    elif servers and not denied:
        parts.append("Its servers offer no tools.")
    elif not servers:
        parts.append("It has no tools of its own.")
    if denied:
        parts.append(f"{denied} of its tools are denied by policy.")
    if denied_servers:
        parts.append(f"Not started, for policy denies all of it: {', '.join(denied_servers)}.")
    if evicted:
        names = ", ".join(str(capability.name) for capability in evicted)
        parts.append(f"Switched off to make room: {names}.")
    return " ".join(parts)


def withdrawn(name: CapabilityName) -> str:
    """Return the answer to `enable` if the capability was switched off while it started."""
    return f"Capability '{name}' was switched off while it was starting."


def keeps_changing(name: str) -> str:
    """Return the answer to `enable` if policy or trust changed during each attempt."""
    return (
        f"'{name}' was not switched on: policy, or the trust in a project, changed each time it "
        "was about to be. Try again."
    )


def not_active(name: str) -> str:
    """Return the answer of the tool `capability` to `disable`, if the capability is off."""
    return f"Capability {echo(name)} is not on."


def disabled(
    name: CapabilityName, stopped: Sequence[ServerName], kept: Sequence[tuple[ServerName, str]]
) -> str:
    """Return the answer of the tool `capability` to a `disable` that worked.

    `stopped` are the servers that nothing uses any longer, and `kept` has each server that is still
    used, with what uses it.
    """
    return _off(f"Capability '{name}' is off.", stopped, kept)


def tool_disabled(
    name: WireName, stopped: Sequence[ServerName], kept: Sequence[tuple[ServerName, str]]
) -> str:
    """Return the answer of the tool `capability` to `disable` for a single tool.

    `stopped` and `kept` are as in `disabled`.
    """
    return _off(f"Tool '{name}' is off.", stopped, kept)


def tool_stays(name: WireName, capabilities: Sequence[str], *, is_pinned: bool) -> str:
    """Return the answer to `disable` for a tool that stays on, because something else grants it."""
    if is_pinned:
        return f"Tool '{name}' stays on: the user's `surface.pins` has it listed always."
    names = ", ".join(f"'{each}'" for each in capabilities)
    return (
        f"Tool '{name}' stays on with {names}. Disable that to take all of its tools away, or the "
        "user denies the tool alone (`deny` in `[policy]`)."
    )


def _off(text: str, stopped: Sequence[ServerName], kept: Sequence[tuple[ServerName, str]]) -> str:
    parts = [text]
    if stopped:
        parts.append(f"No longer needed: {', '.join(stopped)}.")
    parts.extend(f"Server '{server}' is still used by {who}." for server, who in kept)
    return " ".join(parts)
