"""The document of `tokens` (docs/cli.md). `None` stands for what is unknown."""

from typing import Any

import msgspec

from capd_protos import curator
from capd_protos.tokens import SessionTokens

SCHEMA = 1


def tokens(described: curator.TokensDescribed) -> dict[str, Any]:
    """Return `tokens`."""
    return {
        "schema": SCHEMA,
        "vocabulary": described.vocabulary,
        "problem": described.problem,
        "sessions": [_session(each) for each in described.sessions],
    }


def _session(session: SessionTokens) -> dict[str, Any]:
    everything = session.everything
    return {
        "key": session.key,
        "client": session.client,
        "mode": session.mode,
        "counting": session.is_counting,
        "surface": {
            "tools": session.tools,
            "tokens": session.surface,
            "list": session.list_tokens,
            "own_tools": session.own_tokens,
            "instructions": session.instructions,
        },
        "all_tools": {
            "tools": everything.tools if everything else None,
            "tokens": everything.tokens if everything else None,
            "unlisted": everything.unlisted if everything else [],
        },
        "saved": session.saved,
        "added": {
            "tokens": session.added,
            "turns": msgspec.to_builtins(session.turns),
            "searches": msgspec.to_builtins(session.searches),
            "answers": msgspec.to_builtins(session.answers),
            "list_changes": msgspec.to_builtins(session.changes),
        },
        "net": session.net,
        "last_changes": [msgspec.to_builtins(each) for each in session.last_changes],
    }
