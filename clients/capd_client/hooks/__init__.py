"""What each client's prompt hook reads and prints: a pair of pure functions for each client.

`prompt(said, env)` takes the hook's JSON and environment and returns the user's words, with no
text where there are none for capd. `answer(context)` returns what the client understands, empty
where it shows its model nothing of what a hook says (docs/design/clients.md).

A client's module is imported when that client runs a hook: a hook has 300 ms in all.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from capd_client.hooks.fields import Prompt

MODULES = {
    "claude": "claude",
    "cline": "cline",
    "code": "vscode",
    "codex": "codex",
    "copilot": "copilot_folder",
    "cursor": "cursor",
    "gemini": "gemini",
    "goose": "goose",
    "qwen": "qwen",
    "windsurf": "windsurf",
}
"""Where each client's pair is, by the name that `capd hook` takes."""


class Pair(NamedTuple):
    """What a client's hook reads, and what it prints."""

    prompt: Callable[[Mapping[str, Any], Mapping[str, str]], Prompt]
    answer: Callable[[str], str]


def pair_of(client: str) -> Pair:
    """Return the pair of a client that is in `MODULES`."""
    module = import_module(f"capd_client.hooks.{MODULES[client]}")
    return Pair(module.prompt, module.answer)
