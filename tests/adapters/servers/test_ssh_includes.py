"""Which files an ssh configuration includes."""

import pytest

from capd.adapters.servers.sandboxing import ssh_includes


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("", []),
        ("Include /etc/ssh/ssh_config.d/*.conf\nHost *\n", ["/etc/ssh/ssh_config.d/*.conf"]),
        ("  include = a b\tc  # more\n", ["a", "b", "c"]),
        ('Include "with space"\n', ["with space"]),
        ("\tINCLUDE\tx\n", ["x"]),
        ("# Include x\nIncluded y\nHost Include\n", []),
        ("Include 'never closed\n", []),
    ],
)
def test_patterns_are_found_as_ssh_finds_them(text: str, patterns: list[str]) -> None:
    assert ssh_includes(text) == patterns
