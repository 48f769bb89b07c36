"""Finds the files that launchers read in a project, which must be trusted. Every function blocks.

Files are trusted by their content. Folders such as `node_modules` are trusted whatever they
contain. `trust.json` records that the user trusts such files, as it does for a project's servers.
"""

import os

from capd.adapters.servers.launching import look
from capd.adapters.trust.startable_files import digest_of
from capd.adapters.trust.trust_file import TrustFile
from capd.core.servers.launchers import FilesRead, all_names
from capd.core.trust.project_tap import LAUNCHERS, READ_BY_LAUNCHERS, tap_name
from capd.core.trust.startable import TRUSTED, Startable
from capd_protos.types import ServerSpec

_A_FOLDER = "a folder, whatever it holds"


def launcher_files(project: str, home: str) -> Startable:
    """Return the files of a project that launchers of the user's own servers would read.

    `project` is the project's real path, and `home` the user's home folder. The result has the form
    of a server, so that it is trusted and compared like one.
    """
    server = ServerSpec(LAUNCHERS, READ_BY_LAUNCHERS, tap_name(project), project=project)
    files: dict[str, str] = {}
    problem = ""
    for name in look(project, FilesRead(names=all_names()), home):
        path = os.path.join(project, name)  # noqa: PTH118 - text to text
        try:
            files[name] = _A_FOLDER if os.path.isdir(path) else digest_of(path)  # noqa: PTH112
        except OSError as error:
            problem = f"{path} cannot be read: {error.strerror}"
    return Startable(server, project, files, problem)


def are_launchers_trusted(project: str, home: str, trust: TrustFile) -> bool:
    """Tell whether the files that launchers read in a project are trusted as they are now.

    `project` is its real path, and `trust` the record of what a person trusts.
    """
    agreed = trust.read().of(project)
    if not any(each.name == LAUNCHERS for each in agreed.values()):
        return False
    return launcher_files(project, home).state(agreed) == TRUSTED
