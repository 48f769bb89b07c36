"""What is started on the far side of a bridge, and what is refused with a remedy."""

from typing import Any

import msgspec
import pytest

from capd.core.servers.far_starts import (
    FarOrder,
    FarPlace,
    FarRefusedError,
    far_order,
    far_place,
    refuse_here,
    with_roots,
)
from capd.core.servers.placeholders import MissingValueError
from capd_protos.types import ClientFacts, ServerName, ServerSpec, TapName

PLACE = FarPlace("box", "/home/dev/shop")
BASE = ServerSpec(
    ServerName("git"),
    "stdio",
    TapName("tap"),
    command="mcp-git",
    args=("--in", "{{PROJECT}}"),
    env={"MODE": "ro", "AT": "{{CWD}}"},
    where="project",
)
SECRET = msgspec.structs.replace(BASE, env={"TOKEN": "{{ENV:TOKEN}}"})


def ordered(server: ServerSpec, place: FarPlace = PLACE, **facts: Any) -> FarOrder:
    known = {"may_start": True, "has_secrets": False, "is_strict": False, **facts}
    return far_order(server, {"TOKEN": "t-1"}, place, **known)


def changed(**members: Any) -> ServerSpec:
    return msgspec.structs.replace(BASE, **members)


def test_an_order_has_the_command_line_with_the_folder_over_there() -> None:
    order = ordered(BASE)

    assert (order.argv, order.cwd) == (("mcp-git", "--in", "/home/dev/shop"), "/home/dev/shop")
    assert msgspec.json.decode(order.line()) == {
        "argv": ["mcp-git", "--in", "/home/dev/shop"],
        "env": {"MODE": "ro", "AT": "/home/dev/shop"},
        "cwd": "/home/dev/shop",
    }


def test_a_line_of_an_order_has_an_end_and_no_other_line() -> None:
    order = ordered(changed(args=("one\ntwo",)))

    assert order.line().count(b"\n") == 1
    assert order.line().endswith(b"\n")


def test_an_order_that_no_runner_reads_is_refused() -> None:
    with pytest.raises(FarRefusedError, match="more than 1 MiB"):
        ordered(changed(args=("x" * (1 << 20),))).line()


def test_a_server_that_the_user_has_not_let_go_there_is_refused() -> None:
    with pytest.raises(FarRefusedError, match=r'add "tap/git" to starts in \[bridges\.box\]'):
        ordered(BASE, may_start=False)


def test_a_secret_stays_here_until_the_bridge_permits_it() -> None:
    with pytest.raises(FarRefusedError, match=r"TOKEN .*secrets = true in \[bridges\.box\]"):
        ordered(SECRET)

    assert ordered(SECRET, has_secrets=True).env == {"TOKEN": "t-1"}


def test_a_secret_in_args_stays_here_as_well() -> None:
    with pytest.raises(FarRefusedError, match="TOKEN"):
        ordered(changed(args=("{{ENV:TOKEN}}",)))


def test_a_missing_secret_is_said_by_its_key() -> None:
    with pytest.raises(MissingValueError, match="capd secret set TOKEN"):
        far_order(SECRET, {}, PLACE, may_start=True, has_secrets=True, is_strict=False)


def test_an_order_does_not_show_its_secrets() -> None:
    assert "t-1" not in repr(ordered(SECRET, has_secrets=True))


def test_a_session_without_a_folder_has_no_project_server() -> None:
    with pytest.raises(FarRefusedError, match="start the client in the project's folder"):
        ordered(BASE, FarPlace("box", ""))


def test_a_server_that_needs_a_strict_sandbox_does_not_run_over_there() -> None:
    with pytest.raises(FarRefusedError, match="strict sandbox"):
        ordered(BASE, is_strict=True)


@pytest.mark.parametrize("command", ["./serve", "{{PROJECT}}/serve", "bin/serve"])
def test_a_program_of_the_project_is_not_started(command: str) -> None:
    with pytest.raises(FarRefusedError, match="nobody has looked at"):
        ordered(changed(command=command, args=()))


@pytest.mark.parametrize("command", ["npx", "uv"])
def test_a_launcher_that_reads_files_does_not_start_in_the_project(command: str) -> None:
    words = ("run", "mcp-git") if command == "uv" else ("mcp-git@1.0.0", "{{PROJECT}}")

    order = ordered(changed(command=command, args=words))

    assert order.cwd == "/"
    assert order.reason.endswith("would read files of the project, which nobody has looked at")


def test_a_session_of_this_machine_has_a_project_server_here() -> None:
    assert far_place(BASE, "", "") is None
    assert far_place(changed(where="host"), "box", "/src") is None
    assert far_place(BASE, "box", "/src") == FarPlace("box", "/src")


def test_a_server_of_this_machine_that_names_the_project_is_refused_over_a_bridge() -> None:
    host = changed(where="host")

    with pytest.raises(FarRefusedError, match='where = "project"'):
        refuse_here(host, "box")

    refuse_here(host, "")
    refuse_here(BASE, "box")
    refuse_here(changed(where="host", args=(), env={}), "box")


def test_a_server_over_there_is_told_that_roots_can_be_listed() -> None:
    client = ClientFacts(capabilities=b'{"sampling":{}}')

    found = with_roots(client)

    assert msgspec.json.decode(found.capabilities) == {"sampling": {}, "roots": {}}
