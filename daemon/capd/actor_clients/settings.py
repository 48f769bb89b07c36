"""Asks the settings: what can be set, and what is."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import SETTINGS
from capd_protos import settings as messages
from capd_protos.codec import MsgpackCodec

_SETTINGS_DESCRIBED: MsgpackCodec[messages.SettingsDescribed] = MsgpackCodec(
    messages.SettingsDescribed
)


class SettingsClient(ActorClient):
    """Asks the settings: what can be set, and what is."""

    actor = SETTINGS

    async def reload(self, *, timeout: float) -> messages.SettingsDescribed:
        """Read the files of settings again."""
        return await self._ask(messages.ReloadSettings(), _SETTINGS_DESCRIBED, timeout)

    async def describe(
        self, project: str = "", *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.SettingsDescribed:
        """Return all settings, and those that are not in force with the reason."""
        return await self._ask(messages.DescribeSettings(project), _SETTINGS_DESCRIBED, timeout)
