"""Files that a launcher reads are looked up before its start, and again directly before it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from capd.adapters.servers.launching import (
    Launching,
    NoEmptyFolderError,
    look,
    modules,
    remove_empty,
)
from capd.adapters.servers.processes import ProcessSpec, SpawnFailedError, running
from capd.adapters.trust.trust_check import UntrustedError
from capd.core.servers.launchers import FilesRead, all_names, reading

WHERE = "import json, os, sys; print(json.dumps([os.getcwd(), sys.flags.safe_path]))"
EVERYTHING = FilesRead(names=all_names())


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "clone"
    folder.mkdir(parents=True)
    return folder


def nothing_trusted(_: str, __: FilesRead) -> bool:
    return False


def launching(
    clone: Path,
    argv: tuple[str, ...],
    is_trusted: Callable[[str, FilesRead], bool] = nothing_trusted,
) -> Launching:
    root = clone.parents[1]
    return Launching(
        "server", argv, {}, clone, str(clone), str(root / "home"), root / "empty", is_trusted
    )


async def started(clone: Path, made: Launching) -> tuple[str, bool, str]:
    """Return the server's folder, whether `-P` was given, and the reported reason."""
    spec = ProcessSpec(made.argv, {"PATH": "/usr/bin:/bin"}, clone, launching=made)
    with trio.fail_after(30):
        async with running(spec) as process:
            said = await process.stdout.receive_some(4096)
            reason = process.cwd_reason
            folder, is_safe = json.loads(bytes(said))
            assert folder == process.cwd
            return folder, is_safe, reason


def wrapper(folder: Path) -> str:
    """Return a program that reads the files that pnpm reads, and prints its folder."""
    script = folder / "pnpm"
    script.write_text(f"#!{sys.executable}\n{WHERE}\n")
    script.chmod(0o755)
    return str(script)


async def test_a_file_that_appears_between_the_look_and_the_start_is_seen(
    clone: Path, tmp_path: Path
) -> None:
    looks = 0

    def plant(_: str, __: FilesRead) -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:  # the guard is ready, and nothing runs yet
            (clone / ".pnpmfile.cjs").write_text("")
        return False

    made = launching(clone, (wrapper(tmp_path), "dlx", "server"), plant)

    folder, _, reason = await started(clone, made)

    assert looks == 4
    assert Path(folder).parent == tmp_path / "empty"
    assert ".pnpmfile.cjs" in reason
    assert list((tmp_path / "empty").iterdir()) == []


async def test_files_that_keep_changing_start_nothing(clone: Path, tmp_path: Path) -> None:
    def change(_: str, __: FilesRead) -> bool:
        file = clone / ".pnpmfile.cjs"
        file.unlink() if file.exists() else file.write_text("")
        return False

    made = launching(clone, (wrapper(tmp_path), "dlx", "server"), change)

    with pytest.raises(SpawnFailedError, match="keep changing"):
        await started(clone, made)


async def test_python_searches_no_clone_and_stays_in_it(clone: Path) -> None:
    (clone / "json.py").write_text("raise SystemExit('imported')")

    folder, is_safe, reason = await started(clone, launching(clone, (sys.executable, "-c", WHERE)))

    assert (folder, is_safe) == (str(clone), True)
    assert "json.py" in reason


@pytest.mark.parametrize(
    "file", ["google/cloud/storage/__init__.py", "ns/part.py", "json/__init__.abi3.so"]
)
async def test_python_searches_no_package_of_a_clone_that_has_no_module_of_its_own(
    clone: Path, file: str
) -> None:
    (clone / file).parent.mkdir(parents=True)
    (clone / file).write_text("")

    _, is_safe, reason = await started(clone, launching(clone, (sys.executable, "-c", WHERE)))

    assert is_safe
    assert file in reason


async def test_folders_that_python_imports_nothing_from_hold_it_back_in_nothing(
    clone: Path,
) -> None:
    for file in ("node_modules/gyp/gyp.py", ".venv/lib/json.py", "src/lib/index.ts"):
        (clone / file).parent.mkdir(parents=True)
        (clone / file).write_text("")
    (clone / "src/again").symlink_to(clone / "src")

    _, is_safe, reason = await started(clone, launching(clone, (sys.executable, "-c", WHERE)))

    assert (is_safe, reason) == (False, "")


async def test_what_is_trusted_starts_as_it_is(clone: Path, tmp_path: Path) -> None:
    (clone / "package.json").write_text("{}")
    made = launching(clone, (wrapper(tmp_path), "dlx", "server"), lambda _, __: True)

    assert await started(clone, made) == (str(clone), False, "")


async def test_what_a_server_wrote_in_its_folder_is_kept(clone: Path, tmp_path: Path) -> None:
    (clone / "package.json").write_text("{}")
    script = Path(wrapper(tmp_path))
    script.write_text(script.read_text() + "open('notes.txt', 'w').close()\n")

    folder, _, _ = await started(clone, launching(clone, (str(script), "dlx", "server")))

    remove_empty(tmp_path / "empty")
    # It may have been ended before it wrote: then nothing is left at all.
    assert [each.name for each in Path(folder).glob("*")] in ([], ["notes.txt"])


def test_what_python_could_import_is_named_by_what_is_in_the_folder(clone: Path) -> None:
    for file in ("app.py", "google/cloud/a.py", "google/b.py", "docs/a.md", "not-a-name/c.py"):
        (clone / file).parent.mkdir(parents=True, exist_ok=True)
        (clone / file).write_text("")

    assert sorted(modules(str(clone))) == ["app.py", "google"]


def test_a_folder_with_too_much_to_look_at_counts_as_one_to_import_from(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capd.adapters.servers.launching._MOST_ENTRIES", 8)
    for name in ("data", "more"):
        (clone / name).mkdir()
        for number in range(5):
            (clone / name / f"{number}.txt").write_text("")

    below = modules(str(clone))
    directly = modules(str(clone / "data"))
    for number in range(5, 10):
        (clone / "data" / f"{number}.txt").write_text("")

    assert (len(below), directly) == (1, {})
    assert modules(str(clone / "data")) == {"many files": ""}


def test_folders_above_are_looked_at_and_home_is_not(clone: Path) -> None:
    (clone / ".npmrc").write_text("")
    (clone.parent / "node_modules").mkdir()
    home = clone.parents[1]
    (home / "package.json").write_text("{}")

    assert look(str(clone), EVERYTHING, str(home)) == [".npmrc", f"{clone.parent}/node_modules"]
    assert look(str(home), EVERYTHING, str(home)) == []


@pytest.mark.parametrize("name", ["justfile", "JustFile", ".JUSTFILE"])
def test_a_file_that_just_finds_in_any_case_is_there(clone: Path, name: str) -> None:
    (clone / name).touch()

    home = str(clone.parents[1])
    there = [look(str(clone), reading((each, "serve"), {}), home) for each in ("just", "npx")]

    assert there == [[name], []]


def test_a_broken_link_is_there(clone: Path) -> None:
    (clone / ".npmrc").symlink_to("nowhere")

    assert look(str(clone), EVERYTHING, str(clone.parents[1])) == [".npmrc"]


def test_an_empty_folder_is_empty_all_the_way_up(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(other))
    made = launching(clone, ("pnpm", "dlx", "server"))
    # capd's own folders are in the clone, as `make run` has them.
    inside = Launching(
        "server", made.argv, {}, clone, str(clone), made.home, clone / ".run", made.is_trusted
    )
    (clone / ".npmrc").write_text("")

    folder = inside.empty_folder()

    assert folder.parent == other
    (other / "package.json").write_text("{}")
    with pytest.raises(NoEmptyFolderError, match="capd trust"):
        inside.empty_folder()


def test_a_program_that_only_the_project_has_is_refused(clone: Path) -> None:
    program = clone / ".venv/bin/own-server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    made = launching(clone, ("own-server",))

    for path in (f"/usr/bin:{clone}/.venv/bin", "/usr/bin:.venv/bin"):
        with pytest.raises(UntrustedError, match="capd trust"):
            made.plan(made.argv, {"PATH": path})


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("./server", "correct the command's path"),
        ("npx -y @notes/mcp@1.0.0", "it is one word with spaces: leave out the quotes around it"),
    ],
)
def test_a_file_that_the_project_does_not_have_is_not_to_be_trusted_but_corrected(
    clone: Path, command: str, advice: str
) -> None:
    with pytest.raises(UntrustedError) as refusal:
        launching(clone, (command,)).plan((command,), {"PATH": "/usr/bin:/bin"})

    text = f"server cannot start: {clone}/{command} is not an executable file: {advice}"
    assert str(refusal.value).startswith(text)


def test_programs_beside_the_python_that_runs_capd_are_no_strangers_to_its_own_checkout(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = clone / ".venv/bin", clone / "node_modules/.bin"
    for folder in (own, other):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(own / "python"))

    plan = launching(clone, ("uvx", "server")).plan(
        ("uvx", "server"), {"PATH": f"{other}:/usr/bin:{own}"}
    )

    assert plan.env["PATH"] == f"/usr/bin:{own}"


def test_an_interpreter_that_a_version_manager_chooses_is_not_chosen_by_a_clone(
    clone: Path, tmp_path: Path
) -> None:
    (clone / ".tool-versions").write_text("python path:./evil")
    shims = tmp_path / "asdf" / "shims"
    shims.mkdir(parents=True)
    uvx = tmp_path / "bin" / "uvx"
    uvx.parent.mkdir()
    uvx.write_bytes(b"\x7fELF")
    uvx.chmod(0o755)
    made = launching(clone, ("uvx", "server", "."))

    usual = made.plan(made.argv, {"PATH": str(uvx.parent)})
    held = made.plan(made.argv, {"PATH": f"{uvx.parent}:{shims}"})

    assert (usual.argv, usual.is_elsewhere) == (("uvx", "server", "."), False)
    assert (held.argv, held.is_elsewhere) == (("uvx", "server", str(clone)), True)


@pytest.mark.parametrize(
    ("first_line", "file"),
    [
        ("#!/usr/bin/env bun", "bunfig.toml"),
        ("#!/usr/bin/env -S uv run --script", "uv.toml"),
        ("#!/usr/bin/env -S deno run -A", "deno.json"),
        ("#! /opt/bun/bin/bun", "bunfig.toml"),
    ],
)
def test_a_launcher_that_a_scripts_first_line_names_is_held_as_one_on_the_command_line(
    clone: Path, tmp_path: Path, first_line: str, file: str
) -> None:
    script = tmp_path / "bin" / "tool"
    script.parent.mkdir()
    script.write_text(f"{first_line}\n")
    script.chmod(0o755)
    made = launching(clone, ("tool", "."))
    usual = made.plan(made.argv, {"PATH": str(script.parent)})
    (clone / file).write_text("")

    held = made.plan(made.argv, {"PATH": str(script.parent)})

    assert (usual.argv, usual.is_elsewhere) == (("tool", "."), False)
    assert (held.argv, held.is_elsewhere) == (("tool", str(clone)), True)
    assert file in held.reason


def test_what_a_script_starts_in_its_first_line_looks_for_its_interpreter_as_if_typed(
    clone: Path, tmp_path: Path
) -> None:
    (clone / ".tool-versions").write_text("python path:./evil")
    shims = tmp_path / "asdf" / "shims"
    shims.mkdir(parents=True)
    script = tmp_path / "bin" / "tool"
    script.parent.mkdir()
    script.write_text("#!/usr/bin/env -S uv run --script\n")
    script.chmod(0o755)
    made = launching(clone, ("tool",))

    held = made.plan(made.argv, {"PATH": f"{script.parent}:{shims}"})

    assert ".tool-versions" in held.reason
