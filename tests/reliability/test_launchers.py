"""A clone's files cannot change what the user's own launchers start in it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from whole_daemon import wait_for

from .launchers import CASES, Case, Clone, Packages, Programs
from .world import World, text_of

pytestmark = [pytest.mark.reliability, pytest.mark.timeout(600)]


@pytest.fixture
def evil_server() -> list[str]:
    """Return nothing: all that is hostile here is a clone."""
    return []


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return Packages(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("programs"))


def define(world: World, argv: list[str], env: Mapping[str, str] | None = None) -> None:
    """Have a server in the user's own tap."""
    world.home.capability("victim", argv)
    if env:
        file = world.home.folder / "tap/capabilities/victim/default.toml"
        table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items())
        file.write_text(f"{file.read_text()}env = {{ {table} }}\n")


def with_programs(world: World, programs: Programs, case: Case) -> None:
    try:
        folders = programs.path(case.needs)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"it cannot be installed: {error}")
    path = os.pathsep.join([*folders, str(Path(sys.executable).parent), world.home.env["PATH"]])
    # A version manager that the machine has is not what these tests are about.
    kept = [each for each in path.split(os.pathsep) if not each.endswith("shims")]
    world.home.env["PATH"] = os.pathsep.join(kept)
    world.home.env["npm_config_update_notifier"] = "false"


def where(world: World, key: str, folder: Path) -> dict[str, Any]:
    """Start the server for a session in `folder`, and return where it says that it runs."""
    session = world.session(key, folder=folder)
    answer = world.enable(key, "victim")
    assert answer["ok"], answer
    found: dict[str, Any] = json.loads(text_of(session.call("victim__where")))
    return found


def of_session(world: World, key: str) -> dict[str, Any]:
    """Return the status of the server that a session holds."""
    entries = world.home.ask("servers")["servers"]
    return next(each for each in entries if each["name"] == "victim" and key in each["leases"])


@pytest.mark.parametrize("name", CASES)
def test_a_launcher_heeds_nothing_of_a_clone(
    name: str, world: World, packages: Packages, programs: Programs
) -> None:
    case = CASES[name]
    argv = case.argv(packages)
    with_programs(world, programs, case)
    if shutil.which(argv[0], path=world.home.env["PATH"]) is None:
        pytest.skip(f"{argv[0]} is not here")
    define(world, argv, case.env(packages))
    world.start()
    ran: list[str] = []
    wrong: dict[str, object] = {}

    for plant in case.plants:
        key = plant.__name__
        clone = Clone(world.home.folder / "clones" / key, world.home.folder / f"canary-{key}")
        plant(clone)
        try:
            found = where(world, key, clone.folder)
            told = of_session(world, key)
            is_right = (
                found["cwd"] == told["cwd"]
                and (found["cwd"] == str(clone.folder)) is case.is_in_project
                and (case.is_in_project or "capd trust" in told["cwd_reason"])
                # A relative place of its own arguments still means the project.
                and found["args"] in ([], ["."] if case.is_in_project else [str(clone.folder)])
            )
            if not is_right:
                wrong[key] = [found, told["cwd"], told["cwd_reason"]]
        except AssertionError as error:
            wrong[key] = str(error)[-600:]
        if clone.has_run:
            ran.append(key)

    assert (ran, wrong) == ([], {})


@pytest.mark.parametrize("name", ["npx", "python -m", "uv run", "sh -c"])
def test_an_ordinary_folder_is_as_with_a_direct_client(
    name: str, world: World, packages: Packages, programs: Programs
) -> None:
    case = CASES[name]
    with_programs(world, programs, case)
    define(world, case.argv(packages), case.env(packages))
    world.start()
    folder = world.home.folder / "notes"
    folder.mkdir()
    (folder / "notes.txt").write_text("milk")

    found = where(world, "s", folder)

    told = of_session(world, "s")
    assert found["cwd"] == told["cwd"] == str(folder)
    assert told["cwd_reason"] == ""


def test_a_trusted_project_is_as_with_a_direct_client_until_its_files_change(
    world: World, packages: Packages, programs: Programs
) -> None:
    case = CASES["npx"]
    with_programs(world, programs, case)
    define(world, case.argv(packages))
    world.start()
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    clone.npmrc()
    shown = world.home.at_terminal("trust", str(clone.folder), typed="y\n").stdout

    where(world, "s", clone.folder)
    ran_when_trusted = clone.has_run
    told = of_session(world, "s")
    clone.canary.unlink()
    world.home.ask("disable", session="s", name="victim")
    wait_for(lambda: not [s for s in world.home.servers() if s["name"] == "victim"])
    clone.write(".npmrc", (clone.folder / ".npmrc").read_text() + "loglevel=error\n")
    where(world, "t", clone.folder)

    assert ".npmrc" in shown
    assert ran_when_trusted
    assert told["cwd_reason"] == ""
    assert ".npmrc" in of_session(world, "t")["cwd_reason"]
    assert not clone.has_run


def test_a_module_that_comes_after_the_trust_is_not_imported(
    world: World, packages: Packages, programs: Programs
) -> None:
    case = CASES["python -m"]
    with_programs(world, programs, case)
    define(world, case.argv(packages), case.env(packages))
    world.start()
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    clone.write("app.py", "")
    world.home.at_terminal("trust", str(clone.folder), typed="y\n")
    where(world, "s", clone.folder)
    told = of_session(world, "s")
    world.home.ask("disable", session="s", name="victim")
    wait_for(lambda: not [s for s in world.home.servers() if s["name"] == "victim"])

    clone.write("json.py", clone.python)

    where(world, "t", clone.folder)
    assert told["cwd_reason"] == ""
    assert "app.py" in of_session(world, "t")["cwd_reason"]
    assert not clone.has_run
    shown = world.home.at_terminal("trust", str(clone.folder), typed="n\n").stdout
    assert "json.py" in shown


def test_a_server_that_is_a_file_of_the_project_waits_again_when_the_file_has_changed(
    world: World, packages: Packages
) -> None:
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    serve = f"exec {sys.executable} -I {packages.python_script}"
    clone.write("server.sh", f"#!/bin/sh\n{serve}\n", runs=True)
    define(world, ["./server.sh"])
    world.start()
    shown = world.home.at_terminal("trust", str(clone.folder), typed="y\n").stdout
    where(world, "s", clone.folder)
    world.home.ask("disable", session="s", name="victim")
    wait_for(lambda: not [s for s in world.home.servers() if s["name"] == "victim"])
    clone.write("server.sh", f"{clone.shell}{serve}\n", runs=True)

    refused = world.enable("s", "victim")

    world.home.at_terminal("trust", str(clone.folder), typed="y\n")
    assert "server.sh" in shown
    assert not refused["ok"]
    assert f"capd trust {clone.folder}" in refused["text"]
    assert not clone.has_run
    assert world.enable("s", "victim")["ok"]


REFUSED = {
    "a relative command": ["./server.sh"],
    "a script by a relative name": [sys.executable, "server.py"],
    "a script by a placeholder": [sys.executable, "{{PROJECT}}/server.py"],
    "node": ["node", "server.js"],
    "npx of the folder": ["npx", "-y", "."],
    "uvx of the folder": ["uvx", "--from", ".", "canary-server"],
    "uv run of a script": ["uv", "run", "server.py"],
    "a module that is loaded first": ["node", "--require", "./server.js", "/dev/null"],
    "a program of node_modules": ["project-program"],
}


def test_a_file_of_the_project_waits_for_trust(world: World) -> None:
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    clone.write("server.sh", clone.shell, runs=True)
    clone.write("server.py", clone.python)
    clone.write("server.js", clone.js)
    clone.write("node_modules/.bin/project-program", clone.shell, runs=True)
    clone.write("package.json", '{"name": "z", "bin": "server.js"}')
    # As somebody's shell has it who works with Node.js.
    world.home.env["PATH"] = f"./node_modules/.bin:{world.home.env['PATH']}"
    for number, argv in enumerate(REFUSED.values()):
        world.home.capability(f"victim{number}", argv)
    world.start()
    world.session("s", folder=clone.folder)

    answers = [world.enable("s", f"victim{number}") for number in range(len(REFUSED))]

    assert [answer["ok"] for answer in answers] == [False] * len(REFUSED)
    assert [a["text"] for a in answers if f"capd trust {clone.folder}" not in a["text"]] == []
    assert not clone.has_run


def test_a_program_of_the_project_shadows_no_other(
    world: World, packages: Packages, programs: Programs
) -> None:
    with_programs(world, programs, CASES["node FILE"])
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    clone.write("node_modules/.bin/node", clone.shell, runs=True)
    clone.write(".venv/bin/node", clone.shell, runs=True)
    before = f"./node_modules/.bin::{clone.folder}/.venv/bin"
    world.home.env["PATH"] = f"{before}:{world.home.env['PATH']}"
    define(world, ["node", str(packages.script)])
    world.start()

    found = where(world, "s", clone.folder)

    assert found["cwd"] == str(clone.folder)
    assert not clone.has_run


def test_variables_of_a_definition_that_load_by_a_relative_path_find_nothing(
    world: World, packages: Packages, programs: Programs
) -> None:
    case = CASES["node FILE"]
    with_programs(world, programs, case)
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    clone.write("node_modules/extra/index.js", clone.js)
    define(world, case.argv(packages), {"NODE_OPTIONS": "--require extra"})
    world.start()
    world.session("s", folder=clone.folder)

    answer = world.enable("s", "victim")

    # Without the module there is no server, as there is none in a folder without it.
    assert not answer["ok"]
    assert not clone.has_run


def test_deno_takes_no_package_of_the_clone_for_one_of_the_registry(
    world: World, programs: Programs
) -> None:
    with_programs(world, programs, CASES["deno run"])
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    clone.deno_json()
    # No registry has it, so there is nothing to start but what the clone brought.
    define(world, ["deno", "run", "-A", "npm:capd-canary-server@1.0.0"])
    world.start()
    world.session("s", folder=clone.folder)

    answer = world.enable("s", "victim")

    assert not answer["ok"]
    assert not clone.has_run


def test_a_version_manager_is_not_told_by_a_clone_what_to_run(world: World) -> None:
    folder = world.home.folder / "manager" / "shims"
    folder.mkdir(parents=True)
    server = [sys.executable, "-I", "-S", str(Path(__file__).with_name("honest_server.py"))]
    shim = folder / "tool"
    # What asdf does with `path:`.
    shim.write_text(
        "#!/bin/sh\n"
        'if test -e .tool-versions; then "$(sed s/.*path:// .tool-versions)/bin/tool"; fi\n'
        f'exec {" ".join(server)} victim echo "$@"\n'
    )
    shim.chmod(0o755)
    world.home.env["PATH"] = f"{folder}:{world.home.env['PATH']}"
    world.home.capability("victim", ["tool", world.home.tag])
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    clone.tool_versions()
    world.start()
    world.session("s", folder=clone.folder)

    answer = world.enable("s", "victim")

    assert answer["ok"], answer
    assert not clone.has_run
    told = of_session(world, "s")
    assert told["cwd"] != str(clone.folder)
    assert ".tool-versions" in told["cwd_reason"]


def test_capd_itself_imports_nothing_of_the_folder_that_it_is_called_in(world: World) -> None:
    clone = Clone(world.home.folder / "clone", world.home.folder / "canary")
    clone.modules()
    for name in ("capd", "capd_client", "capd_protos", "click", "msgspec", "encodings", "os"):
        clone.write(f"{name}/__init__.py", clone.python)
    clone.npmrc()
    clone.write("bin/node", clone.shell, runs=True)
    clone.write("bin/npx", clone.shell, runs=True)
    clone.write("bin/git", clone.shell, runs=True)
    clone.write(".tool-versions", "nodejs 1\n")
    world.start()
    capd = str(Path(sys.executable).with_name("capd"))
    env = {**world.home.env, "PATH": f"bin:{world.home.env['PATH']}"}
    hook = '{"prompt": "hello", "session_id": "s", "cwd": "' + str(clone.folder) + '"}'
    commands = ("status", "servers", "doctor", "check", "config show", "tap list", "hook claude")

    said = {
        command: subprocess.run(
            [capd, *command.split()], cwd=clone.folder, env=env, input=hook,
            capture_output=True, text=True, timeout=120, check=False,
        )
        for command in commands
    }  # fmt: skip

    assert {c: d.stderr for c, d in said.items() if "Traceback" in d.stderr} == {}
    assert not clone.has_run


def test_what_a_server_left_in_the_shared_folder_changes_nothing_of_the_next(
    world: World, packages: Packages, programs: Programs
) -> None:
    """A strict server may write there, and servers outside of the sandbox start there."""
    case = CASES["python -m"]
    with_programs(world, programs, case)
    define(world, case.argv(packages), case.env(packages))
    file = world.home.folder / "tap/capabilities/victim/default.toml"
    file.write_text(f'{file.read_text()}scope = "shared"\n')
    world.start()
    shared = world.home.folder / "state" / "shared"
    canary = world.home.folder / "canary"
    (shared / "json.py").write_text(f"open({str(canary)!r}, 'a').write('ran')\n")

    found = where(world, "s", world.home.folder)

    assert found["cwd"] == str(shared)
    assert "json.py" in of_session(world, "s")["cwd_reason"]
    assert not canary.exists()
