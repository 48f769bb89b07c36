"""The input of the checks: this user's environment and paths, and what the daemon reports.

The daemon is asked once for each document; a document that it does not return is left out.
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
class CheckContext:
    """What all checks look at: the environment of this command, and the daemon's answers."""

    env: Mapping[str, str]
    uid: int
    places: Places
    version: str
    """The version of this command."""
    daemon: Mapping[str, Any] = field(default_factory=dict)
    """`version` and `pid` of the daemon that answered; empty if none did."""
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The daemon's answers to `status` and `caps`."""
    down: str = ""
    """Why no daemon can be reached; empty if one listens."""
    trouble: str = ""
    """What is wrong with the answers of a daemon that listens; empty if nothing is."""

    @property
    def status(self) -> Mapping[str, Any]:
        """The daemon's status; empty if no daemon answers."""
        return self.documents.get("status", {})

    @property
    def capabilities(self) -> list[Mapping[str, Any]]:
        """Every capability that the daemon knows."""
        return list(self.documents.get("caps", {}).get("capabilities") or [])

    @property
    def search_path(self) -> str:
        """The PATH on which the daemon finds programs; this command's own if no daemon answers.

        Relative folders are left out, because they depend on the current folder.
        """
        own = self.env.get("PATH", os.defpath)
        return absolute_folders(str((self.status.get("daemon") or {}).get("path") or own))


def absolute_folders(path: str) -> str:
    """Return the search path `path` without its relative folders."""
    return os.pathsep.join(each for each in path.split(os.pathsep) if each.startswith("/"))


def read_context(env: Mapping[str, str], uid: int) -> CheckContext:
    """Ask the daemon of the user `uid`, and return the input of the checks.

    `env` is the environment of this command. Nothing is raised if the daemon fails: `down` or
    `trouble` of the result says why.
    """
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
    return CheckContext(env, uid, where, version("capd"), daemon, documents, down, trouble)
