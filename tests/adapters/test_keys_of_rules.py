"""Bad values of the keys of profiles, approvals, logins and registries: each is told by name.

What is typed wrong at a command is in `tests/whole`, beside each command's own tests.
"""

from pathlib import Path

import pytest

from capd.adapters.configuration import Configuration, load_configuration
from capd.core.settings.known_keys import known_keys

TABLES = ("logins", "policy", "profiles", "registry")
NOT_A_LIST = "Expected `array`, got `str`"
LISTS = ("folders", "remotes", "branches", "clients", "on", "off", "pins")
BAD = {
    **{f"profiles.*.{name}": ("'x'", NOT_A_LIST) for name in LISTS},
    **{f"profiles.*.policy.{name}": ("'x'", NOT_A_LIST) for name in ("allow", "deny", "ask")},
    **{
        f"policy{of}.{name}": ("'x'", NOT_A_LIST)
        for of in ("", ".clients.*", ".projects.*")
        for name in ("allow", "deny", "ask")
    },
    "profiles.*.secrets": ("'a b'", "Expected `str` matching regex"),
    "profiles.*.sandbox": ("'tight'", "Invalid enum value 'tight'"),
    "policy.ask_timeout": ("0", "Expected `float` >= 1"),
    "logins.client_metadata_url": ("'http://x.test/c.json'", "Expected `str` matching regex"),
    "registry.urls": ("'https://x.test'", NOT_A_LIST),
}
"""For each key a value that it cannot have, and what is said of it."""


def test_every_key_of_these_tables_has_a_bad_value_here() -> None:
    known = {".".join(each.path) for each in known_keys(Configuration)}

    assert {name for name in known if name.split(".")[0] in TABLES} == set(BAD)


@pytest.mark.parametrize(("name", "value", "why"), [(key, *bad) for key, bad in BAD.items()])
def test_a_bad_value_is_told_with_its_line_and_name_and_the_defaults_hold(
    tmp_path: Path, name: str, value: str, why: str
) -> None:
    file = tmp_path / "config.toml"
    *table, key = ["work" if each == "*" else each for each in name.split(".")]
    file.write_text(f"# mine\n[{'.'.join(table)}]\n{key} = {value}\n")

    configuration, [problem] = load_configuration(file, {})

    assert configuration == Configuration()
    shown = name.replace("*", "NAME")
    assert problem.startswith(f"{file} is not used: line 3, `{shown}"), problem
    assert why in problem
