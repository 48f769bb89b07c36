"""What each client gets beside the server, so that capd sees what its user says."""

from collections.abc import Mapping
from pathlib import Path

from capd_client.install.edits import FileEdit


def hook_edits(client_id: str, env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    """Return the edits of a client's hook files; none where it has no prompt hook.

    An edit may be of the file that has the server as well: edits of one file are made together.
    """
    del client_id, env, launcher
    return []
