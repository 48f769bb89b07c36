"""Which files a configuration of ssh includes."""

import pytest

from capd.core.servers.ssh_includes import included


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
    assert included(text) == patterns
