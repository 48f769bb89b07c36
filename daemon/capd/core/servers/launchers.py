"""Launchers: programs that start a server and read files from the folder that they run in.

`npx`, `uv run`, `python -m` and similar programs take settings, packages or modules from their
working directory or its parents. In a fresh clone strangers wrote these files, so a launcher that
runs there may run the clone's code. `TABLE` has the launchers and the names of the files that each
reads. In an untrusted folder that has such files, a launcher is restricted by one of these methods:

    script_shell  npm runs in an empty folder; its script shell enters the project right before the
                  server itself starts, so the server has its usual working directory
    safe_path     `python -P -m`: the working directory is not searched for modules
    elsewhere     the launcher and its server run in an empty folder; capd says so

If no such file exists, nothing is restricted, and the server starts as an MCP client would start it
directly. A command that runs a file of the project itself (`./server.sh`, `node server.js`) is not
restricted: it does not start until the project is trusted (`capd trust`).
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from capd.core.folders import is_at_or_below
from capd.core.lazy_patterns import lazy_pattern

LaunchMethod = Literal["script_shell", "safe_path", "elsewhere"]

NAMES_IN_ANY_CASE = frozenset({"justfile", ".justfile"})
"""Names that launchers find however they are written: `just` also reads `JUSTFILE`
(https://just.systems/man/en/)."""
_NODE = ("package.json", ".npmrc", "node_modules")
_UV = ("pyproject.toml", "uv.toml", "uv.lock", ".python-version", ".python-versions", ".venv")
_VERSIONS = (
    *(".tool-versions", "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml"),
    *(".mise", "mise", ".config/mise.toml", ".config/mise", ".rtx.toml"),
    *(".python-version", ".node-version", ".nvmrc", ".ruby-version", ".go-version"),
    *(".java-version", ".prototools", "rust-toolchain", "rust-toolchain.toml"),
)
_COMPOSE = (
    *("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
    *("compose.override.yaml", "compose.override.yml"),
    *("docker-compose.override.yaml", "docker-compose.override.yml"),
    *(".env", "docker-bake.hcl", "docker-bake.json", "Dockerfile"),
)
_BUN_ENV = (
    *(".env", ".env.local", ".env.development", ".env.production", ".env.test"),
    *(".env.development.local", ".env.production.local", ".env.test.local"),
)
_TYPESCRIPT = ("tsconfig.json", "jsconfig.json")


@dataclass(frozen=True, slots=True)
class Launcher:
    """Programs that start servers, such as `npx`, and read the same files in their folder."""

    programs: tuple[str, ...]
    names: tuple[str, ...]
    """The files and folders that the launcher reads in its working directory and above it."""
    method: LaunchMethod = "elsewhere"
    runs: str = ""
    """The key in `_PARSERS` of the parser for its command line; empty if the rest of the command
    line does not change what is read."""


TABLE: tuple[Launcher, ...] = (
    Launcher(("npx", "npm"), _NODE, "script_shell", runs="npm"),
    Launcher(
        ("pnpm", "pnpx", "pn", "pnx"),
        (*_NODE, ".pnpmfile.cjs", ".pnpmfile.mjs", "pnpm-workspace.yaml", "pnpm-lock.yaml"),
        runs="package",
    ),
    Launcher(
        ("yarn", "yarnpkg"),
        (*_NODE, ".yarnrc", ".yarnrc.yml", ".env.yarn", ".yarn", ".pnp.cjs", "yarn.lock"),
        runs="package",
    ),
    Launcher(("corepack",), (*_NODE, ".yarnrc", ".yarnrc.yml", ".corepack.env")),
    Launcher(
        ("bun", "bunx"),
        (*_NODE, "bunfig.toml", ".bunfig.toml", *_BUN_ENV, *_TYPESCRIPT, "bun.lock", "bun.lockb"),
        runs="package",
    ),
    Launcher(("tsx", "ts-node", "jiti", "esbuild-register"), (*_NODE, *_TYPESCRIPT), runs="file"),
    Launcher(("node", "nodejs"), _NODE, runs="node"),
    Launcher(
        ("deno", "denox"),
        (*_NODE, "deno.json", "deno.jsonc", "deno.lock", "vendor", ".env"),
        runs="package",
    ),
    Launcher(("uvx",), (), runs="package"),
    Launcher(("uv",), (*_UV, ".env"), runs="uv"),
    Launcher(("pipx",), ("__pypackages__", "pyproject.toml"), runs="package"),
    Launcher(("python", "python2", "python3", "pypy", "pypy3"), (), "safe_path", runs="python"),
    Launcher(
        ("poetry", "pdm", "hatch", "rye", "pixi", "pipenv"),
        (
            *("pyproject.toml", "poetry.toml", "poetry.lock", "pdm.toml", ".pdm-python"),
            *("pdm.lock", "hatch.toml", "pixi.toml", "Pipfile", ".venv", "__pypackages__", ".env"),
        ),
    ),
    Launcher(("docker-compose", "podman-compose"), _COMPOSE),
    Launcher(("docker", "podman", "nerdctl"), _COMPOSE, runs="docker"),
    Launcher(
        ("cargo", "rustc", "rustup"),
        (
            *("Cargo.toml", "Cargo.lock", ".cargo", ".cargo/config.toml", "build.rs"),
            *("rust-toolchain", "rust-toolchain.toml"),
        ),
    ),
    Launcher(("go",), ("go.mod", "go.work", "go.sum", "vendor", "main.go")),
    Launcher(
        ("dotnet", "dnx"),
        (
            *("global.json", "nuget.config", "NuGet.config", "NuGet.Config", "dotnet-tools.json"),
            *(".config", "Directory.Build.props", "Directory.Build.targets"),
            "Directory.Packages.props",
        ),
    ),
    Launcher(("mise", "rtx", "asdf", "proto", "volta"), (*_VERSIONS, ".env", "node_modules")),
    Launcher(("direnv",), (".envrc", ".env")),
    Launcher(("nix", "nix-shell"), ("flake.nix", "flake.lock", "shell.nix", "default.nix")),
    Launcher(("devbox",), ("devbox.json", "devbox.lock")),
    Launcher(
        ("bundle", "bundler", "rake"),
        (
            *("Gemfile", "Gemfile.lock", "gems.rb", "gems.locked", ".bundle"),
            *("Rakefile", "rakefile", "Rakefile.rb", "rakefile.rb"),
        ),
    ),
    Launcher(
        ("make", "gmake", "just", "task"),
        (
            *("GNUmakefile", "makefile", "Makefile", *sorted(NAMES_IN_ANY_CASE)),
            *("Taskfile.yml", "Taskfile.yaml", "Taskfile.dist.yml", "Taskfile.dist.yaml"),
            *("taskfile.yml", "taskfile.yaml", "taskfile.dist.yml", "taskfile.dist.yaml"),
            *(".taskrc.yml", ".taskrc.yaml", ".env"),
        ),
    ),
    Launcher(("R", "Rscript"), (".Rprofile", ".Renviron"), runs="r"),
    Launcher(("ruby", "perl", "php", "lua", "osascript"), (), runs="file"),
    Launcher(("sh", "bash", "dash", "zsh", "ksh", "fish"), (), runs="shell"),
)
"""The known launchers. Any other program is assumed to read no files of its folder."""

_BY_PROGRAM = {program: each for each in TABLE for program in each.programs}
SHIMS: Mapping[str, frozenset[str]] = {
    ".pyenv/shims": frozenset({".python-version"}),
    ".nodenv/shims": frozenset({".node-version"}),
    ".rbenv/shims": frozenset({".ruby-version"}),
    ".goenv/shims": frozenset({".go-version"}),
    ".volta/bin": frozenset({"package.json", "node_modules"}),
    "shims": frozenset({*_VERSIONS, ".env"}),
}
"""Folders with the shims of version managers, and the files by which each chooses a program.

The files of `asdf` and `mise` may name a program in the clone.
"""
LOADING_VARIABLES = frozenset(
    {
        *("BASH_ENV", "BUN_OPTIONS", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "GEM_PATH"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "NODE_OPTIONS", "NODE_PATH", "PERL5LIB"),
        *("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "RUBYLIB", "RUBYOPT"),
    }
)
"""Variables that say where programs load code from. For PATH see the function `outside`."""

_WRAPPERS = frozenset(
    {"env", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "unbuffer", "sudo"}
)
_VALUED = {
    "npm": frozenset(
        {"-p", "--package", "-w", "--workspace", "--prefix", "--cache", "--registry", "-C"}
        | {"--userconfig", "--loglevel", "--node-options", "--script-shell"}
    ),
    "package": frozenset(
        {"-p", "--package", "--from", "--with", "-w", "--with-editable", "--python", "--spec"}
        | {"--index", "--index-url", "-i", "--extra-index-url", "--default-index", "--cache-dir"}
        | {"--find-links", "-f", "--refresh-package", "--with-requirements", "--env-file"}
        | {"--config-file", "--pip-args", "--dir", "-C", "--cwd", "--config", "-c", "--import-map"}
        | {"--preload", "-r", "--constraints", "-b", "--overrides", "--registry", "--tsconfig"}
        | {"--directory", "--project", "--require", "--lock", "--ext", "--torch-backend"}
        | {"--python-preference", "--prerelease", "--resolution", "--link-mode", "--color"}
    ),
    "uv": frozenset(
        {"--directory", "--project", "--config-file", "--cache-dir", "--color", "--env-file"}
        | {"--with", "-w", "--with-editable", "--with-requirements", "--extra", "--group"}
        | {"--no-group", "--only-group", "--no-extra", "--package", "--python", "-p", "--index"}
        | {"--default-index", "--index-url", "-i", "--extra-index-url", "--find-links", "-f"}
        | {"--python-preference", "--prerelease", "--resolution", "--link-mode", "-m", "--module"}
        | {"--upgrade-package", "-P", "--refresh-package", "--python-platform"}
    ),
    "python": frozenset({"-W", "-X", "--check-hash-based-pycs"}),
    "node": frozenset(
        {"-r", "--require", "--import", "--loader", "--experimental-loader", "--env-file"}
        | {"--env-file-if-exists", "-C", "--conditions", "--title", "--watch-path"}
    ),
    "file": frozenset({"-r", "-I", "-e", "--tsconfig", "--require", "--import", "-P", "-d"}),
    "shell": frozenset({"-o", "-O", "--rcfile", "--init-file"}),
}
_PATH_OPTIONS = frozenset(
    {"--env-file", "--env-file-if-exists", "--config-file", "--config", "-C", "--cwd", "--dir"}
    | {"--directory", "--project", "--prefix", "--userconfig", "--import-map", "--script-shell"}
    | {"--with-editable", "--with-requirements", "--find-links", "-f", "--tsconfig", "--preload"}
    | {"--rcfile", "--init-file", "--constraints", "--overrides"}
)
_PACKAGE_OPTIONS = frozenset({"-p", "--package", "--from", "--spec", "--with", "-w"})
_RUN_WORDS = frozenset({"dlx", "exec", "x", "run", "tool", "test", "start", "create"})
_EVALUATING = frozenset({"-e", "-p", "--eval", "--print", "-pe", "-i", "--interactive", "--run"})
_LOADING = frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader"})
_SPLIT = lazy_pattern(r"[\s;|&()\"'`<>]+")
_COMMANDS = lazy_pattern(r"[;|&()`{}\n]+")
_KEYWORDS = frozenset(
    {"exec", "then", "do", "else", "elif", "if", "while", "until", "command", "eval", "!", "$"}
)
_ASSIGNMENT = lazy_pattern(r"[A-Za-z_]\w*=")
_VERSION_SUFFIX = lazy_pattern(r"(?:(?<=[a-z])[\d.]+t?)?(?:\.exe|\.cmd)?$")
_PLACE = lazy_pattern(r"(?P<option>-[^=]*=)?(?P<path>\.{1,2}(?:/.*)?)")
_URL = lazy_pattern(r"[\w+.-]+://|(?:npm|jsr|node|data|git|github|gh):")
_NO_NAMES: frozenset[str] = frozenset()
_MOST_WORDS = 2000


@dataclass(frozen=True, slots=True)
class FilesRead:
    """The files that a server's command line reads in its working directory."""

    launcher: str = ""
    """The launcher that reads the files; empty if there is none."""
    names: frozenset[str] = frozenset()
    method: LaunchMethod = "elsewhere"
    reads_modules: bool = False
    """Whether the command may import any Python module in the working directory."""
    is_always: bool = False
    """Whether to restrict the command even if no such file exists, because an option or a variable
    has a relative path from which code is loaded."""
    project_file: str = ""
    """The first word of the command that is a file of the project, as it is written."""
    own_arguments_at: int = -1
    """The index in argv at which the server's own arguments begin; -1 if that is not known."""
    safe_path_at: int = 0
    """The index in argv at which to insert `-P`, for the method `safe_path`."""

    @property
    def is_reading(self) -> bool:
        """Whether the command reads anything in its working directory."""
        return bool(self.names or self.reads_modules or self.is_always)


_NOTHING = FilesRead()


def reading(
    argv: Sequence[str],
    declared: Mapping[str, str] | None = None,
    *,
    script: str = "",
    interpreter: Sequence[str] = (),
    shim_folder: str = "",
) -> FilesRead:
    """Return which files of its working directory the command `argv` would read or load.

    No file is read here: the result follows from the words of `argv` and from `declared`, the
    environment that the definition sets. In both, `{{PROJECT}}` and `{{CWD}}` are not filled in.
    `script` is the text of the command's file if that is a shell script. `interpreter` is the
    command line in the file's first line (`#!/usr/bin/env bun`), empty if it has none.
    `shim_folder` is the folder that the command is in.
    """
    words = list(argv[:_MOST_WORDS])
    found = _of_words(words)
    if interpreter and not found.launcher and program_name(words[0]) not in _BY_PROGRAM:
        found = _of_script(interpreter, words[1:])
    if script and not found.launcher:
        found = _of_text(script)
    if _is_path(words[0]) and _is_relative_path(words[0]):
        found = replace(found, project_file=words[0])
    for name, value in (declared or {}).items():
        if name in LOADING_VARIABLES and value:
            found = _with_variable(found, name, value)
    chosen_by = shim_names(shim_folder)
    if chosen_by:
        names = found.names | chosen_by
        found = replace(found, names=names, method="elsewhere", launcher=found.launcher or words[0])
    return found


def shim_names(folder: str) -> frozenset[str]:
    """Return the files that a version manager reads, if `folder` has its shims; else none."""
    path = f"/{folder.strip('/')}"
    return next(
        (names for ending, names in SHIMS.items() if path.endswith(f"/{ending}")), _NO_NAMES
    )


def program_name(word: str) -> str:
    """Return a program's name without folder and version: `/usr/bin/python3.12` is `python`."""
    name = posixpath.basename(word)
    if name in _BY_PROGRAM:
        return name
    return _VERSION_SUFFIX.sub("", name)


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server in an untrusted folder."""

    argv: tuple[str, ...]
    is_elsewhere: bool = False
    """Whether the launcher runs in an empty folder instead of the project."""
    enters_project: bool = False
    """Whether the server runs in the project nevertheless: npm's script shell enters the
    project, and then starts the server."""
    reason: str = ""
    """What is restricted and why, for a person; empty if nothing is."""


def launch(
    argv: Sequence[str],
    found: FilesRead,
    there: Sequence[str],
    *,
    project: str,
    has_safe_path: bool = False,
    can_enter: bool = False,
) -> Launch:
    """Return how to start the command `argv` in an untrusted folder.

    `found` is the result of `reading`, and `there` are the names of those files that exist.
    `project` is the folder's path, empty if the session has no project. `has_safe_path` says that
    the Python interpreter knows `-P`, `can_enter` that npm's script shell can be set.
    """
    words = tuple(argv)
    if not found.is_reading or not (there or found.is_always):
        return Launch(words)
    shown = ", ".join(there[:3]) + (" and more" if len(there) > 3 else "")  # noqa: PLR2004
    reads = f"{found.launcher} reads {shown or 'code by a relative path'}"
    if project:
        reads += f", and {project} is not trusted (capd trust)"
    if found.method == "safe_path" and has_safe_path:
        at = found.safe_path_at
        reason = f"{reads}: started with -P, so that no module is imported from there"
        return Launch((*words[:at], "-P", *words[at:]), reason=reason)
    if found.method == "script_shell" and can_enter and project:
        reason = f"{reads}: {found.launcher} ran outside of it, and the server inside"
        return Launch(words, is_elsewhere=True, enters_project=True, reason=reason)
    if project and found.own_arguments_at >= 0:
        at = found.own_arguments_at
        words = (*words[:at], *(_absolute(word, project) for word in words[at:]))
    reason = f"{reads}: it runs in an empty folder, not in the project"
    return Launch(
        words, is_elsewhere=True, reason=reason if project else f"{reads}: it runs elsewhere"
    )


def outside(folders: str, project: str) -> str:
    """Return the PATH `folders` without relative folders and without those inside `project`."""
    kept = [
        each
        for each in folders.split(":")
        if posixpath.isabs(each)
        and not (project and is_at_or_below(posixpath.normpath(each), project))
    ]
    return ":".join(kept)


# Command lines


def _of_words(words: Sequence[str]) -> FilesRead:
    """Return which files of its folder the command `words` reads, including those that it names."""
    if not words:
        return _NOTHING
    program = program_name(words[0])
    if program in _WRAPPERS:
        return _wrapped(words)
    launcher = _BY_PROGRAM.get(program)
    if launcher is None:
        return _NOTHING
    return _PARSERS[launcher.runs](words, launcher)


def _of_script(interpreter: Sequence[str], arguments: Sequence[str]) -> FilesRead:
    """Return the files that a script's interpreter reads; `arguments` are those of the script."""
    found = _of_words([*interpreter, "/script", *arguments])
    if not found.is_reading and not found.project_file:
        return _NOTHING
    # The argv names only the script, so `-P` cannot be inserted for the interpreter.
    own = found.own_arguments_at - len(interpreter)
    return replace(found, method="elsewhere", own_arguments_at=max(own, -1), safe_path_at=0)


def _wrapped(words: Sequence[str]) -> FilesRead:
    """Return the files that the command after a wrapper reads, as in `env A=b npx ...`."""
    at = 1
    while at < len(words) and "=" in words[at] and not words[at].startswith("-"):
        at += 1
    if at < len(words) and program_name(words[at]) in _BY_PROGRAM:
        inner = _of_words(words[at:])
        found = replace(
            inner,
            own_arguments_at=inner.own_arguments_at + at if inner.own_arguments_at >= 0 else -1,
            safe_path_at=inner.safe_path_at + at,
        )
        assigned = dict(word.split("=", 1) for word in words[1:at])
        for name in LOADING_VARIABLES & assigned.keys():
            found = _with_variable(found, name, assigned[name])
        return found
    return _mentioned([part for word in words[1:] for part in _SPLIT.split(word)])


def _mentioned(words: Sequence[str]) -> FilesRead:
    """Return which files of the folder are read by launchers whose names are in a text.

    `words` are the text's words.
    """
    found = _NOTHING
    for at, word in enumerate(words):
        if program_name(word) in _BY_PROGRAM:
            inner = _of_words(words[at : at + 50])
            found = _joined(found, inner, found.launcher or program_name(word))
    # The text may change the folder first (`cd`), so a file that it names may be elsewhere.
    is_always = found.is_always or bool(found.project_file)
    return replace(found, project_file="", is_always=is_always)


def _of_text(text: str) -> FilesRead:
    """Return the files that a shell would read if it ran the commands in `text`."""
    found = _NOTHING
    for part in _COMMANDS.split(text)[:_MOST_WORDS]:
        words = [word for word in _SPLIT.split(part) if word]
        while words and (words[0] in _KEYWORDS or _ASSIGNMENT.match(words[0])):
            words.pop(0)
        if not words or words[0].startswith("#"):
            continue
        inner = _of_words(words)
        if _is_place(words[0]) and "/" in words[0]:
            inner = replace(inner, launcher="sh", is_always=True)
        if inner.is_reading or inner.project_file:
            found = _joined(found, inner, found.launcher or inner.launcher)
    # The text may change the folder first (`cd`), so a file that it names may be elsewhere.
    is_always = found.is_always or bool(found.project_file)
    return replace(found, project_file="", is_always=is_always)


def _joined(one: FilesRead, other: FilesRead, launcher: str) -> FilesRead:
    if not other.is_reading and not other.project_file:
        return one
    return FilesRead(
        launcher or other.launcher,
        one.names | other.names,
        "elsewhere",
        one.reads_modules or other.reads_modules,
        one.is_always or other.is_always,
        one.project_file or other.project_file,
        one.own_arguments_at,
    )


@dataclass(frozen=True, slots=True)
class _Options:
    """The options between a program and its first argument that is no option."""

    at: int
    """The index of the first operand; the number of words if there is none."""
    flags: tuple[tuple[str, str], ...]
    """Options with their values; the value is empty if there is none."""

    def values(self, names: frozenset[str]) -> list[str]:
        return [value for name, value in self.flags if name in names and value]


def _options(words: Sequence[str], start: int, valued: frozenset[str]) -> _Options:
    flags = []
    at = start
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if not word.startswith("-") or word == "-":
            break
        name, is_joined, value = word.partition("=")
        if not is_joined and name in valued and at + 1 < len(words):
            at += 1
            value = words[at]
        flags.append((name, value))
        at += 1
    return _Options(at, tuple(flags))


def _general(words: Sequence[str], launcher: Launcher) -> FilesRead:
    return FilesRead(program_name(words[0]), frozenset(launcher.names), launcher.method)


def _npm(words: Sequence[str], launcher: Launcher) -> FilesRead:
    program = program_name(words[0])
    valued = _VALUED["npm"]
    options = _options(words, 1, valued)
    if program == "npm":
        command = words[options.at] if options.at < len(words) else ""
        if command not in {"exec", "x"}:
            return _general(words, replace(launcher, method="elsewhere"))
        more = _options(words, options.at + 1, valued)
        options = _Options(more.at, (*options.flags, *more.flags))
    found = _general(words, launcher)
    if any(name in {"-c", "--call"} for name, _ in options.flags):
        found = replace(found, method="elsewhere")
    return _with_package(found, words, options)


def _package(words: Sequence[str], launcher: Launcher) -> FilesRead:
    """Return which files of its folder a program that runs a package or a file reads.

    Such commands are: pnpm dlx PACKAGE, uvx PACKAGE, pipx run PACKAGE, deno run FILE, bun FILE.
    """
    valued = _VALUED["package"]
    program = program_name(words[0])
    options = _options(words, 1, valued)
    flags = list(options.flags)
    while options.at < len(words) and words[options.at] in _RUN_WORDS and program != "uvx":
        options = _options(words, options.at + 1, valued)
        flags += options.flags
    found = _general(words, launcher)
    options = _Options(options.at, tuple(flags))
    found = _with_package(found, words, options)
    if not found.is_reading:
        # Nothing is restricted, so no launcher is named.
        return replace(found, launcher="")
    return found


def _with_package(found: FilesRead, words: Sequence[str], options: _Options) -> FilesRead:
    """Return `found` with the additional files that the package or file to run reads itself."""
    found = _with_paths(found, options)
    at = options.at
    packages = options.values(_PACKAGE_OPTIONS)
    if at >= len(words):
        return replace(found, own_arguments_at=at)
    target = words[at]
    for spec in (target, *packages):
        if _is_place(spec):
            return replace(found, project_file=spec)
    is_file = found.launcher in {"deno", "bun"} and re.search(r"\.[cm]?[jt]sx?$", target)
    if is_file and _is_relative_path(target):
        return replace(found, project_file=target)
    inner_name = _package_name(target)
    if inner_name != found.launcher and program_name(inner_name) in _BY_PROGRAM:
        inner = _of_words([inner_name, *words[at + 1 :]])
        found = _joined(found, inner, found.launcher) if inner.is_reading else found
        found = replace(found, project_file=found.project_file or inner.project_file)
    return replace(found, own_arguments_at=at + 1)


def _with_paths(found: FilesRead, options: _Options) -> FilesRead:
    for value in options.values(_PATH_OPTIONS):
        if not _URL.match(value) and _is_relative_path(value):
            # The option explicitly names settings or code of the project.
            return replace(found, project_file=found.project_file or value)
    return found


def _uv(words: Sequence[str], launcher: Launcher) -> FilesRead:
    valued = _VALUED["uv"]
    options = _options(words, 1, valued)
    command = words[options.at] if options.at < len(words) else ""
    if command in {"tool", "x"}:
        at = options.at + (2 if command == "tool" else 1)
        found = _of_words(["uvx", *words[at:]])
        found = _with_paths(found, options)
        own = found.own_arguments_at
        return replace(found, own_arguments_at=own + at - 1 if own >= 0 else -1)
    found = _general(words, launcher)
    if command != "run":
        return found
    more = _options(words, options.at + 1, valued)
    options = _Options(more.at, (*options.flags, *more.flags))
    found = replace(_with_paths(found, options), own_arguments_at=options.at + 1)
    if options.values(frozenset({"--directory"})):
        # uv changes to a folder outside of the project before it reads anything.
        found = replace(found, names=frozenset(), own_arguments_at=-1)
        return found if found.project_file else _NOTHING
    modules = options.values(frozenset({"-m", "--module"}))
    if modules:
        return replace(found, reads_modules=True)
    inner = list(words[options.at :])
    if inner and inner[0].endswith((".py", ".pyw")) and not _URL.match(inner[0]):
        inner.insert(0, "python")
    if inner and _is_path(inner[0]) and _is_relative_path(inner[0]):
        return replace(found, project_file=inner[0])
    below = _of_words(inner)
    found = _joined(found, below, "uv") if below.is_reading else found
    return replace(found, project_file=found.project_file or below.project_file)


def _python(words: Sequence[str], _: Launcher) -> FilesRead:
    program = posixpath.basename(words[0])
    at = 1
    is_safe = False
    while at < len(words) and words[at].startswith("-") and words[at] not in {"-", "--"}:
        word = words[at]
        letters = word[1:] if not word.startswith("--") else ""
        # Options of one letter may be joined: `-Im module` is `-I -m module`, which is isolated.
        before, ending, _rest = _cut_at(letters, "mcWX")
        is_safe = is_safe or "I" in before or "P" in before
        if ending in {"m", "c"}:
            if is_safe:
                return replace(_NOTHING, own_arguments_at=at + 2)
            return FilesRead(
                program,
                method="safe_path",
                reads_modules=True,
                own_arguments_at=at + 2,
                safe_path_at=1,
            )
        has_value = (ending and not _rest) or word in _VALUED["python"]
        at += 2 if has_value else 1
    if at >= len(words) or words[at] in {"-", "--"}:
        if is_safe:
            return _NOTHING
        return FilesRead(program, method="safe_path", reads_modules=True, safe_path_at=1)
    if _is_relative_path(words[at]):
        return replace(_NOTHING, launcher=program, project_file=words[at])
    return replace(_NOTHING, own_arguments_at=at + 1)


def _cut_at(letters: str, ends: str) -> tuple[str, str, str]:
    for at, letter in enumerate(letters):
        if letter in ends:
            return letters[:at], letter, letters[at + 1 :]
    return letters, "", ""


def _node(words: Sequence[str], launcher: Launcher) -> FilesRead:
    options = _options(words, 1, _VALUED["node"])
    found = replace(_NOTHING, launcher="node", own_arguments_at=options.at + 1)
    found = _with_paths(found, options)
    loaded = options.values(_LOADING)
    if any(_is_place(each) for each in loaded):
        return replace(found, project_file=loaded[0])
    is_evaluating = any(name in _EVALUATING for name, _ in options.flags)
    # A bare name is looked for in the `node_modules` of the working directory.
    is_bare = any(not each.startswith(("/", "file:", "data:", "node:")) for each in loaded)
    if is_evaluating or is_bare or options.at >= len(words) or words[options.at] == "-":
        return replace(found, names=frozenset(launcher.names))
    if _is_relative_path(words[options.at]):
        return replace(found, project_file=words[options.at])
    return found if found.project_file else replace(_NOTHING, own_arguments_at=options.at + 1)


def _file(words: Sequence[str], launcher: Launcher) -> FilesRead:
    options = _options(words, 1, _VALUED["file"])
    if words[options.at : options.at + 1] == ["watch"] and program_name(words[0]) == "tsx":
        options = _options(words, options.at + 1, _VALUED["file"])
    found = _general(words, launcher)
    found = replace(_with_paths(found, options), own_arguments_at=options.at + 1)
    if any(_is_place(value) for _, value in options.flags):
        found = replace(found, is_always=True)
    if options.at < len(words) and _is_relative_path(words[options.at]):
        found = replace(found, project_file=words[options.at])
    return found if found.is_reading or found.project_file else _NOTHING


def _r(words: Sequence[str], launcher: Launcher) -> FilesRead:
    found = _file(words, launcher)
    if "--vanilla" in words and not found.project_file:
        return _NOTHING
    return found


def _shell(words: Sequence[str], _: Launcher) -> FilesRead:
    options = _options(words, 1, _VALUED["shell"])
    has_text = any(
        not name.startswith("--") and "c" in name.removeprefix("-") for name, _ in options.flags
    )
    if has_text:
        text, *rest = words[options.at :] or [""]
        found = _of_text(text)
        # `sh -c 'cd "$0" && exec "$@"' FOLDER COMMAND`: the arguments may be what it runs.
        return _joined(found, _mentioned(rest), found.launcher) if "$" in text else found
    if options.at < len(words) and _is_relative_path(words[options.at]):
        return replace(_NOTHING, launcher=program_name(words[0]), project_file=words[options.at])
    return _NOTHING


def _docker(words: Sequence[str], launcher: Launcher) -> FilesRead:
    reads = {"compose", "build", "buildx", "bake", "stack", "play", "kube"}
    options = _options(words, 1, frozenset({"-H", "--host", "-c", "--context", "--config"}))
    if options.at < len(words) and words[options.at] in reads:
        return _general(words, launcher)
    return _NOTHING


_PARSERS: Mapping[str, Callable[[Sequence[str], Launcher], FilesRead]] = {
    "": _general,
    "npm": _npm,
    "package": _package,
    "uv": _uv,
    "python": _python,
    "node": _node,
    "file": _file,
    "r": _r,
    "shell": _shell,
    "docker": _docker,
}


# Words


def _with_variable(found: FilesRead, name: str, value: str) -> FilesRead:
    parts = [part for part in re.split(r"[:\s=]+", value) if part]
    if any(_is_placeholder(part) for part in parts):
        return replace(found, project_file=found.project_file or f"{name}={value}")
    if name == "NODE_OPTIONS":
        # Its modules are searched from the working directory upwards.
        is_relative = any(not part.startswith(("-", "/")) for part in parts) and any(
            part in _LOADING for part in parts
        )
    else:
        entries = value.split(":") if name != "PYTHONSTARTUP" else [value]
        is_relative = any(not posixpath.isabs(entry) for entry in entries)
    if not is_relative:
        return found
    # In the empty folder a relative path leads nowhere.
    return replace(found, launcher=found.launcher or name, is_always=True, method="elsewhere")


def _package_name(spec: str) -> str:
    """Return the name of a package from text such as `@scope/name@1.2`: here `name`."""
    spec = spec.removeprefix("npm:")
    name = spec.rpartition("/")[2] if spec.startswith("@") else spec
    return re.split(r"[@=<>~!\[]", name, maxsplit=1)[0]


def _is_place(word: str) -> bool:
    """Tell whether a command's word is written as a relative path: `.`, `./x`, `{{PROJECT}}/x`."""
    path = re.sub(r"^file:(?://)?", "", word)
    return bool(re.match(r"\.{1,2}(?:/|$)", path)) or _is_placeholder(path)


def _is_placeholder(word: str) -> bool:
    return word.startswith(("{{PROJECT}}", "{{CWD}}"))


def _is_path(word: str) -> bool:
    return "/" in word


def _is_relative_path(word: str) -> bool:
    """Tell whether a word is a relative path, which may lead into the project.

    An absolute path names the same file in every project: the definition's author chose that file.
    """
    if not word or _URL.match(word):
        return False
    return not posixpath.isabs(word)


def _absolute(word: str, project: str) -> str:
    match = _PLACE.fullmatch(word)
    if match is None:
        return word
    path = posixpath.normpath(posixpath.join(project, match["path"]))
    return f"{match['option'] or ''}{path}"


def names_of(program: str) -> tuple[str, ...]:
    """Return the names of the files that a launcher such as `npx` reads in its folder.

    The result is empty for any other program.
    """
    launcher = _BY_PROGRAM.get(program_name(program))
    return launcher.names if launcher is not None else ()


def all_names() -> frozenset[str]:
    """Return the names of all files that any launcher or version manager reads."""
    return frozenset(name for each in TABLE for name in each.names).union(*SHIMS.values())
