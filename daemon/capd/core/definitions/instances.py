"""What the running instances of one server list, as they need not list the same (80, B2).

An instance of a project writes its roots into a description, and another has other roots. What one
of them lists and nobody has decided on is remembered while it runs, whatever the others list.
"""

from collections.abc import Collection, Mapping

from capd.core.definitions.baseline import Change
from capd_protos.types import InstanceId, ToolName

MOST_TOLD = 4000


class Instances:
    """The lists of one server by instance, and what of them was told."""

    def __init__(self) -> None:
        self._listed: dict[InstanceId, Mapping[ToolName, bytes]] = {}
        self._told: dict[tuple[ToolName, str, str], None] = {}

    def elsewhere(
        self, instance: InstanceId, running: Collection[InstanceId]
    ) -> dict[ToolName, list[bytes]]:
        """Return what the others that run list; those that do not are forgotten."""
        self._listed = {
            each: listed
            for each, listed in self._listed.items()
            if each in running and each != instance
        }
        found: dict[ToolName, list[bytes]] = {}
        for listed in self._listed.values():
            for name, text in listed.items():
                found.setdefault(name, []).append(text)
        return found

    def lists(
        self, instance: InstanceId, texts: Mapping[ToolName, bytes], changed: Collection[ToolName]
    ) -> None:
        """Take the list of an instance; of what is not `changed` the text is not kept."""
        self._listed[instance] = {
            name: text if name in changed else b"" for name, text in texts.items()
        }

    def untold(self, news: Mapping[ToolName, Change]) -> dict[ToolName, Change]:
        """Return what of `news` was not told before, and count it as told."""
        found: dict[ToolName, Change] = {}
        for name, change in news.items():
            key = (name, change.kind, change.digest)
            if key not in self._told:
                found[name] = change
                self._told[key] = None
        for key in list(self._told)[:-MOST_TOLD]:
            del self._told[key]
        return found

    def decided(self, names: Collection[ToolName]) -> None:
        """Tell of these again: a person had the last word on what was told."""
        self._told = {key: None for key in self._told if key[0] not in names}
