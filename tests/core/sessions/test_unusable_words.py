"""What the model reads about a fitting capability that cannot be activated."""

import pytest

from capd.core.sessions.hook_context import unusable_words
from capd_protos.types import CapabilityId, CapabilityName, TapName, UnusableCapability

CHAT = CapabilityId(TapName("t"), CapabilityName("chat"))


@pytest.mark.parametrize(
    ("unusable", "text"),
    [
        ([], ""),
        (
            [UnusableCapability(CHAT, "missing_secrets", ("CHAT_TOKEN",))],
            (
                "capd: 'chat' fits this message and lacks a key. "
                "Tell the user: capd secret set CHAT_TOKEN"
            ),
        ),
        (
            [UnusableCapability(CHAT, "missing_secrets", ("A", "B", "C"))],
            (
                "capd: 'chat' fits this message and lacks a key. "
                "Tell the user: capd secret set A and capd secret set B ..."
            ),
        ),
        (
            [UnusableCapability(CHAT, "missing_program", (), ("uvx", "npx"))],
            (
                "capd: 'chat' fits this message and needs `uvx`, which is not installed. Tell the "
                "user: it comes with uv: pip install uv, or https://docs.astral.sh/uv"
            ),
        ),
        (
            [UnusableCapability(CHAT, "domain")],
            "capd: 'chat' fits this message and is for another domain",
        ),
    ],
)
def test_the_words_name_the_capability_and_the_command(
    unusable: list[UnusableCapability], text: str
) -> None:
    assert unusable_words(unusable) == text
