"""`python -m capd registry ...`: servers of a public registry, for `capd find`, `add` and `update`.

    find       the servers that fit a text, from copies of the registries' lists in the cache
    resolve    a server's entry in a registry, and its package, downloaded and checked
    launch     the parts of a server's definition, from an entry and the answers to its inputs
    inspect    what a server lists in a sandbox: tools, findings, tokens, triggers, collisions
    triggers   triggers for the definitions of servers whose tools are already known

A trigger is a phrase: a message that resembles one may switch the server on. All actions except
`find` read one JSON object from standard input, which may contain secrets. Each action prints one
JSON object. No daemon is involved, so this process itself parses what strangers wrote.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import trio

from capd.actors.supervisor.starts import Starts, SupervisorSettings
from capd.adapters.configuration import load_configuration
from capd.adapters.definition_files import DefinitionFiles
from capd.adapters.mcp_registry import copies, listing
from capd.adapters.mcp_registry.fetching import Fetcher, FetchError
from capd.adapters.mcp_registry.package_indexes import npm_settings, python_indexes
from capd.adapters.mcp_registry.packages import PackageError, PackagePlaces, artifact
from capd.adapters.servers.child_environment import uvx_folder
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.sandboxing import Sandboxes, own_folders
from capd.adapters.servers.server_run import ServerEnd
from capd.adapters.tap_files import TapUnreadableError, read_tap, tap_places
from capd.adapters.tokens.token_counts import VocabularyError, count
from capd.adapters.tool_lists import ToolLists
from capd.core.definitions.canonical import canonical, difference
from capd.core.definitions.flags import SOURCES, flags, flags_among
from capd.core.errors import CapdError
from capd.core.mcp_registry import resolution as ways
from capd.core.mcp_registry.proposals import (
    collisions,
    package_of,
    proposed_triggers,
    short_name,
)
from capd.core.mcp_registry.ranking import Meaning, ranked, text_of
from capd.core.mcp_registry.server_json import Entry, EntryError, is_name, is_version, read_entry
from capd.core.mcp_registry.summaries import Copy, Summary
from capd.core.redaction import redactor
from capd.core.servers.identity import server_identity
from capd.core.servers.own_folders import PACKAGES
from capd.core.servers.placeholders import wanted_keys
from capd.core.servers.sandbox_rules import SandboxRules
from capd.core.sessions.own_tool_list import OWN_TOOLS
from capd.core.taps.catalog import Tap
from capd.core.taps.tap_format import CapabilityFiles, read_capability
from capd_protos.codec import MalformedError
from capd_protos.places import Places, make_folders, places
from capd_protos.types import (
    CapabilityName,
    ServerIdentity,
    ServerName,
    ServerSpec,
    TapName,
    ToolDefinition,
    ToolName,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

USAGE = "usage: python -m capd registry find TEXT | resolve | launch | inspect | triggers"
FAILED = 1
WRONG_USAGE = 2
MOST_INPUT_BYTES = 4 << 20
MOST_HITS = 100
_EMBEDDED_AT_ONCE = 64
"""The most texts that one search embeds, at some 5 ms each; later searches embed the rest."""
_MOST_DIFFERENCE = 20_000
_OWN = TapName("own")


class _Resolve(msgspec.Struct):
    name: str
    version: str = "latest"
    wanted: Literal["", "npm", "pypi", "oci", "remote"] = ""
    recorded: dict[str, str] = {}
    """The integrity hashes of packages that are installed already, by `kind:identifier@version`."""
    taken: list[str] = []
    """Names that the definition cannot have, because the user's own definitions have them."""
    fetches: bool = True
    """Whether the package is downloaded and checked, or only resolved."""


class _Launch(msgspec.Struct):
    entry: str
    wanted: Literal["npm", "pypi", "oci", "remote"]
    artifact: ways.Artifact
    answers: dict[str, list[str]]


class _Inspect(msgspec.Struct):
    name: str
    files: dict[str, str]
    values: dict[str, str] = {}
    previous: dict[str, str] = {}
    """The files of the definition that this one would replace."""
    title: str = ""
    description: str = ""
    is_image: bool = False


class _Triggers(msgspec.Struct):
    servers: dict[str, dict[str, str]]
    """The files of each definition, by name."""


def main(arguments: Sequence[str]) -> int:
    """Run the action that `arguments` name, such as `find`; return the exit code."""
    where = places(os.environ, os.getuid())
    match list(arguments):
        case ["find", *rest]:
            run = partial(_find, _find_options(rest), where)
        case ["resolve"]:
            run = partial(_resolve, _read(_Resolve), where)
        case ["launch"]:
            run = partial(_launch, _read(_Launch))
        case ["inspect"]:
            run = partial(_inspect, _read(_Inspect), where)
        case ["triggers"]:
            run = partial(_triggers, _read(_Triggers), where)
        case _:
            sys.stderr.write(USAGE + "\n")
            return WRONG_USAGE
    try:
        document = trio.run(run)
    except CapdError as error:
        document = {"error": str(error)}
    except OSError as error:
        document = {"error": f"{error.filename or 'a file'}: {error.strerror}"}
    except KeyboardInterrupt:
        return 130
    sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    return FAILED if "error" in document else 0


def _read(kind: type[Any]) -> Any:
    data = sys.stdin.buffer.read(MOST_INPUT_BYTES + 1)
    return msgspec.json.decode(data, type=kind)


def _tell(text: str) -> None:
    """Write a line about progress to standard error; the calling command shows or hides it."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


# Finding


def _find_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="capd registry find")
    parser.add_argument("--refresh", action="store_true")
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("text")
    return parser.parse_args(arguments)


async def _find(options: argparse.Namespace, where: Places) -> dict[str, Any]:
    files = copies.CopyFiles(Path(where.cache))
    registries: list[dict[str, Any]] = []
    found: dict[str, tuple[Summary, str]] = {}
    for url in _urls(where):
        copy = files.read(url)
        problem = ""
        is_asked = options.refresh or not copies.is_fresh(copy, time.time())
        if is_asked and not options.offline:
            problem = await _refreshed(copy, files)
        age = max(0.0, time.time() - copy.synced_at) if copy.synced_at else None
        registries.append(
            {
                "url": url,
                "servers": len(copy.entries),
                "age": age,
                "is_complete": bool(copy.synced_at),
                "problem": problem,
            }
        )
        for name, each in copy.entries.items():
            found.setdefault(name, (each, url))
    if not any(each["servers"] for each in registries):
        reasons = "; ".join(each["problem"] for each in registries if each["problem"])
        again = "without --offline" if options.offline else "with a network"
        raise CapdError(
            f"nothing of a registry is in the cache{f': {reasons}' if reasons else ''}\n"
            f"Run it again {again}, or name another registry: [registry] urls"
        )
    summaries = [each for each, _ in found.values()]
    meaning = None if options.words else _meaning(options.text, summaries, where)
    hits = ranked(options.text, summaries, max(1, min(options.limit, MOST_HITS)), meaning)
    return {
        "schema": 1,
        "text": options.text,
        "uses_meaning": meaning is not None,
        "registries": registries,
        "servers": [_document(each, score, found[each.name][1]) for each, score in hits],
    }


async def _refreshed(copy: Copy, files: copies.CopyFiles) -> str:
    """Refresh the local copy of a registry's list of servers, and save it with `files`.

    Return a note for a person, with the error if the refresh failed; empty if there is none.
    """
    fetcher = await Fetcher.opened()

    def told(read: int) -> None:
        _tell(f"reading {copy.url}: {read} servers")

    try:
        return await copies.refresh(copy, fetcher, files.write, told)
    except (FetchError, EntryError) as error:
        if copy.synced_at == 0 and copy.entries:
            # Saved, so that the next search continues from here.
            files.write(copy)
        return f"not refreshed: {error}"
    finally:
        await fetcher.aclose()


def _document(each: Summary, score: float, url: str) -> dict[str, Any]:
    return {
        "name": each.name,
        "version": each.version,
        "title": each.title,
        "description": each.description,
        "status": each.status,
        "namespace": each.namespace,
        "runs": list(each.runs),
        "needs": list(each.needs),
        "updated_at": each.updated_at,
        "registry": url,
        "score": round(score, 4),
    }


def _meaning(text: str, summaries: Sequence[Summary], where: Places) -> Meaning | None:
    """Return a function that compares `text` with the summaries of servers by meaning.

    The function takes positions in `summaries` and returns a cosine for each, which is 0 for a
    summary that is not embedded yet. None is returned if the embedding model cannot be loaded.
    """
    from capd.adapters.model.minilm import (  # noqa: PLC0415 - half a second, only for meaning
        MODEL,
        MiniLM,
        ModelUnusableError,
    )
    from capd.adapters.model.vector_cache import VectorCache  # noqa: PLC0415

    try:
        model = MiniLM()
    except ModelUnusableError:
        return None
    import numpy as np  # noqa: PLC0415

    file = Path(where.cache, copies.FOLDER, "vectors.bin")
    cache = VectorCache(file, MODEL.key, MODEL.dimensions)

    def compared(order: Sequence[int]) -> "npt.NDArray[np.float32]":
        texts = [text_of(summaries[at]) for at in order]
        known = cache.get(texts)
        missing = list(dict.fromkeys(each for each in texts if each not in known))
        missing = missing[:_EMBEDDED_AT_ONCE]
        vectors = model.embed([text, *missing])
        new = dict(zip(missing, vectors[1:], strict=True))
        cache.put(new)
        known |= new
        none = np.zeros(MODEL.dimensions, np.float32)
        rows = np.stack([known.get(each, none) for each in texts])
        cosines: npt.NDArray[np.float32] = rows @ vectors[0]
        return cosines

    return compared


# Resolving


async def _resolve(asked: _Resolve, where: Places) -> dict[str, Any]:
    if not is_name(asked.name):
        raise CapdError(f"{asked.name[:80]!r} is not a name of a registry: io.github.owner/server")
    if asked.version != "latest" and not is_version(asked.version):
        raise CapdError(f"{asked.version[:80]!r} is no version: 1.2.3, or none for the latest")
    fetcher = await Fetcher.opened()
    try:
        entry, written, url = await _entry(asked, where, fetcher)
        wanted: ways.Kind | None = asked.wanted or None
        try:
            found = ways.resolve(entry, _machine(), wanted)
        except EntryError as error:
            raise CapdError(f"{asked.name} {error}") from None
        package = f"{found.kind}:{found.identifier}@{found.package_version}"
        kept = ways.Artifact("")
        if asked.fetches and found.kind != "remote":
            _tell(f"fetching {found.identifier} {found.package_version}")
            package_places = PackagePlaces(
                Path(where.data, PACKAGES), npm_settings(os.environ), python_indexes(os.environ)
            )
            recorded = asked.recorded.get(package, "")
            try:
                kept = await artifact(found, package_places, fetcher, recorded)
            except PackageError as error:
                text = f"{found.identifier} {found.package_version} {error}"
                raise CapdError(f"{text}\nNothing of it was run.") from None
    finally:
        await fetcher.aclose()
    server = entry.server
    return {
        "entry": written,
        "registry": url,
        "name": server.name,
        "version": server.version,
        "title": server.title or "",
        "description": server.description or "",
        "namespace": entry.namespace,
        "repository": (server.repository.url or "") if server.repository else "",
        "status": entry.status,
        "kind": found.kind,
        "identifier": found.identifier,
        "package": package,
        "artifact": kept,
        "inputs": found.inputs,
        "others": found.others,
        "notes": found.notes,
        "short_name": short_name(server.name, asked.taken),
    }


async def _entry(asked: _Resolve, where: Places, fetcher: Fetcher) -> tuple[Entry, str, str]:
    """Return the entry of the server that `asked` names, its JSON text, and the registry's URL.

    The registry is the first one that has the server.
    """
    problems = []
    for url in _urls(where):
        try:
            entry, data = await copies.entry(url, asked.name, asked.version, fetcher)
        except FetchError as error:
            if not copies.is_absent(error):
                problems.append(str(error))
            continue
        except EntryError as error:
            raise CapdError(f"{asked.name} {error}") from None
        return entry, data.decode(), url
    if problems:
        raise CapdError(f"{asked.name} cannot be looked up: {'; '.join(problems)}")
    version = "" if asked.version == "latest" else f" {asked.version}"
    raise CapdError(
        f"{asked.name}{version} is in no registry\nLook for it: capd find"
        f" {asked.name.partition('/')[2]}"
    )


def _machine() -> ways.InstalledLaunchers:
    path = os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), uvx_folder())))
    programs = {program for each in ways.LAUNCHERS.values() for program in each}
    return ways.InstalledLaunchers(
        frozenset(each for each in programs if shutil.which(each, path=path))
    )


async def _launch(asked: _Launch) -> dict[str, Any]:
    try:
        entry = read_entry(asked.entry.encode())
        found = ways.resolve(entry, _machine(), asked.wanted)
        made = ways.launch(found, asked.artifact, asked.answers)
    except EntryError as error:
        raise CapdError(f"it {error}") from None
    return msgspec.to_builtins(made)  # type: ignore[no-any-return]  # a dataclass is an object


# Inspecting


async def _inspect(asked: _Inspect, where: Places) -> dict[str, Any]:
    server = _server(asked.name, asked.files)
    redact = redactor(asked.values.get(key, "") for key in wanted_keys(server))
    lists = ToolLists(Path(where.cache, "tools"))
    taps = await trio.to_thread.run_sync(_taps, where)
    try:
        found = await listing.listed(
            server,
            partial(_opened, server, asked.values, where),
            listing.sandboxes_to_try(server, is_image=asked.is_image),
            redact,
            _tell,
        )
    except listing.NotListedError as error:
        return {
            "listed": False,
            "needs_person": error.needs_person,
            "reason": str(error),
            "stderr": error.stderr,
        }
    await lists.keep(server_identity(server), server.name, found.server_version, found.tools)
    tools = [(each.name, _description(each)) for each in found.tools]
    triggers = proposed_triggers(asked.name, asked.title, asked.description, tools)
    catalog = {
        f"{tap.name}/{each.id.name}": [*each.triggers, *each.extra_triggers]
        for tap in taps
        for each in tap.capabilities
        if (tap.name, each.id.name) != (_OWN, asked.name)
    }
    return {
        "listed": True,
        "sandbox": found.sandbox,
        "server_version": found.server_version,
        "tools": [
            {"name": name, "description": text[:600], "tokens": _tokens(each.json)}
            for each, (name, text) in zip(found.tools, tools, strict=True)
        ],
        "findings": await _findings(server.name, found.tools, taps, lists),
        "triggers": triggers,
        "collisions": [
            {"phrase": phrase, "theirs": theirs, "capability": name}
            for phrase, theirs, name in collisions(triggers, catalog)
        ],
        "changes": await _changes(asked, found.tools, lists, where) if asked.previous else [],
    }


async def _triggers(asked: _Triggers, where: Places) -> dict[str, Any]:
    lists = ToolLists(Path(where.cache, "tools"))
    taps = await trio.to_thread.run_sync(_taps, where)
    servers: dict[str, Any] = {}
    for name, files in asked.servers.items():
        try:
            server = _server(name, files)
        except CapdError:
            # Skipped here; writing the definition reports what is wrong with it.
            continue
        kept = await lists.load(server_identity(server))
        tools, source = (kept.tools, "") if kept is not None else _of_taps(server, taps)
        if tools:
            texts = [(str(each.name), _description(each)) for each in tools]
            servers[name] = {"triggers": proposed_triggers(name, "", "", texts), "source": source}
    return {"servers": servers}


def _of_taps(server: ServerSpec, taps: Sequence[Tap]) -> tuple[Sequence[ToolDefinition], str]:
    """Return the tools that a tap records for this server or its package, with the tap's name.

    The first tap that has such a record counts. Without one, both are empty.
    """
    package = package_of(server.command, server.args)
    for tap in taps:
        for each in (known for spec in tap.capabilities for known in spec.servers):
            identity = server_identity(each)
            is_same = identity == server_identity(server) or (
                package != "" and package_of(each.command, each.args) == package
            )
            if is_same and (tools := tap.tool_lists.get(identity)):
                return tools, tap.name
    return (), ""


def _server(name: str, files: Mapping[str, str]) -> ServerSpec:
    read = read_capability(_OWN, CapabilityFiles(CapabilityName(name), name, files))
    if read.capability is None or not read.capability.servers:
        raise CapdError(f"{name}: its definition is not usable: {read.reason or 'no server'}")
    return read.capability.servers[0]


def _opened(
    server: ServerSpec, values: Mapping[str, str], where: Places, rules: SandboxRules
) -> AbstractAsyncContextManager[ServerEnd]:
    cwd = Path(where.state, "shared")
    make_folders(cwd)
    environment = listing.offline(os.environ, rules.servers["*"])
    settings = SupervisorSettings(
        linger=0,
        shared_cwd=cwd,
        environment=environment,
        extra_path=uvx_folder(),
        version="",
        sandboxes=Sandboxes(
            rules,
            tuple(Path(each) for each in (where.config, where.state, where.cache, where.run)),
            Path(where.cache, "sandbox"),
            folders=own_folders(where, environment),
        ),
    )
    starts = Starts(settings, Logins(Path(where.state, "logins")))
    return starts.opened(server, values, "")


def _taps(where: Places) -> list[Tap]:
    found = []
    try:
        listed = tap_places(Path(where.config, "taps.toml"))
    except TapUnreadableError:
        return []
    for place in listed:
        try:
            found.append(read_tap(place))
        except TapUnreadableError:
            continue
    return found


async def _findings(
    name: ServerName, tools: Sequence[ToolDefinition], taps: Sequence[Tap], lists: ToolLists
) -> list[dict[str, str]]:
    known = {
        server_identity(server): server.name
        for tap in taps
        for each in tap.capabilities
        for server in each.servers
        if server.transport != "builtin"
    }
    kept = await lists.load_all(sorted(known))
    others: dict[ServerName, list[ToolName]] = {}
    for identity, each in kept.items():
        others.setdefault(known[identity], []).extend(tool.name for tool in each.tools)
    definitions = {each.name: each.json for each in tools}
    own = tuple(str(each.name) for each in OWN_TOOLS)
    found = []
    for tool, definition in definitions.items():
        try:
            found += flags(tool, definition)
        except MalformedError:
            continue
    found += flags_among(name, definitions, others, own)
    return [
        {"tool": each.tool, "code": each.code, "seen": each.seen, "source": SOURCES[each.code]}
        for each in found
    ]


async def _changes(
    asked: _Inspect, tools: Sequence[ToolDefinition], lists: ToolLists, where: Places
) -> list[dict[str, str]]:
    """Return how `tools` differ from the definitions in the installed version of the server.

    There is one entry for each tool that was added, changed or removed. If the earlier definitions
    are not known, the only entry has the kind `unknown`.
    """
    identity = server_identity(_server(asked.name, asked.previous))
    before = await _known_before(identity, lists, where)
    if before is None:
        return [{"tool": "", "kind": "unknown", "difference": ""}]
    after = {each.name: canonical(each.json) for each in tools}
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, b""), after.get(name, b"")
        if old != new:
            kind = "changed" if old and new else "added" if new else "removed"
            text = difference(old, new, named=name) if kind == "changed" else ""
            found.append({"tool": name, "kind": kind, "difference": text[:_MOST_DIFFERENCE]})
    return found


async def _known_before(
    identity: ServerIdentity, lists: ToolLists, where: Places
) -> dict[ToolName, bytes] | None:
    kept = await lists.load(identity)
    if kept is not None:
        return {each.name: canonical(each.json) for each in kept.tools}
    # The cache may have been deleted; trusted definitions are in the state folder.
    trusted = (await DefinitionFiles(Path(where.state, "definitions")).load(identity)).baseline
    if trusted is None or not trusted.known:
        return None
    return {name: each.text for name, each in trusted.known.items() if each.text}


def _description(tool: ToolDefinition) -> str:
    try:
        read = msgspec.json.decode(tool.json)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    text = read.get("description") if isinstance(read, dict) else ""
    return text if isinstance(text, str) else ""


def _tokens(definition: bytes) -> int:
    try:
        return count(definition)
    except VocabularyError:
        return len(definition) // 4


def _urls(where: Places) -> list[str]:
    configuration, problems = load_configuration(Path(where.config, "config.toml"), os.environ)
    for problem in problems:
        _tell(problem)
    urls = [each.rstrip("/").removesuffix("/v0.1") for each in configuration.registry.urls]
    wrong = [each for each in urls if not each.startswith(("https://", "http://"))]
    if wrong or not urls:
        said = f"{wrong[0][:80]!r} is not a URL" if wrong else "there is none"
        raise CapdError(f"[registry] urls: {said}\nWrite https://registry.modelcontextprotocol.io")
    return list(dict.fromkeys(urls))
