"""Command lines for a container engine: what a server gets, and how it is removed."""

import subprocess
from dataclasses import replace

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capd.core.servers.containers import (
    MOST_SECRET_BYTES,
    SECRETS,
    ContainerRefusedError,
    ContainerRequest,
    Engine,
    container_request,
    describe,
    listing_words,
    of_earlier_lives,
    refuse_project,
    removal_words,
    run_words,
    secret_lines,
    wrong_with_container,
)
from capd.core.servers.identity import server_identity
from capd_protos.types import ContainerMount, ContainerSpec, ServerName, ServerSpec, TapName

DIGEST = f"sha256:{'a1' * 32}"
IMAGE = f"registry.example.org/team/tracker@{DIGEST}"
PODMAN = Engine("podman", "/usr/bin/podman", is_rootless=True, user=1000, group=1001)
DOCKER = Engine("docker", "/usr/bin/docker", is_rootless=False, user=1000, group=1001)
REQUEST = ContainerRequest(ContainerSpec(IMAGE), "tracker", "", project="/src/shop")


def server(**more: object) -> ServerSpec:
    given_fields = {"container": ContainerSpec(IMAGE), "command": "tracker", **more}
    return ServerSpec(ServerName("tracker"), "stdio", TapName("mine"), **given_fields)  # type: ignore[arg-type]


def words(
    engine: Engine = PODMAN, request: ContainerRequest = REQUEST, pipe: str = ""
) -> list[str]:
    return list(run_words(engine, request, "capd-h-l-1", "h", pipe))


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
@pytest.mark.parametrize(
    "word",
    [
        *("--rm", "--init", "--interactive", "--read-only", "--cap-drop=all", "--network=none"),
        *("--security-opt=no-new-privileges", "--pids-limit=512", "--log-driver=none"),
        *("--memory=1024m", "--memory-swap=1024m", "--label=capd.home=h", "--name=capd-h-l-1"),
        *("--pull=missing", "--no-healthcheck"),
        "--mount=type=bind,source=/src/shop,destination=/src/shop,readonly",
    ],
)
def test_every_container_is_held(engine: Engine, word: str) -> None:
    assert word in words(engine)


@pytest.mark.parametrize(
    ("here", "wanted", "word"),
    [(8, 2.0, "--cpus=2"), (8, 0.5, "--cpus=0.5"), (1, 2.0, "--cpus=1"), (0, 2.0, "")],
)
def test_a_container_has_no_more_processors_than_there_are(
    here: int, wanted: float, word: str
) -> None:
    request = replace(REQUEST, spec=msgspec.structs.replace(REQUEST.spec, cpus=wanted))

    found = words(replace(PODMAN, cpus=here), request)

    # An engine that bounds none refuses a container that is to have some.
    assert [each for each in found if each.startswith("--cpus")] == ([word] if word else [])


def test_an_engine_is_told_what_it_would_add_by_itself() -> None:
    own = {"--read-only-tmpfs=false", "--http-proxy=false", "--systemd=false"}

    assert own <= set(words(PODMAN))
    assert not own & set(words(DOCKER))


@pytest.mark.parametrize(
    ("engine", "user"),
    [
        (PODMAN, "--user=0:0"),
        (replace(PODMAN, is_rootless=False), "--user=1000:1001"),
        (DOCKER, "--user=1000:1001"),
        (replace(DOCKER, is_rootless=True), "--user=0:0"),
    ],
)
def test_files_that_a_container_makes_are_the_users(engine: Engine, user: str) -> None:
    assert user in words(engine)


MOUNTS: dict[ContainerMount, str] = {
    "read": "--mount=type=bind,source=/src/shop,destination=/src/shop,readonly",
    "write": "--mount=type=bind,source=/src/shop,destination=/src/shop",
}


@pytest.mark.parametrize(("mount", "word"), MOUNTS.items())
def test_a_project_is_mounted_as_its_definition_says(mount: ContainerMount, word: str) -> None:
    request = replace(REQUEST, spec=ContainerSpec(IMAGE, mount=mount))

    assert [each for each in words(request=request) if each.startswith("--mount")] == [word]


def test_nothing_is_mounted_where_there_is_no_project() -> None:
    assert not any(
        each.startswith("--mount") for each in words(request=replace(REQUEST, project=""))
    )


def test_a_container_with_a_network_has_the_engines_usual_one() -> None:
    request = replace(REQUEST, spec=ContainerSpec(IMAGE, has_network=True))

    assert not any(each.startswith("--network") for each in words(request=request))


def test_no_name_of_a_folder_adds_a_field_to_its_mount() -> None:
    request = replace(REQUEST, project='/src/a,readonly=false,destination="/etc')

    [mount] = [each for each in words(request=request) if each.startswith("--mount")]

    quoted = '"source=/src/a,readonly=false,destination=""/etc"'
    assert mount.startswith(f"--mount=type=bind,{quoted},")


def test_what_the_server_gets_stands_behind_the_image() -> None:
    request = replace(REQUEST, command="tracker", args=("--privileged", "-v/:/host"))

    found = words(request=request)

    at = found.index(IMAGE)
    assert found[at - 1] == "--entrypoint=tracker"
    assert found[at + 1 :] == ["--privileged", "-v/:/host"]


def test_a_secret_is_in_no_word() -> None:
    request = replace(REQUEST, command="tracker", secrets={"TOKEN": "canary"})

    found = words(request=request, pipe="/state/pipe")

    assert "canary" not in " ".join(found)
    assert "TOKEN" not in " ".join(found)
    assert f"--mount=type=bind,source=/state/pipe,destination={SECRETS}" in found
    assert found[-1] == "tracker"


@given(
    st.dictionaries(
        st.sampled_from(["A", "B", "_C1"]),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40),
    )
)
@example({"A": "it's; echo 'x'", "B": "two\nlines\\n", "_C1": '$HOME `id` "q" \\'})
def test_a_shell_reads_each_secret_as_it_is(secrets: dict[str, str]) -> None:
    request = replace(REQUEST, command="env", args=("-0",), secrets=secrets)
    script = words(request=request, pipe="/pipe")[-4].replace(SECRETS, "/dev/stdin")

    ran = subprocess.run(
        ["/bin/sh", "-c", script, "sh", "env", "-0"],
        input=secret_lines(request),
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )

    found = dict(line.split("=", 1) for line in ran.stdout.decode().split("\0") if line)
    assert {name: found.get(name) for name in secrets} == secrets
    assert set(found) - set(secrets) <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.parametrize("value", ["a\0b", "x" * MOST_SECRET_BYTES])
def test_a_value_that_does_not_fit_is_refused(value: str) -> None:
    with pytest.raises(ContainerRefusedError):
        secret_lines(replace(REQUEST, secrets={"TOKEN": value}))


WRONG = {
    "no digest": server(container=ContainerSpec("example.org/tracker:latest")),
    "an option in place of an image": server(container=ContainerSpec(f"--privileged@{DIGEST}")),
    "a short digest": server(container=ContainerSpec("x@sha256:a1")),
    "too little memory": server(container=ContainerSpec(IMAGE, memory_mib=1)),
    "too much memory": server(container=ContainerSpec(IMAGE, memory_mib=1 << 30)),
    "no processor": server(container=ContainerSpec(IMAGE, cpus=0)),
    "too many processors": server(container=ContainerSpec(IMAGE, cpus=1e9)),
    "what is no number of processors": server(container=ContainerSpec(IMAGE, cpus=float("nan"))),
    "a secret in args": server(args=("--token={{ENV:TOKEN}}",)),
    "a secret for an unknown program": server(command="", env={"T": "{{ENV:T}}"}),
    "no name of a variable": server(env={"A-B": "x"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_definition_that_cannot_be_kept_safe_is_refused(name: str) -> None:
    assert wrong_with_container(WRONG[name])
    with pytest.raises(ContainerRefusedError):
        container_request(WRONG[name], {"T": "x", "TOKEN": "x"}, "", "")


@pytest.mark.parametrize("image", [IMAGE, DIGEST, f"localhost:5000/a@{DIGEST}"])
def test_an_image_by_its_digest_is_taken(image: str) -> None:
    assert wrong_with_container(server(container=ContainerSpec(image))) == ""


def test_what_a_server_gets_is_split_into_settings_and_secrets() -> None:
    spec = server(
        args=("--root={{PROJECT}}",),
        env={"TOKEN": "Bearer {{ENV:KEY}}", "FOLDER": "{{PROJECT}}", "MODE": "fast"},
    )

    found = container_request(spec, {"KEY": "canary"}, "/src/shop", "/src/shop")

    assert found == ContainerRequest(
        ContainerSpec(IMAGE),
        "tracker",
        "tracker",
        ("--root=/src/shop",),
        {"FOLDER": "/src/shop", "MODE": "fast"},
        {"TOKEN": "Bearer canary"},
        "/src/shop",
    )


@pytest.mark.parametrize(
    ("project", "kept", "is_refused"),
    [
        ("/home/ann", "/home/ann/.config/capd", True),
        ("/home/ann/.config/capd", "/home/ann/.config/capd", True),
        ("/", "/run/capd", True),
        ("/home/ann/.config/capd/taps/own", "/home/ann/.config/capd", True),
        ("/home/ann/.config/capd/taps/own/", "/home/ann/.config/capd/", True),
        ("/home/ann/code", "/home/ann/.config/capd", False),
        ("/home/ann/.config/capd-shop", "/home/ann/.config/capd", False),
        ("", "/home/ann/.config/capd", False),
    ],
)
def test_no_container_sees_a_folder_of_capd(project: str, kept: str, *, is_refused: bool) -> None:
    refused = ""
    try:
        refuse_project(replace(REQUEST, project=project), [kept])
    except ContainerRefusedError as error:
        refused = str(error)

    assert bool(refused) is is_refused
    assert not refused or kept in refused


def test_containers_are_removed_by_name_and_found_by_label() -> None:
    assert removal_words(PODMAN, ["a", "b"])[1:] == (
        *("rm", "--force", "--ignore", "--time=0", "--volumes"),
        *("a", "b"),
    )
    assert removal_words(DOCKER, ["a"])[1:] == ("rm", "--force", "--volumes", "a")
    assert "--filter=label=capd.home=h" in listing_words(PODMAN, "h")


def test_a_sweep_takes_what_earlier_runs_of_this_daemon_left() -> None:
    names = ["capd-h-old-1", "capd-h-now-2", "capd-other-old-3", "tracker", "capd-h2-old-4"]

    assert of_earlier_lives(names, "h", "now") == ["capd-h-old-1"]


@pytest.mark.parametrize(
    ("engine", "spec", "text"),
    [
        (PODMAN, ContainerSpec(IMAGE), "container (podman, rootless), no network"),
        (DOCKER, ContainerSpec(IMAGE, has_network=True), "container (docker), network"),
        (
            PODMAN,
            ContainerSpec(IMAGE, mount="write"),
            "container (podman, rootless), no network, writes its project",
        ),
    ],
)
def test_a_person_is_told_how_it_is_held(engine: Engine, spec: ContainerSpec, text: str) -> None:
    assert describe(engine, replace(REQUEST, spec=spec)) == text


def test_what_a_container_is_given_is_part_of_who_its_server_is() -> None:
    specs = [
        server(container=None),
        server(),
        server(container=ContainerSpec(DIGEST)),
        server(container=ContainerSpec(IMAGE, has_network=True)),
        server(container=ContainerSpec(IMAGE, mount="write")),
        server(container=ContainerSpec(IMAGE, memory_mib=64)),
    ]

    assert len({server_identity(each) for each in specs}) == len(specs)
