"""Which package commands pin an exact version."""

import pytest

from capd.core.taps.package_pins import (
    is_pinned,
    npm_packages,
    unpinned_package,
    unpinned_packages,
)
from capd_protos.types import ServerName, ServerSpec, TapName


@pytest.mark.parametrize(
    ("command", "package"),
    [
        (("npx", "-y", "a-server@1.0.0"), None),
        (("npx", "-y", "@org/server@2026.8.31", "--flag"), None),
        (("npx", "-y", "a-server@1.0.0-beta.2"), None),
        (("npx", "-y", "-p", "two-bins@1.1.1", "one-of-them"), None),
        (("npx", "--package=two-bins@1.1.1", "one-of-them"), None),
        (("npx", "-y", "a-server"), "a-server"),
        (("npx", "-y", "@org/server"), "@org/server"),
        (("npx", "a-server@latest"), "a-server@latest"),
        (("npx", "a-server@^1.0.0"), "a-server@^1.0.0"),
        (("npx", "a-server@1"), "a-server@1"),
        (("npx", "--package", "two-bins", "one-of-them@1.0.0"), "two-bins"),
        (("/usr/bin/npx", "a-server"), "a-server"),
        (("bunx", "@org/server"), "@org/server"),
        (("uvx", "a-server==1.0.0"), None),
        (("uvx", "a-server[cli]==1.0.0"), None),
        (("uvx", "a-server@0.5.0"), None),
        (("uvx", "--with", "mcp<2", "a-server==1.0.0"), None),
        (("uvx", "--from", "pkg==1.0.0", "command"), None),
        (("uvx", "-p", "3.12", "a-server==1.0.0"), None),
        (("uvx", "a-server"), "a-server"),
        (("uvx", "a-server>=1.0"), "a-server>=1.0"),
        (("uvx", "a-server@latest"), "a-server@latest"),
        (("uvx", "--from", "pkg", "command==1.0.0"), "pkg"),
        (("uvx", "--from", "git+https://example.com/x", "command"), None),
        (("uvx", "./a-server"), None),
        (("npx", "{{ENV:PACKAGE}}"), None),
        (("npx",), None),
        (("sh", "-c", "A=1 exec npx -y a-server"), "a-server"),
        (("sh", "-c", "A=1 exec uvx --with 'mcp<2' a-server==1.0.0"), None),
        (("sh", "-c", "it's npx"), None),
        (("sh", "script.sh"), None),
        (("a-server", "npx", "b"), None),
    ],
)
def test_a_runner_without_an_exact_version_is_found(
    command: tuple[str, ...], package: str | None
) -> None:
    server = ServerSpec(
        ServerName("s"), "stdio", TapName("t"), command=command[0], args=command[1:]
    )

    got = unpinned_package(server)

    assert got == package


def test_packages_of_many_servers_are_named_once_each() -> None:
    commands = [
        ("npx", "-y", "b-server"),
        ("npx", "-y", "@org/a@1.0.0"),
        ("npx", "b-server"),
        ("uvx", "c-server"),
        ("python", "-m", "d"),
        ("npx", "{{ENV:PACKAGE}}"),
    ]
    servers = [
        ServerSpec(ServerName(f"s{at}"), "stdio", TapName("t"), command=words[0], args=words[1:])
        for at, words in enumerate(commands)
    ]

    got = (unpinned_packages(servers), npm_packages(servers))

    assert got == (["b-server", "c-server"], ["@org/a", "b-server"])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("npx", "-y", f"--package=file:/d/packages/{'a' * 64}/x-1.tgz", "--", "x"), True),
        (("uvx", "--from", f"/d/packages/{'a' * 64}/x-1-py3-none-any.whl", "x"), True),
        (("uvx", "--from", "/d/packages/x.whl", "x"), False),
        (("uvx", "x==1.0.0"), True),
        (("uvx", "x"), False),
    ],
)
def test_a_package_that_was_fetched_and_checked_is_one_version(
    command: tuple[str, ...], expected: bool
) -> None:
    server = ServerSpec(
        ServerName("s"), "stdio", TapName("t"), command=command[0], args=command[1:]
    )

    assert is_pinned(server) is expected
    assert unpinned_package(server) is None or not expected
