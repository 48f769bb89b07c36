"""Which variables a server's environment has, and which it never has."""

import pytest

from capd.adapters.servers.child_environment import child_environment

PASSED = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "HTTPS_PROXY",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
    "PIP_INDEX_URL",
    "UV_INDEX_URL",
]
WITHHELD = [
    "CAPD_CONFIG",
    "CAPD_DEBUG",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_STARTER_ADDRESS",
    "GITHUB_TOKEN",
    "NPM_TOKEN",
    "UV_PUBLISH_TOKEN",
    "UV_INDEX_MY_PASSWORD",
    "XDG_ACTIVATION_TOKEN",
    "npm_config__authToken",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_PROFILE",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "NODE_OPTIONS",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "GPG_AGENT_INFO",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "CREDENTIALS_DIRECTORY",
    "VIRTUAL_ENV",
    "SUDO_USER",
    "PGPASSWORD",
    "DATABASE_URL",
    "KUBECONFIG",
]


def test_the_table_has_at_least_fifty_canaries() -> None:
    assert len({*PASSED, *WITHHELD}) >= 50


@pytest.mark.parametrize("name", PASSED)
def test_a_variable_of_a_known_family_is_inherited(name: str) -> None:
    environment = child_environment({name: "canary", "PATH": "/bin"}, {}, extra_path="/capd")

    assert environment == {name: "canary", "PATH": "/bin:/capd"}


@pytest.mark.parametrize("name", WITHHELD)
def test_any_other_variable_is_withheld(name: str) -> None:
    environment = child_environment({name: "canary", "PATH": "/bin"}, {}, extra_path="/capd")

    assert environment == {"PATH": "/bin:/capd"}


@pytest.mark.parametrize("name", [*WITHHELD, *PASSED])
def test_a_declared_variable_passes_and_wins(name: str) -> None:
    environment = child_environment(
        {name: "daemon", "PATH": "/bin"}, {name: "own"}, extra_path="/c"
    )

    assert environment[name] == "own"


@pytest.mark.parametrize(
    ("inherited", "declared", "expected"),
    [
        ("/a:/b", {}, "/a:/b:/capd"),
        ("/capd:/b", {}, "/capd:/b"),
        ("/a", {"PATH": "/own"}, "/own:/capd"),
        (None, {}, "/bin:/usr/bin:/capd"),
    ],
)
def test_capds_own_folder_comes_last_in_the_path(
    inherited: str | None, declared: dict[str, str], expected: str
) -> None:
    daemon = {} if inherited is None else {"PATH": inherited}

    environment = child_environment(daemon, declared, extra_path="/capd")

    assert environment["PATH"] == expected
