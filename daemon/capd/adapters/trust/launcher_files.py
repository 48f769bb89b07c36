"""Finds the files that launchers read in a project, which must be trusted. Every function blocks.

The launchers are those of the user's own servers. Files are trusted by their content. Folders such
as `node_modules`, and the modules that `python -m` would import, are trusted whatever they contain.
`trust.json` records that the user trusts such files, as it does for a project's servers.
"""

import os
from collections.abc import Iterable

import msgspec

from capd.adapters.servers.launching import look, modules
from capd.adapters.trust.startable_files import digest_of, startable
from capd.adapters.trust.trust_file import TrustFile
from capd.core.servers.launchers import FilesRead, all_names, reading
from capd.core.trust.project_tap import (
    LAUNCHERS,
    MODULES,
    READ_BY_LAUNCHERS,
    own_server,
    tap_name,
)
from capd.core.trust.startable import TRUSTED, Startable
from capd_protos.types import ServerName, ServerSpec

_A_FOLDER = "a folder, whatever it holds"
_MODULES = "to be imported, whatever it holds"


def read_by_launchers(project: str, home: str, own: Iterable[ServerSpec]) -> list[Startable]:
    """Return all that a person has to trust in a project for their own servers.

    `project` is the project's real path, `home` the user's home folder, and `own` are the user's
    own servers. The first entry has the files that launchers read. Entries for modules, and for
    each server that is itself a file of the project, follow if there are such files.
    """
    found = [_modules(project), *(_own_files(each, project) for each in own if _is_file(each))]
    unique = {each.digest: each for each in found if each.files or each.problem}
    return [launcher_files(project, home), *unique.values()]


def launcher_files(project: str, home: str) -> Startable:
    """Return the files of a project that launchers of the user's own servers would read.

    `project` is the project's real path, and `home` the user's home folder. The result has the form
    of a server, so that it is trusted and compared like one.
    """
    files: dict[str, str] = {}
    problem = ""
    for name in look(project, FilesRead(names=all_names()), home):
        path = os.path.join(project, name)  # noqa: PTH118 - text to text
        try:
            files[name] = _A_FOLDER if os.path.isdir(path) else digest_of(path)  # noqa: PTH112
        except OSError as error:
            problem = f"{path} cannot be read: {error.strerror}"
    return Startable(_entry(LAUNCHERS, project), project, files, problem)


def is_start_trusted(
    server: ServerSpec, found: FilesRead, project: str, home: str, trust: TrustFile
) -> bool:
    """Tell whether all files that a server of the user's own reads in a project are trusted.

    They have to be as they were when the person agreed. `found` is what the server reads,
    `project` the project's real path, and `trust` the record of what a person trusts.
    """
    agreed = trust.read().of(project)
    if not any(each.name == LAUNCHERS for each in agreed.values()):
        return False
    needed = [launcher_files(project, home)]
    more = [_modules(project)] if found.reads_modules else []
    if found.project_file:
        more.append(_own_files(server, project))
    needed += [each for each in more if each.files or each.problem]
    return all(each.state(agreed) == TRUSTED for each in needed)


def _modules(project: str) -> Startable:
    files = dict.fromkeys(modules(project), _MODULES)
    return Startable(_entry(MODULES, project), project, files)


def _is_file(server: ServerSpec) -> bool:
    if server.transport != "stdio" or server.project:
        return False
    return bool(reading((server.command, *server.args), server.env).project_file)


def _own_files(server: ServerSpec, project: str) -> Startable:
    found = startable(msgspec.structs.replace(server, project=project))
    entry = _entry(own_server(server.name), project)
    return Startable(entry, project, found.files, found.problem)


def _entry(name: ServerName, project: str) -> ServerSpec:
    return ServerSpec(name, READ_BY_LAUNCHERS, tap_name(project), project=project)
