"""A daemon started by a client gets the user's environment, not the client's."""

import pytest

from capd_client.shim.login_environment import (
    daemon_environment,
    parse_lines,
    path_without_projects,
)

USER = {b"HOME": b"/home/ada", b"PATH": b"/usr/bin", b"CAPD_HOME": b"/capd", b"LC_ALL": b"C"}
CLIENTS = {
    b"CAPD_SESSION": b"s",
    b"CLAUDE_CODE_SESSION_ID": b"c",
    b"OTEL_EXPORTER_OTLP_ENDPOINT": b"http://vendor",
    b"VIRTUAL_ENV": b"/src/.venv",
    b"PYTHONPATH": b"/src",
    b"SHLVL": b"2",
}
NETWORK = {b"SSL_CERT_FILE": b"/theirs", b"UV_INDEX_URL": b"https://theirs", b"http_proxy": b"p"}


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        pytest.param(b"/usr/bin:/home/ada/bin", b"/usr/bin:/home/ada/bin", id="the user's own"),
        pytest.param(b"bin:.::/usr/bin", b"/usr/bin", id="relative"),
        pytest.param(b"/src/clone/bin:/src/clone:/usr/bin", b"/usr/bin", id="in the project"),
        pytest.param(b"/link/bin:/usr/bin", b"/usr/bin", id="in the project by its other path"),
        pytest.param(b"/src/clone2/bin", b"/src/clone2/bin", id="beside the project"),
        pytest.param(b"/src/node_modules/.bin/:/usr/bin", b"/usr/bin", id="npm, above the project"),
        pytest.param(b"/src/clone/bin", b"", id="nothing else"),
    ],
)
def test_no_project_decides_where_the_daemon_finds_programs(path: bytes, kept: bytes) -> None:
    assert path_without_projects(path, (b"/src/clone", b"/link"), b"/home/ada") == kept


@pytest.mark.parametrize("folder", [b"/home/ada", b"/home", b"/"])
def test_a_client_in_the_home_folder_has_the_path_of_its_user(folder: bytes) -> None:
    assert path_without_projects(b"/home/ada/bin:/usr/bin", (folder,), b"/home/ada") == (
        b"/home/ada/bin:/usr/bin"
    )


@pytest.mark.parametrize(
    ("own", "login", "is_whole", "expected"),
    [
        pytest.param(USER | CLIENTS, {}, False, USER, id="only what is the user's"),
        pytest.param(USER | NETWORK, {}, False, USER | NETWORK, id="no login environment"),
        pytest.param(USER | NETWORK, USER, True, USER, id="the login has no such variable"),
        pytest.param(
            USER,
            {b"SSL_CERT_FILE": b"/ours"},
            True,
            USER | {b"SSL_CERT_FILE": b"/ours"},
            id="a client stripped it",
        ),
        pytest.param(
            USER | NETWORK,
            {b"SSL_CERT_FILE": b"/ours"},
            False,
            USER | NETWORK | {b"SSL_CERT_FILE": b"/ours"},
            id="the login's own value counts",
        ),
        pytest.param(
            USER | NETWORK | {b"DIRENV_DIFF": b"x"}, {}, False, USER, id="a project's .envrc"
        ),
        pytest.param(
            {b"HOME": b"/home/ada"},
            {b"HOME": b"/other", b"TZ": b"UTC", b"TOKEN": b"t"},
            True,
            {b"HOME": b"/home/ada", b"TZ": b"UTC"},
            id="capd's places are where the client looks for them",
        ),
    ],
)
def test_no_client_decides_for_the_others_what_the_daemon_starts_with(
    own: dict[bytes, bytes],
    login: dict[bytes, bytes],
    is_whole: bool,
    expected: dict[bytes, bytes],
) -> None:
    assert daemon_environment(own, login, is_whole=is_whole) == expected


def test_lines_of_systemd_and_of_pam_are_read() -> None:
    text = b"# mine\nPATH=\"/usr/bin:/bin\"\nexport A='b'\nC=d=e\nBAD=$'a\\nb'\n\nno line\n"

    assert parse_lines(text) == {b"PATH": b"/usr/bin:/bin", b"A": b"b", b"C": b"d=e"}
