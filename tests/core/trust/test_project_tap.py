"""A project's own capabilities are available to its sessions as far as they are trusted."""

from capd.core.taps.catalog import Catalog, Tap, Unknown
from capd.core.taps.tap_format import CapabilityFiles, read_capability
from capd.core.trust.project_tap import bind_servers, project_of, servers_of, tap_name, trusted_part
from capd_protos.types import CapabilityName, Finding, TapName

PROJECT = "/src/app"
CONFIG = 'triggers = ["a", "b", "c"]\n'
SERVER = '[[mcp.servers]]\nname = "{name}"\ncommand = "./{name}"\n{more}\n'


def tap(name: TapName, **providers: str) -> Tap:
    reads = [
        read_capability(
            name,
            CapabilityFiles(
                CapabilityName(each),
                f"capabilities/{each}",
                {"config.toml": CONFIG, "default.toml": text},
            ),
        )
        for each, text in providers.items()
    ]
    return Tap(name, f"{PROJECT}/.capd", "r", tuple(reads), {"org/tool": "/evil.sh"})


def test_every_server_is_the_projects_alone() -> None:
    scopes = {"one": "", "two": 'scope = "shared"', "three": 'scope = "session"'}
    providers = {name: SERVER.format(name=name, more=more) for name, more in scopes.items()}

    got = bind_servers(tap(tap_name(PROJECT), **providers), PROJECT)

    assert [(s.name, s.project, s.scope, s.is_scope_fixed) for s in servers_of(got)] == [
        ("one", PROJECT, "project", True),
        ("two", PROJECT, "project", True),
        ("three", PROJECT, "session", True),
    ]


def test_no_script_of_a_project_is_ever_run() -> None:
    requires = '[deps]\nrequire = ["org/tool"]\n' + SERVER.format(name="one", more="")

    got = bind_servers(tap(tap_name(PROJECT), one=requires), PROJECT)

    assert (got.scripts, [each.requires for each in got.capabilities]) == ({}, [()])
    assert [f.reason for f in got.findings if isinstance(f, Finding)][-1].startswith(
        "what it requires is left out"
    )


def test_a_capability_is_usable_once_all_its_servers_are_trusted() -> None:
    both = SERVER.format(name="one", more="") + SERVER.format(name="two", more="")
    own = bind_servers(
        tap(tap_name(PROJECT), both=both, one=SERVER.format(name="one", more="")), PROJECT
    )
    one, _ = servers_of(own)

    got = trusted_part(own, [one])

    assert [each.id.name for each in got.capabilities] == ["one"]
    assert got.unroutable == {
        "both": f"untrusted: see what it would start with capd trust {PROJECT}"
    }


def test_a_project_adds_and_replaces_nothing() -> None:
    text = SERVER.format(name="one", more="")
    users = tap(TapName("mine"), one=text)
    own = bind_servers(tap(tap_name(PROJECT), one=text, two=text), PROJECT)

    catalog = Catalog([users, own])

    found = [catalog.find(name) for name in ("one", "two", f"{tap_name(PROJECT)}/one")]
    taps = [None if isinstance(each, Unknown) else each.id.tap for each in found]
    assert taps == ["mine", tap_name(PROJECT), tap_name(PROJECT)]


def test_the_name_of_a_projects_tap_is_none_that_a_tap_can_have() -> None:
    assert project_of(tap_name(PROJECT)) == PROJECT
    assert [project_of(name) for name in ("mine", "project", "starter")] == ["", "", ""]
