"""Real kinds of registry entries: each is started one way, or refused with the reason."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from capd.core.mcp_registry.resolution import Artifact, InstalledLaunchers, Kind, launch, resolve
from capd.core.mcp_registry.server_json import Entry, EntryError, read_entry
from registry_server import entry, package

ALL = InstalledLaunchers(frozenset({"npx", "uvx", "docker"}))
DIGEST = "sha256:" + "a" * 64
FETCHED = Artifact("sha512-x", "/d/packages/p.tgz", "main", DIGEST)
NPX = ("npx", "-y", "--package=file:/d/packages/p.tgz", "--", "main")
UVX = ("uvx", "--from", "/d/packages/p.tgz", "main")
DOCKER = ("docker", "run", "-i", "--rm")
MOUNT = {
    "type": "named",
    "name": "--mount",
    "value": "type=bind,src={source_path},dst=/data",
    "variables": {"source_path": {"format": "filepath", "isRequired": True}},
}


def read(**said: Any) -> Entry:
    return read_entry(json.dumps(entry("io.github.x/y", **said)).encode())


def of_package(kind: str = "npm", identifier: str = "some-mcp", **more: Any) -> dict[str, Any]:
    return {"packages": [package(kind, identifier, **more)]}


def remote(url: str, kind: str = "streamable-http", **more: Any) -> dict[str, Any]:
    return {"remotes": [{"type": kind, "url": url, **more}]}


def of_mount(value: str, **variables: dict[str, Any]) -> dict[str, Any]:
    """An image with a mount, whose variables its publisher describes."""
    argument = {"type": "named", "name": "--mount", "value": value, "variables": variables}
    return of_package("oci", "owner/image", runtimeArguments=[argument])


@dataclass(frozen=True)
class Case:
    """An entry, the answers to its inputs, and the expected definition."""

    said: dict[str, Any]
    command: tuple[str, ...] = ()
    answers: dict[str, list[str]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    wanted: Kind | None = None


STARTED = {
    "npm": Case(of_package(), NPX),
    "npm with a scope": Case(of_package(identifier="@scope/some-mcp"), NPX),
    "npm that writes its runner's own options": Case(
        of_package(
            runtimeHint="npx",
            runtimeArguments=[
                {"type": "positional", "value": "-y"},
                {"type": "named", "name": "--yes"},
            ],
        ),
        NPX,
    ),
    "npm with fixed words": Case(
        of_package(
            packageArguments=[
                {"type": "positional", "value": "mcp"},
                {"type": "named", "name": "--transport", "value": "stdio"},
                {"type": "named", "name": "--quiet"},
            ]
        ),
        (*NPX, "mcp", "--transport", "stdio", "--quiet"),
    ),
    "npm with a required folder, any number of times": Case(
        of_package(
            packageArguments=[
                {
                    "type": "positional",
                    "valueHint": "target_dir",
                    "description": "Path to access",
                    "isRequired": True,
                    "isRepeated": True,
                }
            ]
        ),
        (*NPX, "/src", "--eval"),
        {"target_dir": ["/src", "--eval"]},
    ),
    "npm with a default that nobody changed": Case(
        of_package(
            packageArguments=[
                {"type": "named", "name": "--mode", "default": "local", "choices": ["local", "far"]}
            ]
        ),
        (*NPX, "--mode", "local"),
    ),
    "npm with a switch that is on": Case(
        of_package(
            packageArguments=[
                {
                    "type": "named",
                    "name": "--write",
                    "format": "boolean",
                    "description": "May write",
                }
            ]
        ),
        (*NPX, "--write"),
        {"write": ["true"]},
    ),
    "npm with an option that nobody gave": Case(
        of_package(
            packageArguments=[
                {"type": "named", "name": "--port", "format": "number", "description": "The port"}
            ]
        ),
        NPX,
    ),
    "PyPI": Case(of_package("pypi", "some-mcp"), UVX),
    "PyPI with a Python of its own": Case(
        of_package(
            "pypi",
            runtimeHint="uvx",
            runtimeArguments=[{"type": "named", "name": "--python", "value": "3.12"}],
        ),
        ("uvx", "--python", "3.12", "--from", "/d/packages/p.tgz", "main"),
    ),
    "PyPI with a secret and a choice in its environment": Case(
        of_package(
            "pypi",
            environmentVariables=[
                {"name": "API_KEY", "isRequired": True, "isSecret": True},
                {"name": "UNITS", "default": "metric", "choices": ["metric", "imperial"]},
                {"name": "REGION", "description": "Optional"},
            ],
        ),
        UVX,
        {"API_KEY": ["{{ENV:API_KEY}}"]},
        {"API_KEY": "{{ENV:API_KEY}}", "UNITS": "metric"},
    ),
    "PyPI with a template in its environment": Case(
        of_package(
            "pypi",
            environmentVariables=[
                {
                    "name": "DSN",
                    "value": "postgres://{host}/{kept}",
                    "variables": {"host": {"isRequired": True}},
                }
            ],
        ),
        UVX,
        {"host": ["db.example"]},
        {"DSN": "postgres://db.example/{kept}"},
    ),
    "PyPI whose version is that of its entry": Case(
        {"packages": [{"registryType": "pypi", "identifier": "a", "transport": {"type": "stdio"}}]},
        UVX,
    ),
    "an image with its tag in its name": Case(
        of_package("oci", "ghcr.io/owner/image:1.2.3", version=""),
        (*DOCKER, f"ghcr.io/owner/image@{DIGEST}"),
    ),
    "an image of Docker Hub": Case(
        of_package("oci", "mcp/filesystem"),
        (*DOCKER, f"docker.io/mcp/filesystem@{DIGEST}"),
    ),
    "an image with a secret, which only the environment holds": Case(
        of_package(
            "oci",
            "docker.io/owner/image:1.2.3",
            environmentVariables=[{"name": "TOKEN", "isRequired": True, "isSecret": True}],
        ),
        (*DOCKER, "-e", "TOKEN", f"docker.io/owner/image@{DIGEST}"),
        {"TOKEN": ["{{ENV:TOKEN}}"]},
        {"TOKEN": "{{ENV:TOKEN}}"},
    ),
    "an image with a folder that its user chooses": Case(
        of_package("oci", "owner/image", runtimeHint="docker", runtimeArguments=[MOUNT]),
        (*DOCKER, "--mount", "type=bind,src=/src,dst=/data", f"docker.io/owner/image@{DIGEST}"),
        {"source_path": ["/src"]},
    ),
    "an image of a registry on this machine": Case(
        of_package("oci", "localhost:5000/image:1.2.3", version=""),
        (*DOCKER, f"localhost:5000/image@{DIGEST}"),
    ),
    "a remote": Case(remote("https://mcp.example.com/mcp"), url="https://mcp.example.com/mcp"),
    "a remote with a secret header": Case(
        remote(
            "https://mcp.example.com/mcp",
            headers=[
                {
                    "name": "Authorization",
                    "value": "Bearer {token}",
                    "variables": {"token": {"isRequired": True, "isSecret": True}},
                },
                {"name": "X-Region", "default": "eu", "choices": ["eu", "us"]},
            ],
        ),
        answers={"token": ["{{ENV:TOKEN}}"]},
        url="https://mcp.example.com/mcp",
        headers={"Authorization": "Bearer {{ENV:TOKEN}}", "X-Region": "eu"},
    ),
    "a remote whose URL has a place, which a value cannot leave": Case(
        remote("https://{tenant}.example.com/mcp", variables={"tenant": {"isRequired": True}}),
        answers={"tenant": ["evil.test/x?"]},
        url="https://evil.test%2Fx%3F.example.com/mcp",
    ),
    "a remote that streams events": Case(
        remote("https://mcp.example.com/sse", "sse"), url="https://mcp.example.com/sse"
    ),
    "a remote on this machine": Case(
        remote("http://127.0.0.1:8080/mcp"), url="http://127.0.0.1:8080/mcp"
    ),
    "two packages, of which npm comes first": Case(
        {"packages": [package("oci", "owner/image"), package("npm", "some-mcp")]}, NPX
    ),
    "two packages, of which the image is wanted": Case(
        {"packages": [package("oci", "owner/image"), package("npm", "some-mcp")]},
        (*DOCKER, f"docker.io/owner/image@{DIGEST}"),
        wanted="oci",
    ),
    "a package and a remote": Case({**of_package(), **remote("https://mcp.example.com/mcp")}, NPX),
    "a bundle and a remote, which can be used": Case(
        {
            **of_package("mcpb", "https://example.com/a.mcpb"),
            **remote("https://mcp.example.com/mcp"),
        },
        url="https://mcp.example.com/mcp",
    ),
    "deprecated": Case({**of_package(), "status": "deprecated"}, NPX),
}

REFUSED = {
    "deleted": ({**of_package(), "status": "deleted"}, "was deleted from the registry"),
    "nothing at all": ({}, "neither a package nor an address"),
    "a bundle": (of_package("mcpb", "https://example.com/a.mcpb"), "a bundle for desktop apps"),
    ".NET": (of_package("nuget", "Some.Server"), "dnx"),
    "a crate": (of_package("cargo", "some-mcp"), "a crate"),
    "an unknown kind": (of_package("brew", "some-mcp"), "does not know"),
    "an option as a name": (of_package(identifier="--eval"), "not a name of a package"),
    "an address as a name": (
        of_package(identifier="git+https://x.test/a"),
        "not a name of a package",
    ),
    "a way out of the folder": (of_package("pypi", "../../x"), "not a name of a package"),
    "an option of uvx as a name": (of_package("pypi", "--with=evil"), "not a name of a package"),
    "a range of versions": (of_package(version="^1.0.0"), "not one exact version"),
    "a moving version": (of_package(version="latest"), "not one exact version"),
    "an option as a version": (of_package("pypi", version="1 --index x"), "not one exact version"),
    "an option as an image": (of_package("oci", "--privileged"), "not a name of an image"),
    "an image without a version": (
        {"packages": [package("oci", "owner/image:latest", "")]},
        "no exact version",
    ),
    "a privileged image": (
        of_package(
            "oci", "owner/image", runtimeArguments=[{"type": "named", "name": "--privileged"}]
        ),
        "--privileged",
    ),
    "an image with a folder that its publisher chose": (
        of_package(
            "oci",
            "owner/image",
            runtimeArguments=[{"type": "named", "name": "-v", "value": "/:/host"}],
        ),
        "its publisher chose",
    ),
    "an image with a folder that its publisher chose, in docker's other spelling": (
        of_mount("Type=Bind,SRC=/,dst=/host"),
        "its publisher chose",
    ),
    "an image with a folder that its publisher chose, in quotes": (
        of_mount('type=bind,"source=/",dst=/host'),
        "its publisher chose",
    ),
    "an image with a volume that is a folder of this machine": (
        of_mount(
            "type=volume,dst=/host,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/"
        ),
        "its publisher chose",
    ),
    "an image with a folder whose last part alone is asked for": (
        of_mount("type=bind,src=/{rest},dst=/host", rest={}),
        "its publisher chose",
    ),
    "an image with a mount of a kind that is asked for": (
        of_mount("{kind},src=/,dst=/host", kind={}),
        "its publisher chose",
    ),
    "npx with words of its own": (
        of_package(runtimeArguments=[{"type": "positional", "value": "--call=evil"}]),
        "does not pass on",
    ),
    "another index for uvx": (
        of_package(
            "pypi", runtimeArguments=[{"type": "named", "name": "--index", "value": "https://x"}]
        ),
        "does not pass on",
    ),
    "a variable that loads code": (
        of_package(environmentVariables=[{"name": "NODE_OPTIONS", "value": "--require=/x.js"}]),
        "NODE_OPTIONS",
    ),
    "a variable of npm": (
        of_package(environmentVariables=[{"name": "npm_config_registry", "value": "https://x"}]),
        "npm_config_registry",
    ),
    "another server's secret": (
        of_package(environmentVariables=[{"name": "A", "value": "{{ENV:GITHUB_TOKEN}}"}]),
        "which capd would fill in",
    ),
    "another server's secret as a default": (
        of_package(environmentVariables=[{"name": "A", "default": "{{ENV:GITHUB_TOKEN}}"}]),
        "which capd would fill in",
    ),
    "a package that answers over HTTP": (
        {
            "packages": [
                {
                    **package("npm", "some-mcp"),
                    "transport": {"type": "streamable-http", "url": "http://localhost:3000/mcp"},
                }
            ]
        },
        "start it yourself",
    ),
    "a remote without TLS": (remote("http://mcp.example.com/mcp"), "not https"),
    "a remote with a user": (remote("https://a:b@mcp.example.com/mcp"), "a user in it"),
    "a remote that is a file": (remote("file:///etc/passwd"), "not https"),
    "a header that is two": (
        remote("https://a.test/mcp", headers=[{"name": "A\r\nB", "value": "x"}]),
        "not a name of a header",
    ),
}


@pytest.mark.parametrize("case", STARTED.values(), ids=list(STARTED))
def test_an_entry_is_started_so(case: Case) -> None:
    found = resolve(read(**case.said), ALL, case.wanted)

    made = launch(found, FETCHED, case.answers)

    assert made.command == case.command
    assert (dict(made.env), made.url, dict(made.headers)) == (case.env, case.url, case.headers)


@pytest.mark.parametrize(("said", "why"), REFUSED.values(), ids=list(REFUSED))
def test_an_entry_that_cannot_be_started_says_why(said: dict[str, Any], why: str) -> None:
    with pytest.raises(EntryError) as refused:
        resolve(read(**said), ALL)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "help_"), [("npm", "install Node.js"), ("pypi", "capd[uv]"), ("oci", "Docker")]
)
def test_a_missing_launcher_is_named_with_what_would_help(kind: str, help_: str) -> None:
    with pytest.raises(EntryError) as refused:
        resolve(
            read(**of_package(kind, "owner/image" if kind == "oci" else "a")), InstalledLaunchers()
        )

    assert help_ in str(refused.value)


def test_a_missing_launcher_leaves_the_other_package() -> None:
    said = {"packages": [package("npm", "a"), package("pypi", "a")]}

    found = resolve(read(**said), InstalledLaunchers(frozenset({"uvx"})))

    assert (found.kind, found.others) == ("pypi", ())


@pytest.mark.parametrize(
    ("said", "answers", "why"),
    [
        ({"isRequired": True}, {}, "needs A"),
        ({"choices": ["x", "y"]}, {"A": ["z"]}, "choose one of: x, y"),
        ({"format": "number"}, {"A": ["1; rm"]}, "it is a number"),
        ({"format": "boolean"}, {"A": ["yes"]}, "true or false"),
        ({}, {"A": ["one\ntwo"]}, "one line"),
        ({}, {"B": ["x"]}, "asks for no 'B'"),
    ],
)
def test_a_value_that_an_input_does_not_take_is_refused(
    said: dict[str, Any], answers: dict[str, list[str]], why: str
) -> None:
    found = resolve(read(**of_package(environmentVariables=[{"name": "A", **said}])), ALL)

    with pytest.raises(EntryError) as refused:
        launch(found, FETCHED, answers)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    "variable", [{"default": "/"}, {"choices": ["/"]}, {"default": "/", "choices": ["/"]}]
)
@pytest.mark.parametrize(
    ("flag", "value"), [("-v", "{folder}:/host"), ("--mount", "type=bind,src={folder},dst=/host")]
)
def test_a_folder_that_is_mounted_is_a_persons_choice_whatever_its_publisher_proposes(
    flag: str, value: str, variable: dict[str, Any]
) -> None:
    mount = {"type": "named", "name": flag, "value": value, "variables": {"folder": variable}}
    found = resolve(read(**of_package("oci", "owner/image", runtimeArguments=[mount])), ALL)

    with pytest.raises(EntryError) as refused:
        launch(found, FETCHED, {})

    assert "needs folder" in str(refused.value)
    (asked,) = found.inputs
    assert (asked.default, asked.choices, asked.is_required) == ("", (), True)


@pytest.mark.parametrize("brace", [{"default": "{"}, {"choices": ["{"], "default": "{"}])
@pytest.mark.parametrize(
    "said",
    [
        lambda named: of_package(environmentVariables=[named]),
        lambda named: remote("https://a.test/mcp", headers=[named]),
        lambda named: of_package(packageArguments=[{"type": "named", **named}]),
    ],
)
def test_a_secret_of_another_server_is_not_put_together_from_parts(
    said: Callable[[dict[str, Any]], dict[str, Any]], brace: dict[str, Any]
) -> None:
    named = {"name": "A", "value": "{x}{ENV:GITHUB_TOKEN}}", "variables": {"x": brace}}
    found = resolve(read(**said(named)), ALL)

    with pytest.raises(EntryError) as refused:
        launch(found, FETCHED, {})

    assert "which capd would fill in" in str(refused.value)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"name": "API_KEY", "isSecret": True}, {"API_KEY": True}),
        ({"name": "GITHUB_TOKEN", "isRequired": True}, {"GITHUB_TOKEN": True}),
        ({"name": "MAX_TOKENS"}, {"MAX_TOKENS": False}),
        ({"name": "TOKEN_LIMIT", "format": "number"}, {"TOKEN_LIMIT": False}),
        ({"name": "MODE", "choices": ["a"]}, {"MODE": False}),
        (
            {"name": "AUTH", "isSecret": True, "value": "Bearer {key}", "variables": {"key": {}}},
            {"key": True},
        ),
    ],
)
def test_what_is_or_looks_like_a_secret_is_kept_as_one(
    said: dict[str, Any], expected: dict[str, bool]
) -> None:
    found = resolve(read(**of_package(environmentVariables=[said])), ALL)

    assert {each.name: each.is_secret for each in found.inputs} == expected


@pytest.mark.parametrize(
    "said",
    [
        {"version": "latest"},
        {"packages": [{"identifier": "a"}]},
        {"packages": "all"},
        {"packages": [package("npm", "a")] * 65},
        {"description": "x" * 5000},
        {"description": "a\0b"},
        {
            "packages": [
                package("npm", "a", environmentVariables=[{"name": "A", "value": "b" * 9000}])
            ]
        },
    ],
)
def test_an_entry_out_of_bounds_is_refused(said: dict[str, Any]) -> None:
    whole = entry("io.github.x/y")
    whole["server"] |= said

    with pytest.raises(EntryError):
        read_entry(json.dumps(whole).encode())


def test_a_nested_document_is_refused_and_does_not_end_the_reader() -> None:
    with pytest.raises(EntryError):
        read_entry(b'{"server": ' + b"[" * 100_000)
