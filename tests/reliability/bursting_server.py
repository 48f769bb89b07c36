"""An MCP server that answers nothing until some calls wait; then it answers all, with 15 MiB each.

python bursting_server.py CALLS
"""

import json
import os
import sys

MIB = 1 << 20
TOOL = {"name": "echo", "description": "x", "inputSchema": {"type": "object"}}


def write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def main() -> None:
    result = json.dumps({"content": [{"type": "text", "text": "a" * (15 * MIB)}]}).encode()
    waiting: list[int] = []
    for line in sys.stdin:
        message = json.loads(line)
        number = message.get("id")
        if message.get("method") == "tools/call":
            waiting.append(number)
        elif message.get("method") == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "x", "version": "1"}
            answer = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            write(json.dumps({"jsonrpc": "2.0", "id": number, "result": answer}).encode() + b"\n")
        elif number is not None:
            answer = {"tools": [TOOL]}
            write(json.dumps({"jsonrpc": "2.0", "id": number, "result": answer}).encode() + b"\n")
        if len(waiting) == int(sys.argv[1]):
            for each in waiting:
                write(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (each, result))
            waiting.clear()


if __name__ == "__main__":
    main()
