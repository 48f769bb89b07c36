"""Dependency scripts run for the capabilities that need them, and for no others."""

from pathlib import Path

import pytest

from whole_daemon import Home, wait_for


def requires(home: Home, name: str, text: str, *, servers: str = "") -> Path:
    """Define a capability that requires `org/NAME`, whose script is `text`; return its folder."""
    home.plain(name)
    tap = home.folder / "tap"
    script = tap / "deps" / "org" / f"{name}.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"cd {home.folder}\n{text}")
    provider = tap / "capabilities" / name / "default.toml"
    kept = provider.read_text() if servers else ""
    provider.write_text(f'[deps]\nrequire = ["org/{name}"]\n{kept}')
    return home.folder


def active(home: Home) -> list[tuple[str, str, list[str]]]:
    (session,) = home.ask("sessions")["sessions"]
    return [(each["name"], each["kind"], each["tools"]) for each in session["active"]]


def test_a_capability_of_dependencies_alone_is_on_has_no_tools_and_takes_no_slot(
    home: Home,
) -> None:
    (home.folder / "config").mkdir(exist_ok=True)
    (home.folder / "config" / "config.toml").write_text("[sessions]\ncapabilities = 1\n")
    home.plain("alpha")
    requires(
        home, "dep", f"# check: test -e {home.folder}/there\ntouch there\necho ran >> journal\n"
    )
    home.start()
    editor = home.shim("one")
    home.capd("enable", "alpha")

    first = home.capd("enable", "dep")
    home.capd("disable", "dep")
    again = home.capd("enable", "dep")

    assert "Capability 'dep' is on. Installed: org/dep." in first.stdout
    assert first.stderr.splitlines()[0] == "org/dep: installing"
    assert again.stdout.splitlines()[0] == ("Capability 'dep' is on. It has no tools of its own.")
    assert (home.folder / "journal").read_text() == "ran\n"
    assert active(home) == [
        ("alpha", "capability", ["alpha__echo", "alpha__shout"]),
        ("dep", "dependencies", []),
    ]
    editor.leave()


def test_a_script_runs_before_the_servers_of_its_capability(home: Home) -> None:
    folder = requires(home, "alpha", "touch there\n", servers="too")
    home.start()
    editor = home.shim("one")

    done = home.capd("enable", "alpha")

    assert done.returncode == 0, done.stderr
    assert "Installed: org/alpha. Tools now available: alpha__echo" in done.stdout
    assert (folder / "there").exists()
    editor.leave()


def test_a_script_that_fails_changes_nothing_and_is_quoted(home: Home) -> None:
    requires(home, "alpha", "echo trying >&2\necho no disk left >&2\nexit 3\n", servers="too")
    home.start()
    editor = home.shim("one")

    done = home.capd("enable", "alpha")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "capd: alpha was not enabled: Capability 'alpha' was not switched on: dependency "
        "org/alpha failed: alpha.sh exited with code 3: trying / no disk left"
    )
    assert (active(home), home.servers()) == ([], [])
    editor.leave()


def test_a_script_sees_neither_secrets_nor_capds_own_variables(home: Home) -> None:
    requires(home, "dep", "env > seen\n")
    home.env["SECRET_OF_THE_DAEMON"] = "hunter2"
    home.start()
    editor = home.shim("one")

    home.capd("enable", "dep")

    seen = (home.folder / "seen").read_text()
    names = {line.split("=", 1)[0] for line in seen.splitlines()}
    assert "PATH" in names
    assert "hunter2" not in seen
    # The mark by which capd finds what a script leaves running; it says nothing.
    assert {name for name in names if name.startswith("CAPD_")} == {"CAPD_INSTANCE"}
    editor.leave()


def test_a_script_runs_nothing_of_the_folder_that_servers_share_or_of_a_project(
    home: Home,
) -> None:
    """A server without a project works in `shared`, and may leave there what it likes."""
    shared, project = home.folder / "state" / "shared", home.folder / "project"
    for folder in (shared, project):
        (folder / "bin").mkdir(parents=True, mode=0o700)
        for program in (folder / "tool", folder / "bin" / "tool"):
            program.write_text(f"#!/bin/sh\ntouch {home.folder}/stolen\n")
            program.chmod(0o755)
    home.env["PATH"] = f"bin:.::{home.env['PATH']}"
    home.plain("dep")
    script = home.folder / "tap" / "deps" / "org" / "dep.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f"{{ pwd; echo $PATH; tool; }} > {home.folder}/seen 2>&1\ntrue\n")
    provider = home.folder / "tap" / "capabilities" / "dep" / "default.toml"
    provider.write_text('[deps]\nrequire = ["org/dep"]\n')
    home.start()
    editor = home.shim("one", cwd=project)

    home.capd("enable", "dep")

    worked_in, path, *_ = (home.folder / "seen").read_text().splitlines()
    assert worked_in == str(home.folder / "state" / "installs")
    assert [each for each in path.split(":") if not each.startswith("/")] == []
    assert not (home.folder / "stolen").exists()
    editor.leave()


@pytest.mark.parametrize("how", ["the session leaves", "the call is cancelled", "the daemon stops"])
def test_a_script_that_nobody_waits_for_is_ended_with_its_tree(home: Home, how: str) -> None:
    requires(home, "dep", "sleep 600 &\necho $! > pid.part\nmv pid.part pid\nwait\n")
    daemon = home.start()
    editor = home.shim("one")
    call = {"name": "capability", "arguments": {"action": "enable", "name": "dep"}}
    editor._write({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": call})
    file = home.folder / "pid"
    wait_for(file.exists)
    pid = int(file.read_text())

    if how == "the session leaves":
        editor.leave()
    elif how == "the call is cancelled":
        params = {"requestId": 99}
        editor._write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    else:
        daemon.terminate()

    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    if how == "the call is cancelled":
        assert active(home) == []
        assert home.ask("status")["daemon"]["degraded"] == []
    editor.leave()


def test_a_client_that_wants_progress_hears_of_the_script(home: Home) -> None:
    requires(home, "dep", "echo fetching\nwhile ! test -e go; do sleep 0.05; done\n")
    home.start()
    editor = home.shim("one")
    call = {"name": "capability", "arguments": {"action": "enable", "name": "dep"}}
    params = {**call, "_meta": {"progressToken": "t"}}

    editor._write({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": params})
    heard = [editor.wait_for("notifications/progress")["params"] for _ in range(2)]
    (home.folder / "go").touch()
    wait_for(lambda: active(home))

    assert heard[0] == {"progressToken": "t", "progress": 1, "message": "org/dep: installing"}
    assert heard[1]["message"].startswith("org/dep: fetching (")
    editor.leave()
