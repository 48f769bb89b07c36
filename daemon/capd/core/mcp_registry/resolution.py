"""Turns a registry's entry into a way to start the server, and into a command line.

    resolve(entry, machine)            -> Resolution: package or remote, templates, inputs
    launch(resolution, artifact, values) -> Launch: command, arguments, environment, URL, headers

Both are pure. An entry may have several packages and remotes. The first that works on this machine
is chosen, in the order npm, PyPI, container image, remote. No shell is used, and no text of a
publisher can become an option of the launcher: identifiers and versions are checked by their
grammar, and launcher options must be on the list of permitted ones.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from capd.core.lazy_patterns import lazy_pattern
from capd.core.mcp_registry.server_json import (
    Argument,
    Entry,
    EntryError,
    Input,
    KeyValue,
    Package,
    Transport,
)
from capd.core.mcp_registry.templates import (
    Slot,
    Template,
    filled,
    filled_url,
    literal,
    plain,
    slots,
    template,
)
from capd.core.servers.launchers import LOADING_VARIABLES

Kind = Literal["npm", "pypi", "oci", "remote"]
Where = Literal["environment", "header", "argument", "url"]
LAUNCHERS: Mapping[Kind, tuple[str, ...]] = {
    "npm": ("npx",),
    "pypi": ("uvx",),
    "oci": ("docker", "podman"),
    "remote": (),
}
"""The programs that start each kind of package; the first that is installed is used."""
_ORDER: tuple[Kind, ...] = ("npm", "pypi", "oci", "remote")
_INSTALL = {
    "npx": "install Node.js",
    "uvx": "pip install 'capd[uv]'",
    "docker": "install Docker or Podman",
}
_KINDS: Mapping[str, Kind] = {"npm": "npm", "pypi": "pypi", "oci": "oci", "docker": "oci"}
"""The kind for each `registryType` of an entry."""
_UNSUPPORTED = {
    "nuget": "a .NET tool, of which no digest is checked before it runs; with .NET 10 installed:"
    " capd add NAME -- dnx ID@VERSION --yes",
    "mcpb": "a bundle for desktop apps; unpack it, and add what its manifest starts:"
    " capd add NAME -- COMMAND",
    "cargo": "a crate, which has to be built; build it, then: capd add NAME -- PROGRAM",
}

_NPM_NAME = lazy_pattern(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.IGNORECASE)
_NPM_VERSION = lazy_pattern(r"\d+\.\d+\.\d+[A-Za-z0-9.+-]*")
_PYPI_NAME = lazy_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PYPI_VERSION = lazy_pattern(r"\d[A-Za-z0-9.!+]*(?:-[A-Za-z0-9.]+)*")
_IMAGE = lazy_pattern(
    r"(?:(?P<host>[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?|localhost(?::\d+)?)/)?"
    r"(?P<path>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_DOCKER_HUB = "docker.io"
_VARIABLE = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = lazy_pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET = lazy_pattern(r"(?i)token(?!s)|secret|passw|api[_-]?key|private[_-]?key|credential")
_SHA256 = lazy_pattern(r"[0-9a-f]{64}")
_NOT_SET = LOADING_VARIABLES | {"PATH", "HOME", "SHELL", "DOCKER_HOST", "DOCKER_CONFIG", "TMPDIR"}
_NOT_SET_PREFIXES = ("npm_config_", "uv_", "pip_", "capd_", "ld_", "dyld_")
_PASSED: Mapping[Kind, frozenset[str]] = {
    "npm": frozenset(),
    "pypi": frozenset({"--python", "-p", "--with"}),
    "oci": frozenset(
        {"-e", "--env", "-v", "--volume", "--mount", "--network", "--net", "-w", "--workdir"}
        | {"--add-host", "--tmpfs", "--shm-size", "-p", "--publish", "--entrypoint", "--platform"}
    ),
    "remote": frozenset(),
}
"""The options with a value that an entry may pass to its launcher."""
_FLAGS: Mapping[Kind, frozenset[str]] = {
    "npm": frozenset({"-y", "--yes"}),
    "pypi": frozenset(),
    "oci": frozenset({"-i", "--interactive", "--rm", "--init", "--read-only"}),
    "remote": frozenset(),
}
"""The options without a value that an entry may pass to its launcher."""
_OWN_FLAGS = frozenset({"-y", "--yes", "-i", "--interactive", "--rm", "run"})
"""Words that capd passes itself, and that are ignored in an entry."""
_MOUNTS = frozenset({"-v", "--volume", "--mount"})
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SPELLED = {"wheel", "python", "stdio"}
_LONGEST_VALUE = 4096
_NAME_NUMBER = 100
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class InstalledLaunchers:
    """The programs of `LAUNCHERS` that are on this machine's PATH."""

    programs: frozenset[str] = frozenset()

    def launcher(self, kind: Kind) -> str:
        """Return the program that starts packages of this kind; empty if it is not installed."""
        return next((each for each in LAUNCHERS[kind] if each in self.programs), "")


@dataclass(frozen=True, slots=True)
class InputQuestion:
    """A value that a person may be asked for, such as an API key, as an entry describes it."""

    name: str
    where: Where
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    is_repeated: bool = False
    """Whether a person may give several values."""
    format: str = "string"
    """The type of a value, as in `server.json`: `string`, `number`, `boolean` or `filepath`."""
    default: str = ""
    placeholder: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandWord:
    """One part of a command line: a flag and its value, either of which may be absent."""

    flag: str = ""
    value: Template = ()
    is_repeated: bool = False
    """Whether the part is written once for each of several values."""
    is_switch: bool = False
    """Whether the value, true or false, decides only whether the flag is present."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """What was fetched and checked of a package: its file, or the manifest of an image.

    All fields are empty if nothing was fetched.
    """

    integrity: str
    """The digest of what was fetched, as its registry writes it: `sha512-...`, `sha256:...`."""
    file: str = ""
    """The path of the downloaded file; empty for an image, which is started by its digest."""
    program: str = ""
    """The program in the package that is the server."""
    digest: str = ""
    """An image's digest."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """One way of starting the server of a registry's entry.

    It has the package or the URL, the templates of the command line, and the values to ask for.
    """

    name: str
    version: str
    kind: Kind
    launcher: str = ""
    identifier: str = ""
    package_version: str = ""
    base_url: str = ""
    """The URL of the package's registry; empty for the usual one."""
    file_sha256: str = ""
    """The SHA-256 that the entry gives for the package's file; empty if it gives none."""
    before: tuple[CommandWord, ...] = ()
    """The launcher's options, which come before the package."""
    after: tuple[CommandWord, ...] = ()
    """The server's arguments, which come after the package."""
    env: Mapping[str, Template] = field(default_factory=dict)
    headers: Mapping[str, Template] = field(default_factory=dict)
    url: Template = ()
    inputs: tuple[InputQuestion, ...] = ()
    others: tuple[str, ...] = ()
    """The kinds of the other packages and remotes that work on this machine."""
    notes: tuple[str, ...] = ()
    """Sentences for a person, such as that the server is deprecated."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What goes into a server's definition: command or URL, and environment or headers."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """A container image, split into its parts."""

    host: str
    path: str
    tag: str
    digest: str = ""

    @property
    def repository(self) -> str:
        """The image without its tag, as `docker run` takes it."""
        return f"{self.host}/{self.path}"


def resolve(entry: Entry, machine: InstalledLaunchers, wanted: Kind | None = None) -> Resolution:
    """Return how to start the server of an entry on this machine.

    `wanted` is the only kind of package or remote that may be chosen; None allows every kind.

    Raises:
        EntryError: there is no way to start it here. The text says why, for each of its packages
            and remotes.
    """
    server = entry.server
    if entry.status == "deleted":
        reason = f": {entry.status_message}" if entry.status_message else ""
        raise EntryError(f"was deleted from the registry{reason}. Look for another: capd find TEXT")
    usable: list[Resolution] = []
    refused: list[str] = []
    ways: list[Package | Transport] = [*(server.packages or ()), *(server.remotes or ())]
    for way in ways:
        name = _named(way)
        try:
            if isinstance(way, Package):
                found = _package(entry, way, machine)
            else:
                found = _remote(entry, way)
        except EntryError as error:
            refused.append(f"{name}: {error}")
            continue
        usable.append(found)
    usable.sort(key=lambda each: _ORDER.index(each.kind))
    chosen = next((each for each in usable if wanted in (None, each.kind)), None)
    if chosen is None:
        if wanted and usable:
            kinds = ", ".join(dict.fromkeys(each.kind for each in usable))
            refused.append(f"it can be had as {kinds}, and not as {wanted}")
        reasons = "; ".join(refused) or "it names neither a package nor an address"
        raise EntryError(f"cannot be started here: {reasons}")
    notes = []
    if entry.status == "deprecated":
        reason = f": {entry.status_message}" if entry.status_message else ""
        notes.append(f"its publisher calls it deprecated{reason}")
    others = dict.fromkeys(each.kind for each in usable if each is not chosen)
    return replace(chosen, others=tuple(others), notes=tuple(notes))


def launch(
    resolution: Resolution, artifact: Artifact, values: Mapping[str, Sequence[str]]
) -> Launch:
    """Return the command line or the URL for a server's definition.

    `values` are the values that a person gave, by the names of the inputs. For a secret, the value
    is `{{ENV:KEY}}`. `artifact` is the downloaded package.

    Raises:
        EntryError: a required value is missing, or a value is not allowed for its input.
    """
    given = _checked(resolution.inputs, values)
    single = {name: each[0] for name, each in given.items() if each}
    env = {name: value for name, text in resolution.env.items() if (value := filled(text, single))}
    if resolution.kind == "remote":
        url = filled_url(resolution.url, single) or ""
        _check_url(url)
        headers = {
            name: value
            for name, text in resolution.headers.items()
            if (value := filled(text, single))
        }
        return Launch(url=url, headers=headers)
    before = list(_words(resolution.before, given, single))
    after = list(_words(resolution.after, given, single))
    if resolution.kind == "npm":
        words = ["-y", f"--package=file:{artifact.file}", "--", artifact.program]
    elif resolution.kind == "pypi":
        words = [*before, "--from", artifact.file, artifact.program]
    else:
        passed = [word for name in env for word in ("-e", name)]
        image = f"{image_of(resolution).repository}@{artifact.digest}"
        words = ["run", "-i", "--rm", *before, *passed, image]
    return Launch(command=(resolution.launcher, *words, *after), env=env)


def image_of(resolution: Resolution) -> Image:
    """Return the image of a server that runs in a container (kind `oci`), split into its parts."""
    return _image(resolution.identifier, resolution.package_version, resolution.base_url)


def missing_inputs(
    inputs: Sequence[InputQuestion], values: Mapping[str, Sequence[str]]
) -> list[InputQuestion]:
    """Return the required inputs that have neither a value nor a default."""
    return [
        each
        for each in inputs
        if each.is_required and not each.default and not values.get(each.name)
    ]


def value_problem(asked: InputQuestion, value: str) -> str:
    """Return why `value` is not valid for an input; empty if it is."""
    if len(value) > _LONGEST_VALUE or any(each in value for each in "\0\r\n"):
        return f"a value is one line of at most {_LONGEST_VALUE} characters"
    if asked.choices and value not in asked.choices:
        return f"choose one of: {', '.join(asked.choices)}"
    if asked.format == "boolean" and value not in {"true", "false"}:
        return "say true or false"
    if asked.format == "number" and not re.fullmatch(r"[+-]?\d+(?:\.\d+)?", value):
        return "it is a number"
    return ""


def _named(way: Package | Transport) -> str:
    if isinstance(way, Package):
        return f"{_shown(way.registry_type)} {_shown(way.identifier)}"
    return f"{_shown(way.type)} {_shown(way.url or '')}"


def _shown(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text[:120])


def _package(entry: Entry, package: Package, machine: InstalledLaunchers) -> Resolution:
    written = package.registry_type.lower()
    kind = _KINDS.get(written)
    if kind is None:
        raise EntryError(_UNSUPPORTED.get(written, "a kind of package that capd does not know"))
    if package.transport.type != "stdio":
        raise EntryError(
            f"it answers over {_shown(package.transport.type)} on this machine; start it yourself,"
            " and add its address: capd add NAME http://127.0.0.1:PORT/PATH"
        )
    identifier, version = _checked_package(package, kind, entry.server.version)
    if package.file_sha256 and not _SHA256.fullmatch(package.file_sha256):
        raise EntryError("its fileSha256 is no SHA-256")
    launcher = machine.launcher(kind)
    if not launcher:
        program = LAUNCHERS[kind][0]
        raise EntryError(f"{program} is not on the PATH: {_INSTALL[program]}")
    asking = _Asking()
    before = tuple(_arguments(package.runtime_arguments, asking, kind))
    after = tuple(_arguments(package.package_arguments, asking, None))
    env = asking.key_values(package.environment_variables, "environment")
    return Resolution(
        entry.server.name,
        entry.server.version,
        kind,
        launcher,
        identifier,
        version,
        package.registry_base_url or "",
        package.file_sha256 or "",
        before,
        after,
        env,
        inputs=asking.inputs,
    )


def _checked_package(package: Package, kind: Kind, server_version: str) -> tuple[str, str]:
    identifier, version = package.identifier, package.version or ""
    if kind == "oci":
        image = _image(identifier, version, package.registry_base_url or "")
        return identifier, image.tag
    names, versions = (_NPM_NAME, _NPM_VERSION) if kind == "npm" else (_PYPI_NAME, _PYPI_VERSION)
    if not names.fullmatch(identifier) or ".." in identifier:
        raise EntryError(f"{_shown(identifier)!r} is not a name of a package")
    version = version or server_version
    if not versions.fullmatch(version):
        raise EntryError(f"{_shown(version)!r} is not one exact version")
    return identifier, version


def _image(identifier: str, version: str, base_url: str) -> Image:
    match = _IMAGE.fullmatch(identifier)
    if match is None or ".." in identifier:
        raise EntryError(f"{_shown(identifier)!r} is not a name of an image")
    base = re.sub(r"^https?://", "", base_url).rstrip("/")
    host = match["host"] or base or _DOCKER_HUB
    if not re.fullmatch(r"[a-z0-9.-]+(?::\d+)?", host):
        raise EntryError(f"{_shown(host)!r} is no host of images")
    path = match["path"]
    if host == _DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    tag = match["tag"] or version
    if not match["digest"] and (not re.fullmatch(r"\w[\w.-]{0,127}", tag) or tag == "latest"):
        raise EntryError("its image has no exact version, so each start could run other code")
    return Image(host, path, tag, match["digest"] or "")


def _remote(entry: Entry, remote: Transport) -> Resolution:
    if remote.type not in {"streamable-http", "sse"}:
        raise EntryError("a kind of transport that capd does not know")
    asking = _Asking()
    names = asking.variables(remote.variables, "url")
    url = template(remote.url or "", names, "its URL")
    beginning = url[0] if url and isinstance(url[0], str) else "https://"
    _check_url(beginning)
    headers = asking.key_values(remote.headers, "header")
    return Resolution(
        entry.server.name,
        entry.server.version,
        "remote",
        identifier=_shown(remote.url or ""),
        url=url,
        headers=headers,
        inputs=asking.inputs,
    )


def _check_url(url: str) -> None:
    rest = url.partition("://")[2]
    host = rest.partition("/")[0].rpartition(":")[0] or rest.partition("/")[0]
    if any(not each.isprintable() or each.isspace() for each in url):
        raise EntryError("its URL has a space or an invisible character")
    if url.startswith("https://") or (url.startswith("http://") and host in LOCAL_HOSTS):
        if "@" in rest.partition("/")[0]:
            raise EntryError("its URL has a user in it")
        return
    raise EntryError("its URL is not https")


class _Asking:
    """Collects the inputs that one package or remote asks for, and gives each a unique name."""

    def __init__(self) -> None:
        self._inputs: dict[str, InputQuestion] = {}

    @property
    def inputs(self) -> tuple[InputQuestion, ...]:
        return tuple(self._inputs.values())

    def slot(
        self,
        name: str,
        where: Where,
        given: Input,
        *,
        is_repeated: bool = False,
        is_secret: bool = False,
    ) -> Slot:
        """Add a value that a person is asked for, and return the place for it in a template.

        `is_secret` says that the value is a part of a secret.
        """
        base = re.sub(r"[^A-Za-z0-9_.-]+", "_", name.strip().lstrip("-"))[:100] or "value"
        unique = base
        for number in range(2, _NAME_NUMBER):
            if unique not in self._inputs:
                break
            unique = f"{base}_{number}"
        choices = tuple(plain(each) for each in given.choices or () if plain(each))
        self._inputs[unique] = InputQuestion(
            unique,
            where,
            (given.description or "")[:600],
            bool(given.is_required),
            is_secret or bool(given.is_secret) or _looks_secret(base, where, given),
            is_repeated,
            given.format or "string",
            _own_text(plain(given.default), f"the default of {base}"),
            given.placeholder or "",
            tuple(_own_text(each, f"the choices of {base}") for each in choices),
        )
        return Slot(unique)

    def leave_to_person(self, name: str) -> None:
        """Have a person give the value of an input, even if its publisher proposes one."""
        asked = self._inputs[name]
        self._inputs[name] = replace(asked, is_required=True, default="", choices=())

    def variables(
        self, variables: Mapping[str, Input] | None, where: Where, *, is_secret: bool = False
    ) -> dict[str, str]:
        """Add the variables of a template as inputs; return the name of the input for each."""
        found = {}
        for name, given in (variables or {}).items():
            found[name] = self.slot(name, where, given, is_secret=is_secret).name
        return found

    def template(self, given: KeyValue | Argument, name: str, where: Where) -> Template:
        """Return the template of a value: its fixed text with variables, or one place to fill."""
        if given.value is not None:
            names = self.variables(given.variables, where, is_secret=bool(given.is_secret))
            return template(plain(given.value), names, name)
        is_repeated = isinstance(given, Argument) and bool(given.is_repeated)
        return (self.slot(name, where, given, is_repeated=is_repeated),)

    def key_values(self, given: Sequence[KeyValue] | None, where: Where) -> dict[str, Template]:
        """Return the templates of environment variables or headers, by name.

        Raises:
            EntryError: a name is not valid, or it is a variable that decides what programs load.
        """
        found: dict[str, Template] = {}
        for each in given or ():
            pattern = _VARIABLE if where == "environment" else _HEADER
            if not pattern.fullmatch(each.name):
                raise EntryError(f"{_shown(each.name)!r} is not a name of a {_noun(where)}")
            name = each.name
            if where == "environment" and (
                name.upper() in _NOT_SET or name.lower().startswith(_NOT_SET_PREFIXES)
            ):
                raise EntryError(f"it sets {name}, which decides what programs load or where")
            found[name] = self.template(each, name, where)
        return found


def _looks_secret(name: str, where: Where, given: Input) -> bool:
    """Tell whether the name of an input suggests a secret, although it is not marked as one."""
    is_open = where in {"environment", "header"} and given.default is None and not given.choices
    return is_open and given.format != "number" and _SECRET.search(name) is not None


def _noun(where: Where) -> str:
    return "variable" if where == "environment" else where


def _own_text(text: str, what: str) -> str:
    return literal(text, what) if text else ""


def _arguments(
    given: Sequence[Argument] | None, asking: _Asking, launcher: Kind | None
) -> Iterator[CommandWord]:
    """Yield the parts of a command line that the arguments of an entry define.

    With `launcher`, they are options of that launcher: only those on a list are permitted, and
    those that capd passes itself are left out.
    """
    for each in given or ():
        if each.type == "named":
            name = (each.name or "").strip()
            if not re.fullmatch(r"-{0,2}[A-Za-z0-9][\w.:-]*", name):
                raise EntryError(f"{_shown(name)!r} is not a name of an option")
            word = _named_word(each, name, asking, launcher)
        elif each.type == "positional":
            hint = each.value_hint or "argument"
            word = CommandWord(
                value=asking.template(each, hint, "argument"), is_repeated=bool(each.is_repeated)
            )
        else:
            raise EntryError(f"an argument of the unknown type {_shown(each.type)!r}")
        if launcher is None:
            yield word
            continue
        passed = _of_launcher(word, launcher, asking)
        if passed is not None:
            yield passed


def _named_word(each: Argument, name: str, asking: _Asking, launcher: Kind | None) -> CommandWord:
    is_asked = any((each.description, each.value_hint, each.choices, each.is_required))
    has_value = each.value is not None or each.default is not None
    flags = _FLAGS[launcher] if launcher is not None else frozenset()
    if name in flags or (not has_value and each.format in (None, "string") and not is_asked):
        return CommandWord(name)
    if each.value is not None and plain(each.value) == "":
        return CommandWord(name)
    is_repeated = bool(each.is_repeated)
    # Some entries repeat the flag in its value, as in `--port={port}`.
    value = asking.template(each, name, "argument")
    return CommandWord(
        name, value, is_repeated, is_switch=each.value is None and each.format == "boolean"
    )


def _of_launcher(word: CommandWord, kind: Kind, asking: "_Asking") -> CommandWord | None:
    if not word.flag and all(isinstance(part, str) for part in word.value):
        text = filled(word.value, {}) or ""
        flag, equals, value = text.partition("=")
        # Half of the registry writes `-y`, or `-e NAME=VALUE`, as a positional argument.
        word = CommandWord(flag, (value,) if equals else ())
    if not word.flag.startswith("-") and word.flag in _OWN_FLAGS | _SPELLED:
        return None
    if word.flag in _FLAGS[kind] and not word.value:
        return None if word.flag in _OWN_FLAGS else word
    if word.flag not in _PASSED[kind] or not word.value:
        what = word.flag or "an argument"
        raise EntryError(f"it gives its launcher {_shown(what)!r}, which capd does not pass on")
    if word.flag in _MOUNTS:
        sources = _mount_source(word)
        if sources is None:
            raise EntryError("it mounts a folder of this machine that its publisher chose")
        for name in sources:
            asking.leave_to_person(name)
    return word


def _mount_source(word: CommandWord) -> tuple[str, ...] | None:
    """Return the inputs that begin the path of the folder that a docker mount shares.

    The result is empty for a volume that docker keeps under a name of its own. It is None if the
    publisher alone has chosen the folder, or if the options cannot be read in the way docker reads
    them: docker accepts keys in any case and quotes around a field, and a volume's driver can mount
    any folder.
    """
    text = "".join(part if isinstance(part, str) else "\0" for part in word.value)
    names = iter(slots(word.value))
    if word.flag != "--mount":
        source, colon, _ = text.partition(":")
        return _source_inputs(source, names) if colon else None
    if '"' in text:
        return None
    found: tuple[str, ...] | None = ()
    kind = "volume"
    for option in text.split(","):
        key, _, value = option.partition("=")
        key = key.strip().lower()
        if "\0" in key or key.startswith("volume-"):
            return None
        if key in {"src", "source"}:
            found = _source_inputs(value, names)
        else:
            for _ in range(value.count("\0")):
                next(names)
        if key == "type":
            kind = value.strip().lower()
    is_known = kind in {"volume", "tmpfs"} or (kind == "bind" and bool(found))
    return found if is_known else None


def _source_inputs(source: str, names: Iterator[str]) -> tuple[str, ...] | None:
    if source.startswith("\0"):
        return tuple(next(names) for _ in range(source.count("\0")))
    return () if _VOLUME.fullmatch(source) else None


def _words(
    words: Sequence[CommandWord], given: Mapping[str, Sequence[str]], single: Mapping[str, str]
) -> Iterator[str]:
    for word in words:
        if not word.value:
            yield word.flag
            continue
        if word.is_switch:
            if filled(word.value, single) == "true":
                yield word.flag
            continue
        names = slots(word.value)
        repeats = [single]
        if word.is_repeated and len(names) == 1:
            repeats = [{**single, names[0]: each} for each in given.get(names[0], ())]
        for values in repeats:
            text = filled(word.value, values)
            if text is not None:
                yield from (word.flag, text) if word.flag else (text,)


def _checked(
    inputs: Sequence[InputQuestion], values: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    known = {each.name for each in inputs}
    for name in values:
        if name not in known:
            raise EntryError(f"asks for no {_shown(name)!r}")
    missing = missing_inputs(inputs, values)
    if missing:
        raise EntryError(f"needs {', '.join(each.name for each in missing)}")
    found: dict[str, tuple[str, ...]] = {}
    for each in inputs:
        given = tuple(value for value in values.get(each.name, ()) if value != "")
        if not given and each.default:
            given = (each.default,)
        for value in given:
            problem = "" if each.is_secret else value_problem(each, value)
            if problem:
                raise EntryError(f"does not take {_shown(value)!r} for {each.name}: {problem}")
        found[each.name] = given
    return found
