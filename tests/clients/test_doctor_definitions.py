"""`capd doctor` on what capabilities require, and on clients that use them."""

import json
from typing import Any

import pytest

from capd_client.doctor.definitions import check_node, check_packages, check_secrets, is_within
from capd_client.doctor.hooks import check_hooks
from capd_client.doctor.other_editors import check_other_editors

from .patients import Patient, levels


def wanting(**more: Any) -> dict[str, Any]:
    return {"tap": "mine", "name": "web", **more}


# Secrets and packages


def test_a_missing_secret_is_named_with_the_command_that_stores_it(patient: Patient) -> None:
    both = [wanting(missing=["TOKEN"]), wanting(name="git", missing=["TOKEN"])]

    [found] = check_secrets(patient.served(capabilities=both))

    assert (found.level, found.what) == (
        "note",
        "TOKEN has no value; wanted by mine/web, mine/git",
    )
    assert found.fix.startswith("capd secret set TOKEN")


def test_of_many_missing_secrets_the_first_are_named(patient: Patient) -> None:
    many = [wanting(missing=[f"KEY_{at}" for at in range(9)])]

    *named, rest = check_secrets(patient.served(capabilities=many))

    assert [each.what.split()[0] for each in named] == [f"KEY_{at}" for at in range(5)]
    assert rest.what == "4 further ones are missing (`capd secret list`)"


def test_secrets_that_are_all_there_are_well(patient: Patient) -> None:
    found = list(check_secrets(patient.served(capabilities=[wanting(missing=[])])))

    assert levels(found) == [("secrets", "ok")]


def test_packages_without_a_version_are_named_with_who_runs_them(patient: Patient) -> None:
    entries = [wanting(unpinned=["b-server"]), wanting(name="x", unpinned=["a", "b-server"])]

    [found] = check_packages(patient.served(capabilities=entries))

    assert found.level == "note"
    assert found.what.endswith(": a (mine/x); b-server (mine/web, mine/x)")
    assert "`capd check`" in found.fix


def test_packages_that_are_all_of_one_version_are_well(patient: Patient) -> None:
    found = list(check_packages(patient.served(capabilities=[wanting(unpinned=[])])))

    assert levels(found) == [("packages", "ok")]


# Node.js


def fetched(patient: Patient, package: str, needs: object) -> None:
    """Create the files that npx leaves after it has fetched `package`."""
    folder = f".npm/_npx/{abs(hash(package))}"
    patient.file(f"{folder}/package.json", json.dumps({"dependencies": {package: "^1.0.0"}}))
    manifest = {"name": package, "engines": {"node": needs}}
    patient.file(f"{folder}/node_modules/{package}/package.json", json.dumps(manifest))


@pytest.mark.parametrize(("needs", "expected"), [(">=24", ["error"]), (">=20", []), (7, [])])
def test_a_package_that_needs_a_newer_node_is_told(
    patient: Patient, needs: object, expected: list[str]
) -> None:
    fetched(patient, "@org/server", needs)
    fetched(patient, "nobodys", ">=99")
    entries = [wanting(npm_packages=["@org/server"])]

    found = list(check_node(patient.served(capabilities=entries)))

    assert [each.level for each in found] == expected
    if expected:
        assert found[0].what == (
            f"@org/server needs node >=24, and {patient.bin}/node is v22.1.0; wanted by mine/web"
        )


def test_a_cache_of_npx_that_is_damaged_costs_nothing(patient: Patient) -> None:
    patient.file(".npm/_npx/a/package.json", "{")
    patient.file(".npm/_npx/b/package.json", "[]")

    found = list(check_node(patient.served(capabilities=[wanting(npm_packages=["x"])])))

    assert found == []


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("v20.20.2", ">=18", True),
        ("v20.20.2", ">=20.20.2", True),
        ("v20.20.2", ">=20.20.3", False),
        ("v20.20.2", ">= 22.0.0", False),
        ("v20.20.2", ">20", False),
        ("v21.0.0", ">20", True),
        ("v20.20.2", "<20", False),
        ("v20.20.2", "<=20", True),
        ("v20.20.2", ">=18 <20", False),
        ("v20.20.2", "^18.0.0 || ^20.9.0 || >=22", True),
        ("v21.1.0", "^18.0.0 || ^20.9.0 || >=22", False),
        ("0.2.9", "^0.2.3", True),
        ("0.3.0", "^0.2.3", False),
        ("0.0.3", "^0.0.3", True),
        ("0.0.9", "^0.0.3", False),
        ("0.0.9", "^0.0", True),
        ("v20.20.2", "20.x", True),
        ("v20.20.2", "18.x || 22.x", False),
        ("v20.20.2", "20", True),
        ("v20.20.2", "~20.20.0", True),
        ("v20.20.2", "~20.19", False),
        ("v20.20.2", "20.20.2", True),
        ("v20.20.2", "18 - 22", True),
        ("v23.0.0", "18 - 22", False),
        ("v20.20.2", "*", True),
        ("v20.20.2", "", True),
        ("v20.20.2", "whatever", True),
        ("nightly", ">=99", True),
        ("v20.0.0-rc.1", ">=20", True),
    ],
)
def test_ranges_of_versions_are_read_as_npm_reads_them(
    version: str, wanted: str, expected: bool
) -> None:
    assert is_within(version, wanted) is expected


# Hooks


def test_prompts_that_reach_no_session_are_told(patient: Patient) -> None:
    count = {"client": "claude", "linked": 0, "unlinked": 3, "reason": "ambiguous"}

    [found] = check_hooks(patient.served(hooks=[count]))

    assert (found.level, found.why) == ("warning", "more than one session may be meant")
    assert found.what == "3 prompts of Claude Code reached no session (0 did)"


def test_few_prompts_that_reach_no_session_are_a_note(patient: Patient) -> None:
    count = {"client": "claude", "linked": 9, "unlinked": 1, "reason": "none"}

    found = list(check_hooks(patient.served(hooks=[count])))

    assert levels(found) == [("hooks", "note")]


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        ({"calls": 2, "linked_by": ""}, [("hooks", "warning")]),
        ({"calls": 0, "linked_by": ""}, []),
        ({"calls": 2, "linked_by": "its own connection"}, [("hooks", "ok")]),
        ({"calls": 2, "linked_by": "", "client": "zed"}, []),
    ],
    ids=["calls without a prompt", "nothing asked yet", "linked", "another client"],
)
def test_an_installed_hook_that_is_never_heard_is_told(
    patient: Patient, session: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    patient.capd("install", "claude")
    sessions = [{"key": "s-1", "client": "claude-code", **session}]

    found = list(check_hooks(patient.served(sessions=sessions)))

    assert levels(found) == expected
    assert not expected or "Claude Code" in found[0].what


def test_a_hook_that_is_not_installed_is_not_missed(patient: Patient) -> None:
    sessions = [{"key": "s-1", "client": "claude-code", "calls": 3, "linked_by": ""}]

    found = list(check_hooks(patient.served(sessions=sessions)))

    assert found == []


# Clients that capd was put into by hand


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".codex/config.toml", '[mcp_servers.capd]\ncommand = "COMMAND"\nargs = ["mcp"]\n'),
        (".gemini/settings.json", '{"mcpServers": {"capd": {"command": "COMMAND"}}} // hi'),
        (".cursor/mcp.json", '{"mcpServers": {"mine": {"command": "COMMAND"}}}'),
        (".config/zed/settings.json", '{"context_servers": {"capd": {"command": "COMMAND"}}}'),
        (".config/kilo/kilo.jsonc", '{"mcp": {"capd": {"command": ["COMMAND", "mcp"]}}}'),
    ],
)
def test_each_client_that_starts_capd_is_looked_at(patient: Patient, file: str, text: str) -> None:
    program = patient.program("capd", "exit 0")
    patient.file(file, text.replace("COMMAND", str(program)))
    there = list(check_other_editors(patient.seen()))
    program.unlink()

    [gone] = check_other_editors(patient.seen())

    assert levels(there) == [("editors", "ok")]
    assert gone.level == "error"
    assert f"cannot start capd: {program} is not there" in gone.what
    assert "`command -v capd`" in gone.fix


@pytest.mark.parametrize("text", ["", "{}", '{"mcpServers": {"git": {"command": "uvx"}}}', "[]"])
def test_a_client_without_capd_is_left_alone(patient: Patient, text: str) -> None:
    patient.file(".cursor/mcp.json", text)

    found = list(check_other_editors(patient.seen()))

    assert [each.level for each in found] in ([], ["note"])
    assert not [each for each in found if "cannot start" in each.what]


def test_an_address_in_place_of_a_command_is_a_note(patient: Patient) -> None:
    patient.file(".cursor/mcp.json", '{"mcpServers": {"capd": {"url": "http://127.0.0.1:8377"}}}')

    [found] = check_other_editors(patient.seen())

    assert (found.level, found.what.split(" (")[0]) == ("note", "Cursor reaches capd its own way")
