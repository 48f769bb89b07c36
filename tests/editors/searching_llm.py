"""The scripted model, for clients that search for tools: what was found can be called.

    python searching_llm.py FAKE_LLM PORT FOLDER [SCRIPT]

FAKE_LLM picks a step's tool among those of the request. Codex adds what its `tool_search` has found
to the conversation instead, and a model may call that as well.
"""

import ast
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def found_tools(body: Json) -> list[Json]:
    """Return the tools, or namespaces of tools, that a search of the conversation has found."""
    items = body.get("input")
    outputs = [each for each in items or [] if each.get("type") == "tool_search_output"]
    return [tool for each in outputs for tool in each.get("tools") or []]


def main() -> None:
    program = Path(sys.argv.pop(1))
    tree = ast.parse(program.read_text(encoding="utf-8"))
    # The last statement serves for ever; what a request is asked for has to be another by then.
    *definitions, serving = tree.body
    room: Json = {"__name__": "__main__"}
    exec(compile(ast.Module(definitions, []), str(program), "exec"), room)
    plain = room["summarize"]

    def summarized(kind: str, path: str, headers: Any, body: Json) -> Any:
        listed = [*(body.get("tools") or []), *found_tools(body)]
        return plain(kind, path, headers, {**body, "tools": listed})

    room["summarize"] = summarized
    exec(compile(ast.Module([serving], []), str(program), "exec"), room)


if __name__ == "__main__":
    main()
