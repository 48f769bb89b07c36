"""Finds the files that a server's definition names, so that trust covers their contents.

Every word of the command line and of the environment is a candidate, also inside an option
(`--require=./x.js`) and inside a shell command. Files that a runner reads without being told to,
such as npm's package.json, are candidates as well. The caller checks whether such a file exists.
What a script itself reads or imports is not followed.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from capd.core.lazy_patterns import lazy_pattern
from capd.core.servers.launchers import names_of
from capd_protos.types import ServerSpec

MOST_NAMES = 5000

_BETWEEN = lazy_pattern(r"[\s=:,;|&<>()\"'`]+")
_SCHEME = lazy_pattern(r"\bfile://")
_MODULE = lazy_pattern(r"--module|-[A-Za-z]*?m(?P<joined>[\w.]*)")
# An option with its value (`-r./x.js`), a file of arguments (`@x.args`).
_JOINED = lazy_pattern(r"@|-[A-Za-z](?=[^-])")
_DEEPEST_PACKAGE = 32
_FOLDERS = lazy_pattern(r"\{\{(?:CWD|PROJECT)\}\}")

# By the name of a program: the files that it reads in the folder that it runs in, besides those
# in `core.servers.launchers`.
_IMPLIED: Mapping[str, tuple[str, ...]] = {
    "bun": ("package.json", "bunfig.toml"),
    "bunx": ("package.json",),
    "bundle": ("Gemfile", "Gemfile.lock"),
    "cargo": ("Cargo.toml", "Cargo.lock"),
    "deno": ("deno.json", "deno.jsonc"),
    "docker": ("Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml"),
    "go": ("go.mod", "go.sum", "main.go"),
    "just": ("justfile", "Justfile"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "npm": ("package.json", "package-lock.json", ".npmrc"),
    "npx": ("package.json", ".npmrc"),
    "pipx": ("pyproject.toml",),
    "pnpm": ("package.json", "pnpm-lock.yaml", ".npmrc"),
    "poetry": ("pyproject.toml", "poetry.lock"),
    "rake": ("Rakefile",),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "uv": ("pyproject.toml", "uv.lock", "uv.toml"),
    "uvx": ("pyproject.toml", "uv.toml"),
    "yarn": ("package.json", "yarn.lock", ".yarnrc.yml"),
}
# Suffixes that an interpreter adds to a name.
_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".py")
# The files that an interpreter runs if a folder is named.
_ENTRIES = ("__main__.py", "__init__.py", "package.json", "index.js", "index.mjs", "index.cjs")


def named_files(server: ServerSpec, project: str) -> tuple[str, ...]:
    """Return every path that `server` may name, absolute or relative to `project`, each once.

    If the definition names too many to look up, `MOST_NAMES` + 1 of them are returned.
    """
    found: dict[str, None] = {}
    for name in _names(server, project):
        # No path contains NUL, and looking for one raises a different error.
        if "\0" not in name:
            found.setdefault(name)
        if len(found) > MOST_NAMES:
            break
    return tuple(found)


def _names(server: ServerSpec, project: str) -> Iterator[str]:
    for text in (server.command, *server.args, *server.env.values()):
        plain = _SCHEME.sub("", _FOLDERS.sub(lambda _: project, text))
        for word in (plain, plain.partition("=")[2], *_BETWEEN.split(plain)):
            yield from _of_word(word)
    words = [word for text in (server.command, *server.args) for word in _BETWEEN.split(text)]
    for word in words:
        yield from _IMPLIED.get(PurePosixPath(word).name, ())
        yield from names_of(word)
    for folder in server.env.get("PATH", "").split(":"):
        # The program itself, in the folders of a PATH that the definition sets.
        yield f"{_FOLDERS.sub(lambda _: project, folder)}/{server.command}"
    for word, following in zip(words, [*words[1:], ""], strict=True):
        yield from _of_module(word, following)


def _of_module(flag: str, following: str) -> Iterator[str]:
    """Yield the files of a Python module that an option names: `-m x`, `-Im x`, `-mx`."""
    match = _MODULE.fullmatch(flag)
    if match is None:
        return
    parts = (match["joined"] or following).split(".")
    path = "/".join(parts)
    yield from (f"{path}.py", f"{path}/__main__.py")
    # Python first runs the `__init__.py` of each package around the module.
    for count in range(1, min(len(parts), _DEEPEST_PACKAGE) + 1):
        yield "/".join([*parts[:count], "__init__.py"])


def _of_word(word: str) -> Iterator[str]:
    joined = _JOINED.match(word)
    for name in (word, word[joined.end() :] if joined else ""):
        if name:
            yield name
            yield from (f"{name}{suffix}" for suffix in _SUFFIXES)
            yield from (f"{name}/{entry}" for entry in _ENTRIES)
