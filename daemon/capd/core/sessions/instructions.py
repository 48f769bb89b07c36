"""The member `instructions` of MCP's `initialize` result, in at most 400 tokens.

It tells a model how to use capd, and what is installed. A client reads it once, when the session
begins, so it contains nothing that may change later.
"""

from collections.abc import Mapping

from capd.core.scripts.script_tool import SCRIPT_RUN
from capd.core.sessions.own_tool_list import OwnTool
from capd.core.sessions.own_tools import CAPABILITY
from capd.core.sessions.search_tools import TOOL_CALL, TOOL_SEARCH
from capd_protos.types import WireName

_HEAD = (
    "capd shows only the tools that this conversation needs and switches more on from the user's "
    "own words. More are installed than are listed here."
)


def instructions(
    own: Mapping[WireName, OwnTool], *, is_fixed: bool, index: str = "", has_scripts: bool = False
) -> str:
    """Return the text that tells a model, in `initialize`, how to use capd and what is installed.

    `own` has capd's own tools by the names that the client knows. Without the tool `capability` the
    text is empty. `is_fixed` says that the client's list never changes. `index` is the short list
    of what is installed (docs/memories.md). `has_scripts` says that the session may run scripts
    with a tool that is not on the client's list.
    """
    names = {each.name: name for name, each in own.items()}
    capability, search = names.get(CAPABILITY), names.get(TOOL_SEARCH)
    if capability is None:
        return ""
    parts = [_HEAD]
    if search is not None:
        parts.append(
            f"If a tool seems to be missing, call `{search}` with what it should do in a few "
            "words: it answers with the tools' input schemas and switches them on."
        )
        by = f"call it with `{names[TOOL_CALL]}`"
        if is_fixed:
            parts.append(f"This list never changes. To use a tool that is not on it, {by}.")
        else:
            parts.append(f"The list is then extended; where a tool that is on is not listed, {by}.")
        if has_scripts:
            parts.append(
                f"For three or more calls, call `{SCRIPT_RUN}` with `{names[TOOL_CALL]}`: its "
                "`code` is Python, `await server.tool(arg=1)`."
            )
    parts.append(
        f'`{capability}` with {{"action": "discover", "intent": "what you want to do"}} finds '
        'bundles of tools, and with {"action": "enable", "name": "..."} switches one on.'
    )
    text = " ".join(parts)
    return f"{text}\n{index}" if index else text
