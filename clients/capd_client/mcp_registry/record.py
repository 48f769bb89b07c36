"""The file `registry.json` beside a definition that came from a registry.

It records where the server came from, and the package's integrity digest. A secret is written as
its key, never its value.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "registry.json"
SCHEMA = 1
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Where a server of a registry came from, and the answers to its inputs."""

    name: str
    """The server's name in the registry: `io.github.owner/server`."""
    version: str
    registry: str
    kind: str
    package: str
    """`kind:identifier@version`."""
    integrity: str
    answers: Mapping[str, list[str]] = field(default_factory=dict)
    """The values of each input by its name; a secret's value is `{{ENV:KEY}}`."""

    def text(self) -> str:
        """Return the record as the content of its file, `registry.json`."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2) + "\n"


def read_record(folder: Path) -> SourceRecord | None:
    """Return the record in a capability's folder; None if there is no usable one."""
    try:
        with (folder / FILE).open("rb") as file:
            read = json.loads(file.read(_MOST_BYTES))
        answers = {
            str(key): [str(each) for each in read["answers"][key]] for key in read["answers"]
        }
        return SourceRecord(
            name=str(read["name"]),
            version=str(read["version"]),
            registry=str(read["registry"]),
            kind=str(read["kind"]),
            package=str(read["package"]),
            integrity=str(read["integrity"]),
            answers=answers,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
