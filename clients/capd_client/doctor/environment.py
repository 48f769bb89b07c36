"""What the checks look at: this user's environment and places, and what the daemon says.

The daemon is asked once, for each document by itself; what it does not answer is absent.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from capd_client.control import Control, ControlError, DaemonDownError
from capd_protos.places import Places, places

_PATIENCE = 5.0
_DOCUMENTS = ("status", "caps")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything that the checks start from."""

    env: Mapping[str, str]
    uid: int
    places: Places
    version: str
    """Of this command."""
    daemon: Mapping[str, Any] = field(default_factory=dict)
    """`version` and `pid` of the daemon that answered; empty where none did."""
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What it said to `status` and `caps`."""
    down: str = ""
    """Why there is no daemon."""
    trouble: str = ""
    """What is wrong with how it answers."""

    @property
    def status(self) -> Mapping[str, Any]:
        """What the daemon says of itself; empty without one."""
        return self.documents.get("status", {})

    @property
    def capabilities(self) -> list[Mapping[str, Any]]:
        """Every capability that the daemon knows."""
        return list(self.documents.get("caps", {}).get("capabilities") or [])

    @property
    def search_path(self) -> str:
        """The PATH on which the daemon finds programs; this command's own without a daemon.

        Relative folders are left out: they are others wherever this command is called.
        """
        own = self.env.get("PATH", os.defpath)
        return absolute_folders(str((self.status.get("daemon") or {}).get("path") or own))


def absolute_folders(path: str) -> str:
    """Return `path` without its relative folders."""
    return os.pathsep.join(each for each in path.split(os.pathsep) if each.startswith("/"))


def looked_around(env: Mapping[str, str], uid: int) -> Surroundings:
    """Ask the daemon, and return what the checks need."""
    where = places(env, uid)
    daemon: Mapping[str, Any] = {}
    documents: dict[str, Mapping[str, Any]] = {}
    down = trouble = ""
    try:
        with Control(where.socket, client="capd doctor", timeout=_PATIENCE) as control:
            daemon = dict(control.daemon)
            for method in _DOCUMENTS:
                documents[method] = control.call(method)
    except DaemonDownError as error:
        down = str(error)
    except ControlError as error:
        trouble = error.message
    return Surroundings(env, uid, where, version("capd"), daemon, documents, down, trouble)
