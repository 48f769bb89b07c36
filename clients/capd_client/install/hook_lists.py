"""Finds, adds and removes capd's hook in a JSON file that may have other hooks.

Clients use two shapes:

    groups    {"hooks": {EVENT: [{"hooks": [HOOK, ...]}, ...]}}      as in Claude Code
    flat      {"hooks": {EVENT: [HOOK, ...]}}

capd's hook is recognised by its command line, `.../capd-mcp hook CLIENT`.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from capd_client.install.jsonc import find, parse
from capd_client.install.jsonc_edits import append, put, take
from capd_client.install.launcher import NAME as LAUNCHER_NAME
from capd_client.install.pruning import prune

Shape = Literal["groups", "flat"]
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class HookList:
    """capd's hook for one event of one client, and the list that it belongs in."""

    event: str
    shape: Shape
    hook: dict[str, Any]
    client: str
    command_key: str = "command"
    version: int | None = None
    """The value of the member `version` that the client requires; None if it requires none."""

    @property
    def path(self) -> tuple[str, ...]:
        """The keys that lead to the list of hooks in the JSON file."""
        return ("hooks", self.event)

    def add(self, text: str) -> str:
        """Return `text` with capd's hook in its list; add the member `version` if it is required.

        If the hook is there already, only its command line is replaced, so that other members of
        the hook, which the user may have added, stay. Of several copies, the first is changed.
        """
        if self.version is not None and _value(text, ("version",)) is None:
            text = put(text, ("version",), self.version)
        places = self.places(text)
        if not places:
            return append(text, self.path, self.hook if self.shape == "flat" else self._group)
        return put(text, (*places[0], self.command_key), self.hook[self.command_key])

    def remove(self, text: str, original: str | None) -> str:
        """Return `text` without capd's hook, and without objects and lists created for the hook.

        `original` is the text before the hook was added; None if it is not known. A member
        `version` that capd added is removed if nothing else is left.
        """
        for place in reversed(self.places(text)):
            text = take(text, place)
            if self.shape == "groups" and not _value(text, place[:-1]):
                text = take(text, place[:-2])
        text = prune(text, self.path, original)
        known = _value(original, ("version",)) if original else None
        is_ours_alone = self.version is not None and known is None and original is not None
        if is_ours_alone and _value(text, ()) == {"version": self.version}:
            return take(text, ("version",))
        return text

    @property
    def _group(self) -> dict[str, Any]:
        return {"hooks": [self.hook]}

    def places(self, text: str) -> list[Place]:
        """Return the path to each copy of capd's hook in `text`, in order."""
        listed = _value(text, self.path)
        found: list[Place] = []
        for at, each in enumerate(listed if isinstance(listed, list) else ()):
            if self.shape == "flat":
                if self._is_ours(each):
                    found.append((*self.path, at))
                continue
            hooks = each.get("hooks") if isinstance(each, dict) else None
            for place, hook in enumerate(hooks if isinstance(hooks, list) else ()):
                if self._is_ours(hook):
                    found.append((*self.path, at, "hooks", place))
        return found

    def _is_ours(self, hook: object) -> bool:
        command = hook.get(self.command_key) if isinstance(hook, dict) else None
        return isinstance(command, str) and is_our_command(command, self.client)


def is_our_command(command: str, client: str) -> bool:
    """Tell whether a command line runs capd's hook for `client`."""
    found = our_arguments(command)
    return found is not None and found[0] == client


def our_arguments(command: str) -> tuple[str, str] | None:
    """Return the client and the event that a hook's command line names; None if it is not capd's.

    The event is empty if the command line names none.
    """
    try:
        program, word, client, *rest = shlex.split(command)
    except ValueError:
        return None
    if Path(program).name != LAUNCHER_NAME or word != "hook":
        return None
    return client, rest[0] if rest else ""


def _value(text: str, path: Place) -> Any:
    if not text.strip("\ufeff \t\r\n"):
        return None
    node = find(parse(text), path)
    return None if node is None else node.value
