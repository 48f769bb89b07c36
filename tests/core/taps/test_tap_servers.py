"""Reading server blocks: the result, and a finding with its line for each one left out."""

import msgspec
import pytest

from capd.core.taps.tap_format import CapabilityFiles, CapabilityRead, read_capability
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Finding,
    OAuthClient,
    ServerName,
    ServerSpec,
    Severity,
    TapName,
)

TAP = TapName("tap")
GIT = CapabilityName("git")
CONFIG = 'triggers = ["show the history", "who changed this line", "commit my work"]\n'
SERVER = '[[mcp.servers]]\nname = "git"\ncommand = "uvx"\nargs = ["mcp-server-git==1.0.0"]\n'
GIT_SERVER = ServerSpec(
    ServerName("git"), "stdio", TAP, command="uvx", args=("mcp-server-git==1.0.0",)
)


def read_default(provider_file: str) -> CapabilityRead:
    texts = {"config.toml": CONFIG, "default.toml": provider_file}
    return read_capability(TAP, CapabilityFiles(GIT, "capabilities/git", texts))


def spec(*servers: ServerSpec) -> CapabilitySpec:
    triggers = ("show the history", "who changed this line", "commit my work")
    return CapabilitySpec(CapabilityId(TAP, GIT), "default", triggers=triggers, servers=servers)


def finding(line: int, reason: str, severity: Severity = "error") -> Finding:
    return Finding("capabilities/git/default.toml", line, reason, severity)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ('name = "bad"', "a stdio server needs `command`"),
        ('name = "bad"\ntype = "http"', "an http server needs `url` or `kubernetes`"),
        ('name = "bad"\ntype = "sse"', "type 'sse' is none of stdio, http, builtin"),
        (
            'name = "bad"\nurl = "https://x.example"\nwhere = "project"',
            '`where = "project"` is for a server with a `command`',
        ),
        (
            'name = "bad"\nruntime = "container"\nwhere = "project"',
            '`where = "project"` is for `runtime = "host"`: a container runs on this machine',
        ),
        (
            'name = "bad"\ncommand = "x"\nscope = "all"',
            "scope 'all' is none of shared, project, session",
        ),
        (
            'name = "bad"\ncommand = "x"\ntimeout_seconds = 0',
            "`timeout_seconds` is not within 1 to 3600",
        ),
        (
            'name = "bad"\ncommand = "x"\ntimeout_seconds = 3601',
            "`timeout_seconds` is not within 1 to 3600",
        ),
        (
            'name = "bad"\ncommand = "x"\noauth = { client_id = "c" }',
            "`oauth` is for a server with a `url`",
        ),
        ('name = "bad"\nurl = "u"\noauth = { client_id = " " }', "`oauth.client_id` is empty"),
        (
            'name = "bad"\nurl = "u"\noauth = { redirect_port = 8123 }',
            "Object missing required field `client_id` - at `$.oauth`",
        ),
        (
            'name = "bad"\nurl = "u"\noauth = { client_id = "c", client_secret_key = "s3-cret" }',
            "`oauth.client_secret_key` is the name of a key, such as LINEAR_SECRET, not the secret",
        ),
        (
            'name = "bad"\nurl = "u"\noauth = { client_id = "c", redirect_port = 80 }',
            "`oauth.redirect_port` is not within 1024 to 65535",
        ),
        (
            'name = "bad"\nurl = "u"\noauth = "c"',
            "Expected `object | null`, got `str` - at `$.oauth`",
        ),
        ('name = "bad"\ncommand = "x"\nargs = "y"', "Expected `array`, got `str` - at `$.args`"),
        (
            'name = "bad"\ncommand = "x"\ntools = [1]',
            "Expected `str`, got `int` - at `$.tools[0]`",
        ),
        (
            'name = "bad"\ncommand = "x"\nenv = { A = 1 }',
            "Expected `str`, got `int` - at `$.env[...]`",
        ),
    ],
)
def test_a_malformed_server_is_left_out_with_its_own_line_and_the_rest_stays(
    block: str, why: str
) -> None:
    provider = f'# about "bad"\n{SERVER}[[mcp.servers]]\n{block}\n'

    got = read_default(provider)

    assert got == CapabilityRead(
        GIT, spec(GIT_SERVER), "", (finding(7, f"server 'bad' left out: {why}"),)
    )


@pytest.mark.parametrize("name", ["a__b", "", "-a", "a b", "a:b", "é", "a/b"])
def test_a_server_s_name_that_could_not_be_part_of_a_wire_name_is_refused(name: str) -> None:
    got = read_default(f'{SERVER}[[mcp.servers]]\nname = "{name}"\ncommand = "x"\n')

    why = "a name is letters, digits, `_`, `.`, `-`, without `__`"
    assert got == CapabilityRead(
        GIT, spec(GIT_SERVER), "", (finding(6, f"server {name!r} left out: {why}"),)
    )


def test_a_block_without_a_name_is_left_out() -> None:
    got = read_default(f'{SERVER}[[mcp.servers]]\ncommand = "x"\n')

    why = "Object missing required field `name`"
    assert got.findings == (finding(5, f"server '?' left out: {why}"),)


def test_a_name_that_is_defined_twice_means_the_first_and_is_reported() -> None:
    got = read_default(SERVER + SERVER.replace("uvx", "other"))

    assert got == CapabilityRead(
        GIT,
        spec(GIT_SERVER),
        "",
        (finding(0, "server 'git' is defined twice; the first one counts"),),
    )


def test_refs_choose_and_order_servers_and_an_unresolved_one_is_reported() -> None:
    other = SERVER.replace('"git"', '"other"')
    refs = '[roles.mcp]\nserver_refs = ["other", "gone",\n"git"]\n'

    got = read_default(refs + SERVER + other + SERVER.replace('"git"', '"third"'))

    assert got.capability is not None
    assert [server.name for server in got.capability.servers] == ["other", "git"]
    assert got.findings == (finding(2, "server_refs names 'gone', which no usable block defines"),)


def test_a_builtin_server_needs_no_command_and_counts_as_routable() -> None:
    got = read_default('[[mcp.servers]]\nname = "core"\ntype = "builtin"\n')

    assert got == CapabilityRead(GIT, spec(ServerSpec(ServerName("core"), "builtin", TAP)), "", ())


def test_a_url_alone_makes_an_http_server() -> None:
    got = read_default('[[mcp.servers]]\nname = "web"\nurl = "http://localhost:1/mcp"\n')

    web = ServerSpec(ServerName("web"), "http", TAP, url="http://localhost:1/mcp", scope="session")
    assert got == CapabilityRead(GIT, spec(web), "", ())


def test_a_client_that_an_authorization_server_knows_is_named_with_the_key_of_its_secret() -> None:
    oauth = (
        'oauth = { client_id = "capd-1", client_secret_key = "WEB_SECRET", redirect_port = 8123 }'
    )
    block = f'[[mcp.servers]]\nname = "web"\nurl = "http://localhost:1/mcp"\n{oauth}\n'

    got = read_default(block)

    assert got.capability is not None
    [web] = got.capability.servers
    assert web.oauth == OAuthClient("capd-1", "{{ENV:WEB_SECRET}}", 8123)
    assert (got.capability.wanted_keys, got.findings) == (("WEB_SECRET",), ())


def test_an_unknown_key_of_a_client_is_reported() -> None:
    oauth = 'oauth = { client_id = "capd-1", client_secret = "sesame" }'
    block = f'[[mcp.servers]]\nname = "web"\nurl = "http://localhost:1/mcp"\n{oauth}\n'

    got = read_default(block)

    reason = "web: oauth: unknown key `client_secret` is kept"
    assert got.findings == (finding(4, reason, "warning"),)


def test_a_secret_in_args_is_wanted_and_warned_of() -> None:
    got = read_default(SERVER.replace("==1.0.0", "{{ENV:KEY_A}}"))

    assert got.capability is not None
    assert got.capability.wanted_keys == ("KEY_A",)
    assert got.findings == (
        finding(
            4,
            "server 'git': the value of KEY_A goes into args, which the process list shows",
            severity="warning",
        ),
    )


def test_a_secret_in_the_environment_is_wanted_without_a_warning() -> None:
    got = read_default(SERVER + 'env = { B = "{{ENV:KEY_B}}" }\n')

    assert got.capability is not None
    assert (got.capability.wanted_keys, got.findings) == (("KEY_B",), ())


def test_a_server_says_that_it_runs_where_the_project_is() -> None:
    read = read_default(f'{SERVER}where = "project"\n')

    assert read.capability == spec(msgspec.structs.replace(GIT_SERVER, where="project"))
    assert read.findings == ()
