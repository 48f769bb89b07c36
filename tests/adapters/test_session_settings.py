"""The user's settings tables become the rules of sessions."""

from pathlib import Path

from capd.adapters.client_table import client_table
from capd.adapters.configuration import load_configuration
from capd.adapters.session_settings import session_rules
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules

WRITTEN = """
[sessions]
tools = 9
[surface]
mode = "stable"
pins = ["git:*"]
unchecked_servers = ["odd*"]
[policy]
deny = ["*:delete_*"]
[policy.clients."zed*"]
allow = ["git:*"]
[policy.projects."/src/app"]
deny = ["git:push"]
"""


def test_every_setting_of_sessions_reaches_them(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(WRITTEN)
    configuration, problems = load_configuration(file, {"CAPD_CAPABILITIES": "2"})

    rules = session_rules(configuration, {})

    assert problems == []
    assert rules == SessionRules(
        cap=2,
        tool_cap=9,
        mode="stable",
        pins=("git:*",),
        unchecked=("odd*",),
        everyone=PolicyRules("[policy]", deny=("*:delete_*",)),
        clients=(("zed*", PolicyRules('[policy.clients."zed*"]', allow=("git:*",))),),
        projects=(("/src/app", PolicyRules('[policy.projects."/src/app"]', deny=("git:push",))),),
    )


def test_an_empty_configuration_is_the_defaults(tmp_path: Path) -> None:
    configuration, _ = load_configuration(tmp_path / "none", {})

    assert session_rules(configuration, {}) == SessionRules()


def test_the_users_table_of_clients_that_cannot_be_read_leaves_the_packages_own(
    tmp_path: Path,
) -> None:
    file = tmp_path / "clients.toml"
    file.write_text("[codex\n")

    table, problems = client_table(file)

    assert table == client_table()[0]
    assert len(problems) == 1
