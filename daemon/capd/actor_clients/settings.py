"""Asks the settings actor for the settings and their problems."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import SETTINGS
from capd_protos import settings as messages
from capd_protos.codec import MsgpackCodec

_SETTINGS_DESCRIBED: MsgpackCodec[messages.SettingsDescribed] = MsgpackCodec(
    messages.SettingsDescribed
)


class SettingsClient(ActorClient):
    """Asks the settings actor for the settings and their problems."""

    actor = SETTINGS

    async def reload(self, *, timeout: float) -> messages.SettingsDescribed:
        """Read the settings files again; return the problems in them."""
        return await self._ask(messages.ReloadSettings(), _SETTINGS_DESCRIBED, timeout)

    async def describe(
        self, project: str = "", *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.SettingsDescribed:
        """Return every setting in force, and why any other is ignored."""
        return await self._ask(messages.DescribeSettings(project), _SETTINGS_DESCRIBED, timeout)
