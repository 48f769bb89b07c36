"""Reading a capability folder: the result, and a finding for each part left out."""

from collections.abc import Mapping

import pytest

from capd.core.taps.tap_format import CapabilityFiles, CapabilityRead, read_capability
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Finding,
    ServerName,
    ServerSpec,
    Severity,
    TapName,
)

TAP = TapName("tap")
GIT = CapabilityName("git")
TRIGGERS = ("show the history", "who changed this line", "commit my work")
CONFIG = 'triggers = ["show the history", "who changed this line", "commit my work"]\n'
SERVER = '[[mcp.servers]]\nname = "git"\ncommand = "uvx"\nargs = ["mcp-server-git==1.0.0"]\n'
GIT_SERVER = ServerSpec(
    ServerName("git"), "stdio", TAP, command="uvx", args=("mcp-server-git==1.0.0",)
)


def read(texts: Mapping[str, str], provider: str = "") -> CapabilityRead:
    return read_capability(TAP, CapabilityFiles(GIT, "capabilities/git", texts), provider)


def read_default(provider_file: str) -> CapabilityRead:
    return read({"config.toml": CONFIG, "default.toml": provider_file})


def spec(*servers: ServerSpec, provider: str = "default") -> CapabilitySpec:
    return CapabilitySpec(CapabilityId(TAP, GIT), provider, triggers=TRIGGERS, servers=servers)


def finding(
    line: int, reason: str, file: str = "default.toml", severity: Severity = "error"
) -> Finding:
    return Finding(f"capabilities/git/{file}", line, reason, severity)


def test_a_whole_capability_is_read() -> None:
    provider = (
        "# Title: Git history\n# Description:  Reads a repository. \n"
        '[deps]\nrequire = ["org/git"]\n'
        '[roles.mcp]\nserver_refs = ["git"]\nallowed_tools = ["git:log"]\n'
        '[[mcp.servers]]\nname = "git"\ntype = "stdin"\ncommand = "git-mcp"\n'
        'env = { TOKEN = "{{ENV:GIT_TOKEN}}" }\nheaders = { X = "1" }\ntimeout_seconds = 60\n'
        'tools = ["log"]\nscope = "session"\nlazy = false\ndescription = "d"\nsandbox = "strict"\n'
        'auto_bind = ["dev"]\n'
    )
    config = CONFIG + 'domains = ["developer"]\n'

    got = read({"config.toml": config, "default.toml": provider})

    assert got == CapabilityRead(
        GIT,
        CapabilitySpec(
            CapabilityId(TAP, GIT),
            "default",
            title="Git history",
            description="Reads a repository.",
            triggers=TRIGGERS,
            domains=("developer",),
            servers=(
                ServerSpec(
                    ServerName("git"),
                    "stdio",
                    TAP,
                    command="git-mcp",
                    env={"TOKEN": "{{ENV:GIT_TOKEN}}"},
                    headers={"X": "1"},
                    timeout=60,
                    tools=("log",),
                    scope="session",
                    lazy=False,
                    description="d",
                    sandbox="strict",
                    is_scope_fixed=True,
                ),
            ),
            allowed_tools=("git:log",),
            requires=("org/git",),
            wanted_keys=("GIT_TOKEN",),
        ),
        "",
        (),
    )


@pytest.mark.parametrize(
    ("texts", "provider"),
    [
        pytest.param({"default.toml": SERVER}, "default", id="a file itself"),
        pytest.param({"default.toml": "uvx.toml", "uvx.toml": SERVER}, "uvx", id="a sibling"),
        pytest.param(
            {"default.toml": "a.toml\n", "a.toml": " b.toml ", "b.toml": SERVER},
            "b",
            id="a sibling that points on",
        ),
    ],
)
def test_the_default_provider_is(texts: dict[str, str], provider: str) -> None:
    got = read({"config.toml": CONFIG, **texts})

    assert got == CapabilityRead(GIT, spec(GIT_SERVER, provider=provider), "", ())


def test_an_override_takes_another_provider() -> None:
    texts = {"config.toml": CONFIG, "default.toml": "", "uvx.toml": SERVER}

    got = read(texts, provider="uvx")

    assert got.capability == spec(GIT_SERVER, provider="uvx")


def test_a_provider_that_the_tap_lacks_binds_the_name_and_names_the_tap() -> None:
    got = read({"config.toml": CONFIG, "default.toml": SERVER}, provider="npx")

    why = "npx.toml: taps.toml asks for it, and tap tap lacks it"
    found = finding(0, f"no provider file {why}", "config.toml")
    assert got == CapabilityRead(GIT, None, f"no {why}", (found,), is_binding=True)


@pytest.mark.parametrize(
    ("texts", "provider", "reason", "findings"),
    [
        pytest.param({"default.toml": SERVER}, "", "no config.toml", (), id="no config"),
        pytest.param(
            {"config.toml": CONFIG},
            "",
            "no default.toml",
            (finding(0, "no provider file default.toml", "config.toml"),),
            id="no provider",
        ),
        pytest.param(
            {"config.toml": CONFIG, "default.toml": "default.toml"},
            "",
            "no default.toml",
            (finding(0, "no provider file default.toml", "config.toml"),),
            id="a pointer to itself",
        ),
        pytest.param(
            {"config.toml": "# x\ntriggers = []\n", "default.toml": SERVER},
            "",
            "no triggers",
            (finding(2, "no triggers: 5 to 15 phrases in a user's words", "config.toml"),),
            id="no triggers",
        ),
        pytest.param(
            {"config.toml": 'domains = ["x"]', "default.toml": SERVER},
            "",
            "no triggers",
            (finding(0, "no triggers: 5 to 15 phrases in a user's words", "config.toml"),),
            id="no key of triggers",
        ),
        pytest.param(
            {"config.toml": '\ntriggers = "git"', "default.toml": SERVER},
            "",
            "no triggers",
            (
                finding(2, "`triggers` is not a list", "config.toml"),
                finding(2, "no triggers: 5 to 15 phrases in a user's words", "config.toml"),
            ),
            id="triggers that are no list",
        ),
        pytest.param(
            {"config.toml": "x = 1\n\ny = = 2\n", "default.toml": SERVER},
            "",
            "config.toml: Invalid value (at line 3, column 5)",
            (finding(3, "config.toml: Invalid value (at line 3, column 5)", "config.toml"),),
            id="a syntax error",
        ),
        pytest.param(
            {"config.toml": CONFIG, "default.toml": "a = 1\nb"},
            "",
            "default.toml: Expected '=' after a key in a key/value pair (at end of document)",
            (
                finding(
                    2,
                    "default.toml: Expected '=' after a key in a key/value pair (at end of "
                    "document)",
                ),
            ),
            id="a syntax error at the end",
        ),
        pytest.param(
            {"config.toml": CONFIG, "default.toml": "a = " + "[" * 20_000},
            "",
            "default.toml: nested too deeply",
            (finding(0, "default.toml: nested too deeply"),),
            id="brackets without end",
        ),
    ],
)
def test_a_folder_is_unusable_with(
    texts: dict[str, str], provider: str, reason: str, findings: tuple[Finding, ...]
) -> None:
    got = read(texts, provider)

    assert got == CapabilityRead(GIT, None, reason, findings)


def test_an_integer_that_python_refuses_to_read_is_a_finding() -> None:
    got = read({"config.toml": CONFIG, "default.toml": "a = " + "9" * 5000})

    assert got.capability is None
    assert got.reason.startswith("default.toml: Exceeds the limit")
    assert [f.line for f in got.findings] == [0]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ('""', "trigger '' is blank or not text: left out"),
        ('"  "', "trigger '  ' is blank or not text: left out"),
        ("7", "trigger 7 is blank or not text: left out"),
    ],
)
def test_a_blank_trigger_is_left_out_and_reported_with_its_line(entry: str, reason: str) -> None:
    config = f'triggers = [\n"a",\n" b ",\n"c", "a",\n{entry},\n]\n'

    got = read({"config.toml": config, "default.toml": SERVER})

    assert got.capability is not None
    assert got.capability.triggers == ("a", "b", "c")
    assert got.findings == (finding(5, reason, "config.toml"),)


@pytest.mark.parametrize(
    ("args", "line"),
    [('args = [\n"a-server"]\n', 6), ('args = ["--from",\n"a-server", "x"]\n', 6)],
)
def test_a_package_without_a_version_is_a_warning_at_its_line(args: str, line: int) -> None:
    head = '# runs a-server\n[[mcp.servers]]\nname = "git"\ncommand = "uvx"\n'

    got = read_default(head + args)

    reason = "server 'git': a-server has no exact version, so each start may run other code"
    assert got.findings == (finding(line, reason, severity="warning"),)


def test_few_triggers_are_a_warning() -> None:
    got = read({"config.toml": '\ntriggers = ["a", "b"]', "default.toml": SERVER})

    assert got.capability is not None
    assert got.findings == (
        finding(2, "only 2 triggers: fewer than 3 route badly", "config.toml", "warning"),
    )


@pytest.mark.parametrize(
    ("provider", "line", "reason"),
    [
        ("colour = 1\n" + SERVER, 1, "unknown key `colour` is kept"),
        (SERVER + "colour = 1\n", 5, "git: unknown key `colour` is kept"),
        (
            SERVER + '[roles.mcp]\nallowed_tool = ["log"]\n',
            6,
            "roles.mcp: unknown key `allowed_tool` is kept",
        ),
        (SERVER + "[roles.cli]\n", 5, "roles: unknown key `cli` is kept"),
        (SERVER + "[deps]\nrequires = []\n", 6, "deps: unknown key `requires` is kept"),
        (SERVER + "[mcp.clients]\n", 5, "mcp: unknown key `clients` is kept"),
    ],
)
def test_an_unknown_key_is_reported_and_not_fatal(provider: str, line: int, reason: str) -> None:
    got = read_default(provider)

    warning = finding(line, reason, severity="warning")
    assert got == CapabilityRead(GIT, spec(GIT_SERVER), "", (warning,))


def test_an_unknown_key_of_the_config_is_reported() -> None:
    got = read({"config.toml": CONFIG + "colour = 1\n", "default.toml": SERVER})

    assert got == CapabilityRead(
        GIT,
        spec(GIT_SERVER),
        "",
        (finding(2, "unknown key `colour` is kept", "config.toml", "warning"),),
    )


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        pytest.param("[]", (), id="empty: all"),
        pytest.param('["git:log", 7]', ("git:log",), id="the readable rest"),
        pytest.param('"git:log"', ("",), id="not a list: none"),
        pytest.param("[7]", ("",), id="nothing readable: none"),
    ],
)
def test_a_filter_that_cannot_be_read_keeps_no_tool(written: str, allowed: tuple[str, ...]) -> None:
    got = read_default(f"{SERVER}[roles.mcp]\nallowed_tools = {written}\n")

    assert got.capability is not None
    assert got.capability.allowed_tools == allowed
    assert [f.line for f in got.findings] == ([6] if written != "[]" else [])


def test_an_absent_filter_is_none() -> None:
    got = read_default(SERVER)

    assert got.capability is not None
    assert got.capability.allowed_tools is None


def test_dependencies_alone_make_a_capability_and_a_bad_one_is_left_out() -> None:
    got = read_default('[deps]\nrequire = ["org/tool",\n"../../x", "tool"]\n')

    assert got.capability is not None
    assert (got.capability.requires, got.capability.servers) == (("org/tool",), ())
    assert got.findings == (
        finding(3, "dependency '../../x' is not `org/tool`: left out"),
        finding(2, "dependency 'tool' is not `org/tool`: left out"),
    )


@pytest.mark.parametrize(
    ("provider", "line", "reason"),
    [
        ("mcp = 1", 1, "`mcp` is not a table, and is passed over"),
        ("deps = []", 1, "`deps` is not a table, and is passed over"),
        ("[mcp]\nservers = 3", 2, "`mcp.servers` is not a list of tables"),
    ],
)
def test_tables_that_are_none_leave_a_capability_without_servers(
    provider: str, line: int, reason: str
) -> None:
    got = read_default(provider)

    assert got.capability == spec()
    assert got.findings == (finding(line, reason),)


def test_a_server_that_is_no_table_is_left_out() -> None:
    got = read_default("mcp = { servers = [1] }")

    assert got.capability == spec()
    assert [each.severity for each in got.findings] == ["error"]


@pytest.mark.parametrize(
    ("roles", "line", "path"),
    [("roles = 1", 1, "roles"), ("[roles]\nmcp = 2", 2, "roles.mcp")],
)
def test_roles_that_cannot_be_read_keep_no_tool(roles: str, line: int, path: str) -> None:
    got = read_default(f"{roles}\n{SERVER}")

    assert got.capability is not None
    assert got.capability.allowed_tools == ("",)
    assert got.findings == (finding(line, f"`{path}` is not a table, and is passed over"),)


def test_a_sandbox_that_means_nothing_leaves_its_server_out() -> None:
    got = read_default(SERVER + 'sandbox = "tight"\n')

    reason = "server 'git' left out: sandbox is 'tight': one of off, guard, strict, strict+network"
    assert got.findings == (finding(2, reason),)
    assert got.capability == spec()


def test_a_sandbox_of_a_server_by_url_is_said_to_confine_nothing() -> None:
    got = read_default(
        '[[mcp.servers]]\nname = "git"\nurl = "http://localhost:1"\nsandbox = "strict"\n'
    )

    reason = "server 'git': `sandbox` is for a server with a `command`, and confines nothing"
    assert got.findings == (finding(4, reason, severity="warning"),)


def test_a_server_in_a_cluster_is_kept_as_a_url() -> None:
    got = read_default(
        '[[mcp.servers]]\nname = "github"\nkubernetes = "team/github-mcp:8080/mcp"\n'
    )

    assert got.findings == ()
    assert got.capability is not None
    [server] = got.capability.servers
    assert (server.transport, server.url) == ("http", "kubernetes://team/github-mcp:8080/mcp")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            'kubernetes = "github"',
            "`kubernetes` is not `namespace/service`, with `:port` and `/path`",
        ),
        ('kubernetes = "a/b"\nurl = "https://x"', "`kubernetes` takes the place of `url`"),
        (
            'kubernetes = "a/b"\ncommand = "x"',
            "`kubernetes` takes the place of `url` and `command`",
        ),
        ('kubernetes = "a/b"\noauth = { client_id = "x" }', "`oauth` is for a server with a `url`"),
        ('url = "kubernetes://a/b:--x/"', "`url` is for http:// and https://"),
    ],
)
def test_a_server_in_a_cluster_is_named_in_one_way_alone(lines: str, reason: str) -> None:
    got = read_default(f'[[mcp.servers]]\nname = "github"\n{lines}\n')

    assert got.capability is None or got.capability.servers == ()
    assert reason in got.findings[0].reason


def test_the_first_of_several_urls_is_the_usual_one() -> None:
    got = read_default('[[mcp.servers]]\nname = "a"\nurls = ["https://a/mcp", "https://b/mcp"]\n')

    assert got.findings == ()
    assert got.capability is not None
    [server] = got.capability.servers
    assert (server.url, server.further_urls) == ("https://a/mcp", ("https://b/mcp",))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('urls = ["https://a"]\nurl = "https://b"', "`urls` takes the place of `url`"),
        ('urls = ["https://a", "https://a"]', "`urls` has an address twice"),
        (f"urls = {[f'https://{n}' for n in range(9)]}", "`urls` has more than 8 addresses"),
        ('urls = ["https://a", "https://b"]\ntype = "stdio"\ncommand = "x"', "without a `command`"),
        ('urls = ["https://a", "kubernetes://a/b"]', "`url` is for http:// and https://"),
    ],
)
def test_several_urls_that_cannot_be_used_leave_the_server_out(lines: str, reason: str) -> None:
    got = read_default(f'[[mcp.servers]]\nname = "a"\n{lines}\n')

    assert got.capability is None or got.capability.servers == ()
    assert reason in got.findings[0].reason
