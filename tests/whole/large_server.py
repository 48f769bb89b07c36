"""An MCP server over stdio whose tool answers with as much as it is asked for.

Arguments: any; they make it recognisable in the process list.
"""

import json
import sys
from typing import Any

TOOL = {"name": "give", "inputSchema": {"type": "object"}}
BLOCK = '{"id":7} "],é😀\\\n\t'.encode() * 4096
"""What is not to be taken for what is around it."""


def write(*parts: bytes) -> None:
    for part in parts:
        sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def text_of(blocks: int) -> str:
    return BLOCK.decode() * blocks


def give(request_id: int, layout: str, blocks: int) -> None:
    block = json.dumps(BLOCK.decode(), ensure_ascii=False).encode()[1:-1]
    value = [b'{"content":[{"type":"text","text":"', *[block] * blocks, b'"}],"isError":false}']
    before, after = {
        "id first": (b'{"jsonrpc":"2.0","id":%d,"result":' % request_id, b"}\n"),
        "id last": (b'{"result":', b',"jsonrpc":"2.0","id":%d}\r\n' % request_id),
        "two values": (
            b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]},"id":9,"x":' % request_id,
            b"}\n",
        ),
        "not UTF-8": (b'{"jsonrpc":"2.0","id":%d,"result":[{"x":"\xff"},' % request_id, b"]}\n"),
    }[layout]
    write(before, *value, after)


def answered(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "large", "version": "1"},
        }
    return {"tools": [TOOL]} if method == "tools/list" else {}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "tools/call":
            give(request["id"], **request["params"]["arguments"])
        else:
            result = answered(request["method"], request.get("params", {}))
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            write(json.dumps(reply).encode() + b"\n")
