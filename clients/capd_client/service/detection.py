"""Which service manager this machine has."""

import shutil
import sys
from collections.abc import Mapping

from capd_client.service.launchd import Launchd
from capd_client.service.manager import Manager
from capd_client.service.plain import Plain
from capd_client.service.systemd import Systemd


def this_manager(env: Mapping[str, str]) -> Manager:
    """Return launchd on macOS; systemd if this user's manager answers; otherwise `Plain`.

    `env` is the environment of this command.
    """
    if sys.platform == "darwin":
        return Launchd(env)
    if shutil.which("systemctl", path=env.get("PATH")) and Systemd.answers():
        return Systemd(env)
    return Plain(env)
