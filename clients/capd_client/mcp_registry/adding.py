"""`capd add io.github.owner/server`: turns a name in a registry into a capability of the user's.

    resolve ──> inputs ──> definition ──> listed in a sandbox ──> triggers ──> written
       │           │             │                │                   │
       v           v             v                v                   v
    deleted,    missing     a bad value     it does not start    refused           nothing is added

Nothing of the package runs before its digest is checked, and nothing is written before the end.
"""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from capd_client import tables
from capd_client.importing.stores import KnownValues, SecretStore
from capd_client.mcp_registry import report
from capd_client.mcp_registry.inputs import Answers, ask_inputs, given_values
from capd_client.mcp_registry.process import RegistryError, ask
from capd_client.mcp_registry.record import FILE, SourceRecord, read_record
from capd_client.own_tap import OwnServer, OwnTap, check, definition
from capd_client.stored_secrets import SecretError
from capd_client.taps import TapError

_LONGEST_DESCRIPTION = 300


@dataclass(frozen=True, slots=True)
class AddOptions:
    """The arguments of `capd add` for a server of a registry."""

    name: str
    """`namespace/server`, optionally with `@version`."""
    own_name: str = ""
    kind: str = ""
    given: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    scope: str = ""
    is_agreed: bool = False
    is_unlisted: bool = False
    secrets_in_file: bool = False


class NotAgreedError(Exception):
    """The user refused to start or to add the server."""


def add(options: AddOptions, config: str) -> str:
    """Add the server that `options` name; return the name that it gets here.

    `config` is the user's configuration folder.

    Raises:
        RegistryError, TapError, SecretError, OSError: it cannot be added; nothing was added.
        NotAgreedError: the user refused; nothing was added.
    """
    is_asked = not options.is_agreed
    if is_asked and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RegistryError("nothing was added: there is nobody to ask\nGive --yes.")
    tap = OwnTap(config)
    given = given_values(options.given)
    full_name, _, version = options.name.partition("@")
    entry = resolve_entry(full_name, version or "latest", options.kind, tap)
    for line in report.entry_lines(entry):
        tables.say(line)
    name = options.own_name or str(entry["short_name"])
    check(OwnServer(name, ["true"]))
    if tap.place(name).exists():
        raise TapError(f"{name} exists already\nGive this one another name with --as NAME.")
    known = KnownValues(os.environ, config)
    answers = ask_inputs(entry.get("inputs") or [], given, name, known, is_asked=is_asked)
    if answers.missing:
        raise RegistryError(_missing(answers, entry))
    server = own_server(name, entry, answers.values, options.triggers, options.scope)
    server = replace(server, env={**server.env, **(options.env or {})})
    tables.say(report.start_line(server.command, server.url))
    if is_asked and not click.confirm("Start it once, in a sandbox, to list its tools?"):
        raise NotAgreedError
    values = {**_referenced(server, known), **answers.secrets}
    found = inspect_server(server, entry, values)
    triggers = list(options.triggers)
    if found.get("listed"):
        for line in report.inspection_lines(found):
            tables.say(line)
        triggers = triggers or [str(each) for each in found.get("triggers") or ()]
    else:
        _say_unlisted(found, name, is_allowed=options.is_unlisted)
    triggers = _agreed(triggers, is_asked=is_asked)
    server = replace(server, triggers=triggers)
    record = record_of(entry, answers.values)
    store = SecretStore(config, in_file=options.secrets_in_file)
    _write(tap, server, record, answers.secrets, store)
    for key in answers.secrets:
        tables.say(f"{key}: kept in {store}")
    return name


def resolve_entry(
    name: str, version: str, kind: str, tap: OwnTap, *, fetches: bool = True
) -> dict[str, Any]:
    """Return the entry of the server `name` in a registry, with the package that will run.

    `version` is an exact one, or `latest`. `kind` is the wanted kind of package, or empty. `tap`
    has the names that are taken, and the digests of packages that were added earlier. With
    `fetches`, the package is downloaded and checked.

    Raises:
        RegistryError: there is no such entry, or its package cannot be used here.
    """
    records = [record for each in tap.names() if (record := read_record(tap.place(each)))]
    document = {
        "name": name,
        "version": version,
        "wanted": kind,
        "recorded": {each.package: each.integrity for each in records if each.integrity},
        "taken": tap.names(),
        "fetches": fetches,
    }
    return ask("resolve", document, what=f"looking {name} up")


def own_server(
    name: str,
    entry: Mapping[str, Any],
    answers: Mapping[str, Sequence[str]],
    triggers: Sequence[str] = (),
    scope: str = "",
) -> OwnServer:
    """Return the server `name` that a registry's `entry` becomes with these answers to its inputs.

    `triggers` and `scope` are put into its definition.

    Raises:
        RegistryError: an answer is not valid.
    """
    document = {
        "entry": entry["entry"],
        "wanted": entry["kind"],
        "artifact": entry["artifact"],
        "answers": {key: list(values) for key, values in answers.items()},
    }
    made = ask("launch", document, what="reading its definition")
    return OwnServer(
        name,
        list(made["command"]),
        str(made["url"]),
        dict(made["env"]),
        dict(made["headers"]),
        list(triggers),
        scope,
        " ".join(str(entry.get("description") or "").split())[:_LONGEST_DESCRIPTION],
    )


def inspect_server(
    server: OwnServer,
    entry: Mapping[str, Any],
    values: Mapping[str, str],
    *,
    files: Mapping[str, str] | None = None,
    previous: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Start the server in a sandbox, and return what it lists.

    `entry` is the server's entry in the registry. `values` are the values of the keys in its
    definition, and `files` the definition's texts, which by default are made from `server`.
    `previous` are the definition's earlier texts, to compare with. If the server lists no tools,
    `reason` in the result says why.

    Raises:
        RegistryError: the server could not be tried.
    """
    document = {
        "name": server.name,
        "files": dict(files or definition(server)),
        "values": dict(values),
        "previous": dict(previous or {}),
        "title": entry.get("title") or "",
        "description": entry.get("description") or "",
        "is_image": entry["kind"] == "oci",
    }
    return ask("inspect", document, what=f"starting {server.name} in a sandbox")


def record_of(entry: Mapping[str, Any], answers: Mapping[str, Sequence[str]]) -> SourceRecord:
    """Return the record of where a server came from, which is saved beside its definition.

    `entry` is the server's entry in the registry, `answers` are the answers to the entry's inputs.
    """
    return SourceRecord(
        str(entry["name"]),
        str(entry["version"]),
        str(entry["registry"]),
        str(entry["kind"]),
        str(entry["package"]),
        str(entry["artifact"]["integrity"]),
        {key: list(values) for key, values in answers.items()},
    )


def referenced(texts: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the values of those keys that a definition's `texts` refer to.

    `known` has the values of all keys.
    """
    found = re.findall(r"\{\{(?:ENV|INPUT):([A-Za-z_][A-Za-z0-9_]*)\}\}", "\n".join(texts))
    return {key: value for key in found if (value := known.get(key))}


def _referenced(server: OwnServer, known: Mapping[str, str]) -> dict[str, str]:
    values = [*server.env.values(), *server.headers.values()]
    return referenced([*server.command, server.url, *values], known)


def _missing(answers: Answers, entry: Mapping[str, Any]) -> str:
    kinds = {str(each["name"]): each for each in entry.get("inputs") or ()}
    lines = [f"nothing was added: {entry['name']} needs {', '.join(answers.missing)}"]
    for name in answers.missing:
        more = " (or @KEY for a stored secret)" if kinds[name].get("is_secret") else ""
        lines.append(f"Give --set {name}=VALUE{more}")
    return "\n".join(lines)


def _say_unlisted(found: Mapping[str, Any], name: str, *, is_allowed: bool) -> None:
    if found.get("needs_person"):
        tables.say(f"its tools are not known yet: {found['reason']}")
        tables.say(f"When it is added, log in: capd login {name}")
        return
    stderr = "".join(f"\n  {line}" for line in found.get("stderr") or ())
    if not is_allowed:
        raise RegistryError(
            f"nothing was added: it does not list its tools: {found.get('reason')}{stderr}\n"
            "Repair what it says, or add it without its tools: --unlisted"
        )
    tables.say(f"its tools are not known: {found.get('reason')}")


def _agreed(triggers: list[str], *, is_asked: bool) -> list[str]:
    """Return `triggers` as the person has accepted or edited them.

    If `is_asked` is False, they are returned unchanged.

    Raises:
        NotAgreedError: the person refused.
    """
    for each in triggers:
        tables.say(f"trigger: {each}")
    if not is_asked:
        return triggers
    answer = click.prompt(
        "Add it with these triggers? y(es), e(dit), n(o)",
        type=click.Choice(["y", "e", "n"]),
        default="y",
        show_choices=False,
    )
    if answer == "n":
        raise NotAgreedError
    if answer == "e":
        edited = click.edit("\n".join(triggers) + "\n")
        lines = (edited or "\n".join(triggers)).splitlines()
        return [line.strip() for line in lines if line.strip()]
    return triggers


def _write(
    tap: OwnTap,
    server: OwnServer,
    record: SourceRecord,
    secrets: Mapping[str, str],
    store: SecretStore,
) -> None:
    """Save `secrets` in `store`, then the definition of `server` and its `record` in `tap`.

    If a step fails, the earlier ones are undone.
    """
    undo: list[Callable[[], object]] = []
    try:
        for key, value in secrets.items():
            store.keep(key, value)
            undo.append(lambda key=key: store.remove(key))  # type: ignore[misc]  # bound
        tap.add(server, {FILE: record.text()})
    except BaseException:
        for step in reversed(undo):
            with contextlib.suppress(SecretError, OSError):
                step()
        raise
