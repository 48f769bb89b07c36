"""A server that takes some labels, refuses others, and writes down whatever reaches it.

Arguments: the file to write to, and any others.
"""

import json
import sys
from pathlib import Path
from typing import Any

REFUSED = {"area:goal", "nothing"}
TOOL = {
    "name": "create",
    "description": "Create an issue.",
    "inputSchema": {"type": "object"},
}


def text(said: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], "isError": is_error}


def main() -> None:
    created = 0
    for line in sys.stdin:
        message = json.loads(line)
        result: dict[str, Any] = {}
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "serverInfo": {"name": "picky", "version": "0"},
                    "capabilities": {"tools": {}},
                }
            case "tools/list":
                result = {"tools": [TOOL]}
            case "tools/call":
                arguments = message["params"]["arguments"]
                labels = arguments.get("labels", [])
                with Path(sys.argv[1]).open("a") as log:
                    log.write(json.dumps(arguments) + "\n")
                if isinstance(labels, list) and REFUSED & set(map(str, labels)):
                    result = text("no such label", is_error=True)
                else:
                    created += 1
                    result = text(f"created {created}")
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


main()
