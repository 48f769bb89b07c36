"""The format of a tap's files: parses capabilities, and reports findings.

A capability is a folder with `config.toml` (triggers, domains) and one or more provider files, each
of which defines servers. `default.toml` is the provider that is used: it is a provider file itself,
a link to one, or a file that contains only the name of another one. git writes links in this last
form where it has no symlinks. Parts that are not valid are left out and reported; the rest stays
usable (docs/design/catalog.md).
"""

import re
from collections.abc import (
    Iterable,
    Mapping,
)
from dataclasses import dataclass
from typing import (
    Any,
    Literal,
    get_args,
)

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd.core.servers.containers import wrong_with_container
from capd.core.servers.kubernetes import is_place
from capd.core.servers.kubernetes import place as kubernetes_place
from capd.core.servers.placeholders import keys_in_args, wanted_keys
from capd.core.servers.sandbox_rules import declared_level
from capd.core.servers.scopes import default_scope, is_scope_fixed
from capd.core.taps.edit_tables import KEY as EDITS
from capd.core.taps.edit_tables import tool_edits
from capd.core.taps.package_pins import unpinned_package
from capd.core.taps.toml_folder import TomlFolder
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    ContainerMount,
    ContainerSpec,
    Finding,
    OAuthClient,
    Scope,
    ServerName,
    ServerSpec,
    TapName,
    Where,
)

NO_CONFIG = "no config.toml"
FROM_TOOLS = "triggers_from_tools"
FEWEST_TRIGGERS = 3
MOST_SERVERS = 32
"""The most servers of one capability."""
_LONGEST_TITLE = 200
_LONGEST_DESCRIPTION = 2000

_CONFIG_KEYS = frozenset({"triggers", "domains", "files", FROM_TOOLS})
_PROVIDER_KEYS = {
    "": frozenset({"deps", "roles", "mcp", EDITS}),
    "deps": frozenset({"require"}),
    "roles": frozenset({"mcp"}),
    "roles.mcp": frozenset({"server_refs", "allowed_tools"}),
    "mcp": frozenset({"servers"}),
}
_SCOPES: Mapping[str, Scope] = {each: each for each in get_args(Scope)}
_TRANSPORTS = {"stdio": "stdio", "stdin": "stdio", "http": "http", "builtin": "builtin"}
_NO_TOOL = ("",)
_MOST_URLS = 8
_OF_CONTAINERS = frozenset({"image", "network", "mount", "memory_mib", "cpus"})
_SERVER_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SCRIPT_NAME = lazy_pattern(r"[\w.-]+/[\w.-]+")
_KEY = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_BLOCK = lazy_pattern(r"\s*\[\[\s*mcp\s*\.\s*servers\s*\]\]")
_POINTER = lazy_pattern(r"[A-Za-z0-9._-]+\.toml")
_HEADER = lazy_pattern(r"^#[ \t]*(Title|Description):(.*)$", re.MULTILINE)


class _OAuthBlock(msgspec.Struct):
    """The table `oauth` of a server in a provider file, with the types of its keys."""

    client_id: str
    client_secret_key: str = ""
    redirect_port: int = 0


class _ServerBlock(msgspec.Struct):
    """An `[[mcp.servers]]` table of a provider file, with the types of its keys."""

    name: str
    type: str = ""
    command: str = ""
    args: list[str] = []
    url: str = ""
    headers: dict[str, str] = {}
    env: dict[str, str] = {}
    timeout_seconds: float | None = None
    tools: list[str] = []
    auto_bind: list[str] = []
    scope: str = ""
    lazy: bool = True
    sandbox: str = ""
    description: str = ""
    oauth: _OAuthBlock | None = None
    runtime: Literal["host", "container"] = "host"
    image: str = ""
    network: bool = False
    mount: ContainerMount = "read"
    memory_mib: int = 1024
    cpus: float = 2.0
    where: Where = "host"
    kubernetes: str = ""
    urls: list[str] = []


@dataclass(frozen=True, slots=True)
class CapabilityFiles:
    """The files of a capability's folder: their texts by name."""

    name: CapabilityName
    path: str
    """The path for a person, used in findings."""
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CapabilityRead:
    """The result of reading a capability's folder: the capability, or why there is none."""

    name: CapabilityName
    capability: CapabilitySpec | None
    reason: str
    findings: tuple[Finding, ...]
    is_binding: bool = False
    """Whether the user chose a provider of this folder. Then no capability of another tap takes the
    place of this one, even if it cannot be used."""


def read_capability(tap: TapName, files: CapabilityFiles, provider: str = "") -> CapabilityRead:
    """Return the capability of a folder, or why there is none.

    `provider` is the name of the provider that the user chose; empty for the default.
    """
    folder = TomlFolder(files.path, files.texts)

    def unusable(reason: str) -> CapabilityRead:
        return CapabilityRead(files.name, None, reason, tuple(folder.findings), bool(provider))

    if "config.toml" not in files.texts:
        return unusable(NO_CONFIG)
    config = folder.parsed("config.toml")
    if config is None:
        return unusable(folder.findings[-1].reason)
    triggers = _triggers(config, folder)
    if not triggers:
        folder.add("config.toml", "no triggers: 5 to 15 phrases in a user's words", near="triggers")
        return unusable("no triggers")
    domains = folder.strings(config.get("domains", []), "config.toml", "domains")
    _report_unknown(config, _CONFIG_KEYS, "config.toml", "", folder)

    file = _provider_file(files, provider)
    if file is None:
        wanted = f"{provider}.toml" if provider else "default.toml"
        where = f": taps.toml asks for it, and tap {tap} lacks it" if provider else ""
        folder.add("config.toml", f"no provider file {wanted}{where}")
        return unusable(f"no {wanted}{where}")
    body = folder.parsed(file)
    if body is None:
        return unusable(folder.findings[-1].reason)
    for path, known in _PROVIDER_KEYS.items():
        if _is_no_table(body, path):
            key = path.rpartition(".")[2]
            folder.add(file, f"`{path}` is not a table, and is passed over", near=key)
        _report_unknown(_table(body, path), known, file, f"{path}: " if path else "", folder)
    servers = _with_edits(_servers(tap, body, file, folder), body, file, folder)
    headers = {key: said.strip() for key, said in _HEADER.findall(files.texts[file])}
    capability = CapabilitySpec(
        id=CapabilityId(tap, files.name),
        provider=file.removesuffix(".toml"),
        title=headers.get("Title", "")[:_LONGEST_TITLE],
        description=headers.get("Description", "")[:_LONGEST_DESCRIPTION],
        triggers=triggers,
        domains=domains,
        files=folder.strings(config.get("files", []), "config.toml", "files"),
        servers=servers,
        allowed_tools=_allowed_tools(body, file, folder),
        requires=_requires(body, file, folder),
        wanted_keys=tuple(dict.fromkeys(key for s in servers for key in wanted_keys(s))),
        triggers_from_tools=_is_true(config, FROM_TOOLS, folder),
    )
    return CapabilityRead(files.name, capability, "", tuple(folder.findings))


def provider_names(files: CapabilityFiles) -> list[str]:
    """Return the names of a capability's providers, without files that only name another file."""
    names = []
    for file, text in files.texts.items():
        if file not in {"config.toml", "default.toml"} and not _POINTER.fullmatch(text.strip()):
            names.append(file.removesuffix(".toml"))
    return names if "config.toml" in files.texts else []


def _provider_file(files: CapabilityFiles, provider: str) -> str | None:
    file = f"{provider}.toml" if provider else "default.toml"
    for _ in range(3):
        text = files.texts.get(file)
        if text is None:
            return None
        if not _POINTER.fullmatch(text.strip()):
            return file
        file = text.strip()
    return None


def _triggers(config: Mapping[str, Any], folder: TomlFolder) -> tuple[str, ...]:
    kept = folder.phrases(config, "config.toml")
    if 0 < len(kept) < FEWEST_TRIGGERS:
        folder.add(
            "config.toml",
            f"only {len(kept)} triggers: fewer than {FEWEST_TRIGGERS} route badly",
            near="triggers",
            severity="warning",
        )
    return kept


def _is_true(config: Mapping[str, Any], key: str, folder: TomlFolder) -> bool:
    value = config.get(key, False)
    if not isinstance(value, bool):
        folder.add("config.toml", f"`{key}` is neither true nor false", near=key)
    return value is True


def _servers(
    tap: TapName, body: Mapping[str, Any], file: str, folder: TomlFolder
) -> tuple[ServerSpec, ...]:
    blocks = _table(body, "mcp").get("servers", [])
    if not isinstance(blocks, list):
        folder.add(file, "`mcp.servers` is not a list of tables", near="servers")
        blocks = []
    if len(blocks) > MOST_SERVERS:
        reason = f"{len(blocks)} servers: those after the first {MOST_SERVERS} are left out"
        folder.add(file, reason, near="servers")
        blocks = blocks[:MOST_SERVERS]
    found: dict[str, ServerSpec] = {}
    for at, block in enumerate(blocks):
        server = _server(tap, block, file, folder, at)
        if server is not None and found.setdefault(server.name, server) is not server:
            folder.add(file, f"server {server.name!r} is defined twice; the first one counts")
    refs = _table(body, "roles.mcp").get("server_refs")
    if refs is None:
        return tuple(found.values())
    wanted = folder.strings(refs, file, "server_refs")
    for ref in wanted:
        if ref not in found:
            folder.add(file, f"server_refs names {ref!r}, which no usable block defines", near=ref)
    return tuple(found[ref] for ref in wanted if ref in found)


def _with_edits(
    servers: tuple[ServerSpec, ...], body: Mapping[str, Any], file: str, folder: TomlFolder
) -> tuple[ServerSpec, ...]:
    """Return servers with the edits of their tools that the same file has."""
    edits = tool_edits(body, file, folder)
    names = {server.name for server in servers}
    for edit in edits:
        if edit.server not in names:
            reason = f'{EDITS}."{edit.server}:{edit.tool}": there is no server {edit.server!r} here'
            folder.add(file, reason, near=f"{edit.server}:{edit.tool}")
    return tuple(
        msgspec.structs.replace(server, edits=tuple(e for e in edits if e.server == server.name))
        for server in servers
    )


def _server(tap: TapName, block: Any, file: str, folder: TomlFolder, at: int) -> ServerSpec | None:
    name = block.get("name", "?") if isinstance(block, dict) else "?"

    def dropped(why: str) -> None:
        # `server_refs` may name it on an earlier line.
        names = (f'name = "{name}"', f'"{name}"')
        near = next((text for text in names if text in folder.texts[file]), "")
        line = 0 if near else _block_line(folder.texts[file], at)
        folder.add(file, f"server {name!r} left out: {why}", near=near, line=line)

    try:
        parsed = msgspec.convert(block, _ServerBlock)
    except msgspec.ValidationError as error:
        dropped(str(error))
        return None
    if parsed.urls and not parsed.url:
        parsed.url, *parsed.urls = parsed.urls
    elif parsed.urls:
        dropped("`urls` takes the place of `url`: give the usual address first")
        return None
    is_remote = parsed.url or parsed.kubernetes
    transport = _TRANSPORTS.get(parsed.type or ("http" if is_remote else "stdio"))
    why = (
        _wrong_with(parsed, transport)
        or _wrong_with_urls(parsed, transport)
        or _wrong_with_kubernetes(parsed, transport)
    )
    if why or transport is None:
        dropped(why)
        return None
    _report_unknown(block, frozenset(_ServerBlock.__struct_fields__), file, f"{name}: ", folder)
    known = frozenset(_OAuthBlock.__struct_fields__)
    _report_unknown(block.get("oauth", {}), known, file, f"{name}: oauth: ", folder)
    server = ServerSpec(
        name=ServerName(parsed.name),
        transport=transport,
        tap=tap,
        command=parsed.command,
        args=tuple(parsed.args),
        url=kubernetes_place(parsed.kubernetes).url if parsed.kubernetes else parsed.url,
        env=parsed.env,
        headers=parsed.headers,
        timeout=parsed.timeout_seconds,
        tools=tuple(parsed.tools),
        scope=_SCOPES.get(parsed.scope) or default_scope(parsed.command, parsed.args, transport),
        lazy=parsed.lazy,
        description=parsed.description,
        oauth=_oauth_client(parsed.oauth),
        sandbox=parsed.sandbox if transport == "stdio" and parsed.runtime == "host" else "",
        is_scope_fixed=bool(parsed.scope) or is_scope_fixed(parsed.command, parsed.args, transport),
        container=_container(parsed),
        where=parsed.where,
        further_urls=tuple(parsed.urls),
    )
    if why := wrong_with_container(server):
        dropped(why)
        return None
    for key in sorted(_OF_CONTAINERS & block.keys() if server.container is None else ()):
        why = f'server {name!r}: `{key}` is for `runtime = "container"`, and does nothing'
        folder.add(file, why, near=key, severity="warning")
    if parsed.sandbox and not server.sandbox:
        why = f"server {name!r}: `sandbox` is for a server with a `command`, and confines nothing"
        folder.add(file, why, near="sandbox", severity="warning")
    for key in keys_in_args(server):
        why = f"server {name!r}: the value of {key} goes into args, which the process list shows"
        folder.add(file, why, near=key, severity="warning")
    if package := unpinned_package(server):
        why = f"server {name!r}: {package} has no exact version, so each start may run other code"
        # A comment may name it on an earlier line.
        quoted = f'"{package}"'
        near = quoted if quoted in folder.texts[file] else package
        folder.add(file, why, near=near, severity="warning")
    return server


def _block_line(text: str, at: int) -> int:
    """Return the line of `[[mcp.servers]]` for the server with index `at`; 0 if not found."""
    heads = [n for n, line in enumerate(text.splitlines(), 1) if _BLOCK.match(line)]
    return heads[at] if at < len(heads) else 0


def _container(block: _ServerBlock) -> ContainerSpec | None:
    if block.runtime != "container":
        return None
    return ContainerSpec(block.image, block.network, block.mount, block.memory_mib, block.cpus)


def _oauth_client(block: _OAuthBlock | None) -> OAuthClient | None:
    if block is None:
        return None
    key = block.client_secret_key
    return OAuthClient(block.client_id, f"{{{{ENV:{key}}}}}" if key else "", block.redirect_port)


def _wrong_with_oauth(block: _OAuthBlock, transport: str | None) -> str:
    if transport != "http":
        return "`oauth` is for a server with a `url`"
    if not block.client_id.strip():
        return "`oauth.client_id` is empty"
    if block.client_secret_key and not _KEY.fullmatch(block.client_secret_key):
        return (
            "`oauth.client_secret_key` is the name of a key, such as LINEAR_SECRET, not the secret"
        )
    if block.redirect_port and not 1024 <= block.redirect_port <= 65535:  # noqa: PLR2004
        return "`oauth.redirect_port` is not within 1024 to 65535"
    return ""


def _wrong_with(block: _ServerBlock, transport: str | None) -> str:
    if not _SERVER_NAME.fullmatch(block.name) or "__" in block.name:
        return "a name is letters, digits, `_`, `.`, `-`, without `__`"
    if transport is None:
        return f"type {block.type!r} is none of stdio, http, builtin"
    if transport == "stdio" and not block.command and block.runtime != "container":
        return "a stdio server needs `command`"
    if transport == "http" and not block.url and not block.kubernetes:
        return "an http server needs `url` or `kubernetes`"
    if block.where == "project" and transport != "stdio":
        return '`where = "project"` is for a server with a `command`'
    if block.where == "project" and block.runtime == "container":
        return '`where = "project"` is for `runtime = "host"`: a container runs on this machine'
    if block.scope and block.scope not in _SCOPES:
        return f"scope {block.scope!r} is none of shared, project, session"
    if block.timeout_seconds is not None and not 1 <= block.timeout_seconds <= 3600:  # noqa: PLR2004
        return "`timeout_seconds` is not within 1 to 3600"
    try:
        declared_level(block.sandbox)
    except ValueError as error:
        return str(error)
    return _wrong_with_oauth(block.oauth, transport) if block.oauth is not None else ""


def _wrong_with_urls(block: _ServerBlock, transport: str | None) -> str:
    if len({block.url, *block.urls}) <= len(block.urls):
        return "`urls` has an address twice"
    if len(block.urls) >= _MOST_URLS:
        return f"`urls` has more than {_MOST_URLS} addresses"
    if block.urls and transport != "http":
        return "`urls` is for a server without a `command`"
    return ""


def _wrong_with_kubernetes(block: _ServerBlock, transport: str | None) -> str:
    if not block.kubernetes:
        urls = (block.url, *block.urls)
        return "`url` is for http:// and https://" if any(map(is_place, urls)) else ""
    if transport != "http" or block.url or block.command:
        return "`kubernetes` takes the place of `url` and `command`"
    if block.oauth is not None:
        return "`oauth` is for a server with a `url`: kubectl logs in to the cluster"
    try:
        kubernetes_place(block.kubernetes)
    except ValueError as error:
        return str(error)
    return ""


def _table(body: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the table at a dotted `path`, empty if there is none."""
    table: Any = body
    for key in path.split(".") if path else ():
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _is_no_table(body: Mapping[str, Any], path: str) -> bool:
    """Tell whether the value at a dotted `path` exists and is not a table."""
    above, _, key = path.rpartition(".")
    found = _table(body, above).get(key, {})
    return not isinstance(found, dict)


def _allowed_tools(
    body: Mapping[str, Any], file: str, folder: TomlFolder
) -> tuple[str, ...] | None:
    if _is_no_table(body, "roles") or _is_no_table(body, "roles.mcp"):
        return _NO_TOOL
    allowed = _table(body, "roles.mcp").get("allowed_tools")
    if allowed is None:
        return None
    patterns = folder.strings(allowed, file, "allowed_tools")
    # An unreadable filter keeps nothing, whereas an empty one would keep everything.
    return patterns if patterns or allowed == [] else _NO_TOOL


def _requires(body: Mapping[str, Any], file: str, folder: TomlFolder) -> tuple[str, ...]:
    scripts = folder.strings(_table(body, "deps").get("require", []), file, "require")
    for script in scripts:
        if not _SCRIPT_NAME.fullmatch(script):
            folder.add(file, f"dependency {script!r} is not `org/tool`: left out", near=script)
    return tuple(script for script in scripts if _SCRIPT_NAME.fullmatch(script))


def _report_unknown(
    table: Mapping[str, Any], known: frozenset[str], file: str, where: str, folder: TomlFolder
) -> None:
    for key in _unknown(table, known):
        folder.add(file, f"{where}unknown key `{key}` is kept", near=key, severity="warning")


def _unknown(table: Mapping[str, Any], known: frozenset[str]) -> Iterable[str]:
    return (key for key in table if key not in known)
