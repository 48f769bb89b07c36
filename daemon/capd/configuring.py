"""`python -m capd config`: prints the settings from the files, for when no daemon runs.

config show [PROJECT]    one JSON document, as a daemon's control method `config` returns it
config schema            the JSON Schema of config.toml
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from capd.actors.control.documents import config_document
from capd.actors.settings import described
from capd.adapters.key_documents import schema
from capd.adapters.live_settings import LiveSettings
from capd_protos.places import places

USAGE = "usage: python -m capd config show [PROJECT] | schema"
WRONG_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    """Print the document that `arguments` name, as JSON; return the exit code."""
    match list(arguments):
        case ["show", *project] if len(project) <= 1:
            document: Any = trio.run(partial(_shown, project[0] if project else ""))
        case ["schema"]:
            document = schema()
        case _:
            sys.stderr.write(USAGE + "\n")
            return WRONG_USAGE
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    return 0


async def _shown(project: str) -> dict[str, Any]:
    where = places(os.environ, os.getuid())
    settings = LiveSettings(Path(where.config), os.environ, None)
    settings.load()
    await settings.load_project(project)
    return config_document(project, described(settings, project))
