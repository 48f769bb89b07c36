"""A real MCP server over stdio for test_fakes. It imports only builtins."""

import json
import sys

TOOLS = [
    {"name": name, "description": "", "inputSchema": {"type": "object"}} for name in ("echo", "die")
]

sys.stderr.write("hello from stderr\n")
sys.stderr.flush()
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message:
        continue
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "serverInfo": {"name": "tiny", "version": "0"},
            "capabilities": {"tools": {"listChanged": True}},
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif params["name"] == "die":
        sys.exit(9)
    else:
        said = json.dumps(params.get("arguments"))
        result = {"content": [{"type": "text", "text": said}]}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
