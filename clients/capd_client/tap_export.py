"""`capd tap export`: writes the user's own capabilities as a tap for others, without secrets.

    <config>/own/capabilities     every server of the user's: added, imported, from a registry
    <config>/overlays             the user's phrases and tool edits for these capabilities
        ──> FOLDER/capabilities/NAME/config.toml, default.toml

Secrets are recognised as in an import, by their names and by how they look. Stored values are also
replaced wherever they occur. The replacement is `{{ENV:KEY}}`. A package that was fetched from a
registry is written as its identifier and version.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capd_client.importing import secret_detection
from capd_client.importing.definition import Hidden, Text
from capd_client.importing.stores import KnownValues
from capd_client.importing.variables import NotImportedError, key_of, read_back, written
from capd_client.mcp_registry.record import SourceRecord, read_record
from capd_client.own_tap import OwnTap
from capd_client.taps import TapError
from capd_client.toml_files import EditError, text_of

SHORTEST_SECRET = 6
"""Characters: a shorter stored value is not searched for, because many words contain it."""
_LARGEST_BYTES = 128 << 10
_PLACEHOLDER = re.compile(r"\{\{(?:ENV|INPUT):([A-Za-z_][A-Za-z0-9_]*)\}\}")
_HEADER = re.compile(r"^# ?(?:Title|Description):.*$", re.MULTILINE)
_OVERLAY_KEYS = ("description", "files", "parts", "tool", "triggers")


@dataclass(slots=True)
class Exported:
    """What an export wrote, and what it left out."""

    names: list[str] = field(default_factory=list)
    """The exported capabilities."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Why each capability, skill or installer was left out, by its name or path."""
    keys: dict[str, list[str]] = field(default_factory=dict)
    """The keys of the secrets that each capability uses."""
    notes: list[str] = field(default_factory=list)
    """What a person should look at."""


class TapExport:
    """Writes the user's capabilities in one configuration folder into another folder."""

    def __init__(self, config: str, data: str, env: Mapping[str, str]) -> None:
        """Read the stored secrets; nothing is written.

        `config` and `data` are capd's folders. `env` may have the values of secrets.

        Raises:
            SecretError: others can read the file of secrets.
        """
        self._config = Path(config)
        self._packages = str(Path(data, "packages"))
        self._tap = OwnTap(config)
        self._known = KnownValues(env, config)
        self._secrets: list[tuple[str, str]] = []
        self._keys: dict[str, str] = {}
        """The value that each key of the export stands for, where it is known here."""

    def write(self, folder: Path) -> Exported:
        """Write the tap into `folder`, which must be new or empty.

        Raises:
            TapError: there is nothing to export, or the folder is not empty; nothing was written.
        """
        names = self._tap.names()
        if not names:
            raise TapError("there is nothing to export\nAdd a server of your own first: capd add")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TapError(f"{folder} is there already, and not empty\nName a new folder.")
        self._secrets = self._stored(names)
        made = Exported()
        self._keys = {}
        texts: dict[str, dict[str, str]] = {}
        for name in names:
            try:
                texts[name] = self._capability(name, made)
            except (OSError, ValueError, EditError, NotImportedError) as error:
                made.left_out[name] = str(error).partition("\n")[0]
        made.names = list(texts)
        for name, files in texts.items():
            place = folder / "capabilities" / name
            place.mkdir(parents=True)
            for file, text in files.items():
                (place / file).write_text(text, encoding="utf-8")
        for relative, text in self._other_files(made):
            place = folder / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return made

    def _other_files(self, made: Exported) -> Iterator[tuple[Path, str]]:
        """Yield the path and text of each skill and installer in the user's own tap.

        One that cannot be read, or that may contain a secret, is noted in `made.left_out` instead.
        """
        root = self._tap.folder
        for file in sorted((*root.glob("skills/*/SKILL.md"), *root.glob("deps/*/*.sh"))):
            relative = file.relative_to(root)
            try:
                text = _text(file)
            except (OSError, ValueError) as error:
                made.left_out[str(relative)] = str(error)
                continue
            by_look = secret_detection.of_variable("text", (text,))
            if any(isinstance(part, Hidden) for part in by_look) or self._has_stored(text):
                made.left_out[str(relative)] = "it has what looks like a secret: take it out first"
            else:
                yield relative, text

    # One capability

    def _capability(self, name: str, made: Exported) -> dict[str, str]:
        place = self._tap.place(name)
        record = read_record(place)
        config = self._parsed(place / "config.toml")
        overlays = list(self._overlays(name))
        keys: list[str] = []
        files: dict[str, str] = {}
        for file in sorted(place.glob("*.toml")):
            if file.name == "config.toml":
                continue
            body = self._parsed(file)
            servers = _servers(body)
            for server in servers:
                self._hide(name, server, record, keys)
            edits = {**_table(body, "tool")}
            for overlay in reversed(overlays):
                edits.update(_table(overlay, "tool"))
            if edits:
                body["tool"] = self._without_stored(edits, keys)
            written_text = text_of(file, self._without_stored(body, keys))
            head = [str(self._without_stored(line, keys)) for line in _HEADER.findall(_text(file))]
            files[file.name] = "".join(f"{line}\n" for line in head) + written_text
            self._note_paths(name, servers, made)
        phrases = dict.fromkeys(_texts(config, "triggers"))
        for overlay in overlays:
            phrases.update(dict.fromkeys(_texts(overlay, "triggers")))
        config["triggers"] = list(phrases)
        patterns = [each for body in (config, *overlays) for each in _texts(body, "files")]
        if patterns:
            config["files"] = list(dict.fromkeys(patterns))
        files["config.toml"] = text_of(place, self._without_stored(config, keys))
        if keys:
            made.keys[name] = list(dict.fromkeys(keys))
        return files

    def _hide(
        self, name: str, server: dict[str, Any], record: SourceRecord | None, keys: list[str]
    ) -> None:
        """Replace each secret in the table `server` by a placeholder.

        The secrets' keys are added to `keys`. `name` is the capability's name. `record` says which
        registry the server came from; None if it came from none.
        """

        def put(text: Text) -> str:
            return self._put(name, text, keys)

        command, args = server.get("command"), server.get("args", [])
        if isinstance(command, str) and isinstance(args, list):
            words = [command, *(str(each) for each in args)]
            line = secret_detection.of_line(read_back(self._named(word, record)) for word in words)
            command, *args = (put(text) for text in line)
            server |= {"command": command, "args": args} if args else {"command": command}
        if isinstance(server.get("url"), str):
            server["url"] = put(secret_detection.of_address(read_back(server["url"])))
        for table, hide in (
            ("env", secret_detection.of_variable),
            ("headers", secret_detection.of_header),
        ):
            values = server.get(table)
            if isinstance(values, dict):
                server[table] = {
                    key: put(hide(key, read_back(str(value)))) for key, value in values.items()
                }

    def _put(self, name: str, text: Text, keys: list[str]) -> str:
        def key(hidden: Hidden) -> str:
            plain = key_of(hidden.hint) or "SECRET"
            wanted = [plain, key_of(f"{name}_{plain}")] if hidden.is_named else []
            wanted = [*wanted, *(key_of(f"{name}_{plain}_{n}") for n in range(1, 100))]
            stored = (each for each, value in self._secrets if value == hidden.value)
            # Two values never share a key.
            free = (each for each in wanted if self._keys.get(each, hidden.value) == hidden.value)
            found = next(stored, None) or next(free)
            self._keys[found] = hidden.value
            keys.append(found)
            return found

        return written(text, key)

    def _named(self, word: str, record: SourceRecord | None) -> str:
        """Return the argument `word`; the local file of a package becomes its name and version."""
        if record is None or self._packages not in word:
            return word
        kind, _, package = record.package.partition(":")
        identifier, _, version = package.rpartition("@")
        name = f"{identifier}=={version}" if kind == "pypi" else package
        file = re.compile(rf"(?:file:(?://)?)?{re.escape(self._packages)}/\S+")
        return file.sub(lambda _: name, word)

    def _without_stored(self, value: Any, keys: list[str]) -> Any:
        """Return the TOML value `value` with a placeholder in place of each stored secret.

        The secrets' keys are added to `keys`.
        """
        if isinstance(value, dict):
            return {
                str(self._without_stored(key, keys)): self._without_stored(inner, keys)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [self._without_stored(inner, keys) for inner in value]
        if not isinstance(value, str):
            return value
        for key, secret in self._secrets:
            if secret in value:
                value = value.replace(secret, f"{{{{ENV:{key}}}}}")
                keys.append(key)
        return value

    # What there is

    def _has_stored(self, text: str) -> bool:
        return any(secret in text for _, secret in self._secrets)

    def _stored(self, names: list[str]) -> list[tuple[str, str]]:
        """Return pairs of a key and its value, the longest value first.

        The keys are those in the definitions `names` and in secrets.env. Short values are left out.
        """
        wanted = set(self._known.stored_keys())
        for name in names:
            for file in self._tap.place(name).glob("*.toml"):
                text = file.read_text(encoding="utf-8", errors="replace")
                wanted.update(_PLACEHOLDER.findall(text))
        values = [(key, value) for key in sorted(wanted) for value in self._known.all_of(key)]
        # A secret that contains another one is replaced first.
        longest_first = sorted(values, key=lambda item: -len(item[1]))
        return [(key, value) for key, value in longest_first if len(value) >= SHORTEST_SECRET]

    def _overlays(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the user's overlays for a capability of the tap `own`, sorted by their folders."""
        for head in sorted((self._config / "overlays").glob("*/overlay.toml")):
            file = head.parent / "capabilities" / f"{name}.toml"
            if file.is_file() and self._parsed(head).get("tap") == self._tap.folder.name:
                body = self._parsed(file)
                yield {key: value for key, value in body.items() if key in _OVERLAY_KEYS}

    @staticmethod
    def _parsed(file: Path) -> dict[str, Any]:
        try:
            return tomllib.loads(_text(file))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file} is not TOML: {error}") from None

    def _note_paths(self, name: str, servers: list[dict[str, Any]], made: Exported) -> None:
        home = os.path.expanduser("~")  # noqa: PTH111 - as a definition has it
        for server in servers:
            words = [str(server.get("command", "")), *map(str, server.get("args") or ())]
            words += map(str, (server.get("env") or {}).values())
            found = next((word for word in words if home != "/" and home in word), None)
            if found is not None:
                made.notes.append(f"{name}: {found[:100]} is a path of this machine")


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        data = opened.read(_LARGEST_BYTES + 1)
    if len(data) > _LARGEST_BYTES:
        raise ValueError(f"{file} is larger than {_LARGEST_BYTES >> 10} KiB")
    return data.decode()


def _servers(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    mcp = body.get("mcp")
    found = mcp.get("servers") if isinstance(mcp, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _table(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = body.get(key)
    return dict(found) if isinstance(found, dict) else {}


def _texts(body: Mapping[str, Any], key: str) -> list[str]:
    found = body.get(key)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
