"""The trust that Codex wants for a hook: a hash of its words, in Codex' own configuration.

Until its user has looked at a hook and trusted it, Codex skips it without a word (45-clients,
finding 8). That look is the user's: it is only written here for one who has said so.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capd_client.install import InstallError
from capd_client.install.edits import FileEdit
from capd_client.install.hook_lists import HookList
from capd_client.install.toml_edits import parse, put, take

_STATE = ("hooks", "state")
_EVENT = "user_prompt_submit"
_HASH = "trusted_hash"


def trusted_hash(hook: Mapping[str, Any]) -> str:
    """Return what Codex writes down of a hook that is trusted."""
    said = {"event_name": _EVENT, "hooks": [{"async": False, **hook}]}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def trust_edit(config: Path, hooks_file: Path, hooks: HookList) -> FileEdit:
    """Return the edit by which Codex trusts our hook, where that is now in `hooks_file`.

    Raises:
        InstallError: it is not there.
    """
    try:
        places = hooks.places(hooks_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        places = []
    if not places:
        raise InstallError(f"{hooks_file} has no hook of capd\nFirst: capd install codex")
    _, _, group, _, handler = places[0]
    key = f"{hooks_file}:{_EVENT}:{group}:{handler}"
    digest = trusted_hash(hooks.hook)
    return FileEdit(
        config,
        lambda text: _trusted(text, key, digest),
        lambda text, _: untrusted(text, hooks_file, hooks),
    )


def untrusted(text: str, hooks_file: Path, hooks: HookList) -> str:
    """Return Codex' configuration without a trust in our hook; that in others stays."""
    digest = trusted_hash(hooks.hook)
    for key, each in _states(text).items():
        is_ours = isinstance(each, dict) and each.get(_HASH) == digest
        if is_ours and key.startswith(f"{hooks_file}:{_EVENT}:"):
            text = take(text, (*_STATE, key))
    return text


def _trusted(text: str, key: str, digest: str) -> str:
    if not isinstance(_states(text).get(key), dict):
        return put(text, (*_STATE, key), {_HASH: digest})
    return put(text, (*_STATE, key, _HASH), digest)


def _states(text: str) -> dict[str, Any]:
    found: Any = parse(text)
    for step in _STATE:
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
