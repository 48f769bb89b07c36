"""Tells whether a server's package has an exact version. If not, each start may run other code."""

import shlex
from collections.abc import Iterable

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import ServerSpec

_RUNNERS = frozenset({"npx", "bunx", "uvx"})
_SHELLS = frozenset({"sh", "bash"})
_NPM_PACKAGE = frozenset({"-p", "--package"})
_PYPI_PACKAGE = frozenset({"--from"})
_PYPI_VALUES = frozenset({"--with", "--with-requirements", "--python", "-p", "--index", "-i"})
_NPM_PINNED = lazy_pattern(r".+@v?\d+\.\d+\.\d+[\w.+-]*")
_PYPI_PINNED = lazy_pattern(r"[^=<>~!@]+(==\d[\w.!+-]*|@\d[\w.!+-]*)")
_VERIFIED = lazy_pattern(r"(?:file:)?/\S*/packages/[0-9a-f]{64}/[^/\s]+")
"""The path of a package that capd downloaded, in a folder named by the package's digest."""
_PLAIN = lazy_pattern(r"@?[A-Za-z0-9][\w./@\[\],<>=~!^*+-]*")


def unpinned_packages(servers: Iterable[ServerSpec]) -> list[str]:
    """Return the packages that any of `servers` runs without an exact version."""
    found = map(unpinned_package, servers)
    return sorted({package for package in found if package is not None})


def npm_packages(servers: Iterable[ServerSpec]) -> list[str]:
    """Return the names, without versions, of the packages that npx fetches for `servers`."""
    found = set()
    for server in servers:
        words = _runner_words(server)
        package = _package(words[1:], is_npm=True) if words and words[0] == "npx" else None
        if package is not None and _PLAIN.fullmatch(package):
            # The first @ of `@scope/name@1.2.3` is part of the name.
            found.add(package[0] + package[1:].partition("@")[0])
    return sorted(found)


def unpinned_package(server: ServerSpec) -> str | None:
    """Return the package that `server` runs without an exact version; None if it runs none."""
    package, is_exact = _from_registry(server)
    return None if is_exact else package


def is_pinned(server: ServerSpec) -> bool:
    """Tell whether `server` runs a package from a registry in an exact version."""
    return _from_registry(server)[1]


def _from_registry(server: ServerSpec) -> tuple[str | None, bool]:
    """Return the package from a registry that `server` runs, and whether its version is exact.

    The package is None if the server runs none from a registry.
    """
    words = _runner_words(server)
    if not words:
        return None, False
    runner, *rest = words
    package = _package(rest, is_npm=runner != "uvx")
    if package is not None and _VERIFIED.fullmatch(package):
        return package, True
    # Other paths, addresses and placeholders are not looked up in a registry.
    if package is None or not _PLAIN.fullmatch(package) or "://" in package:
        return None, False
    pinned = _PYPI_PINNED if runner == "uvx" else _NPM_PINNED
    return package, bool(pinned.fullmatch(package))


def _runner_words(server: ServerSpec) -> list[str]:
    words = [server.command, *server.args]
    if server.command in _SHELLS and server.args[:1] == ("-c",) and len(server.args) > 1:
        try:
            words = shlex.split(server.args[1], comments=True)
        except ValueError:
            return []
    at = next((n for n, word in enumerate(words) if word.rpartition("/")[2] in _RUNNERS), None)
    is_first = server.command not in _SHELLS
    if at is None or (is_first and at > 0):
        return []
    return [words[at].rpartition("/")[2], *words[at + 1 :]]


def _package(words: list[str], *, is_npm: bool) -> str | None:
    named = _NPM_PACKAGE if is_npm else _PYPI_PACKAGE
    skipped = frozenset[str]() if is_npm else _PYPI_VALUES
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in named:
            return value if equals else next(rest, None)
        if word in skipped:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return None
