"""A scripted agent of the Agent Client Protocol, in the standard library.

It starts the MCP servers of its sessions as an agent does, with a small environment, and answers a
prompt with what it saw: the prompt's blocks, and the tools that capd lists at that moment. Words
of a prompt may ask for more: `die N`, `echo BYTES`, `stay`.
"""

import json
import os
import subprocess
import sys
from typing import Any

from capd_client.mcp_host import McpHost

hosts: dict[str, McpHost] = {}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def opened(params: dict[str, Any]) -> dict[str, Any]:
    session = f"s{len(hosts) + 1}"
    (server,) = [each for each in params["mcpServers"] if each["name"] == "capd"]
    env = {each["name"]: each["value"] for each in server["env"]}
    command = [server["command"], *server["args"]]
    host = hosts[session] = McpHost(command, env={"PATH": os.defpath, **env}, cwd=params["cwd"])
    host.initialize("scripted-agent")
    return {"sessionId": session, "saw": params}


def prompted(params: dict[str, Any]) -> dict[str, Any]:
    words = params["prompt"][0].get("text", "").split()
    if words[:1] == ["die"]:
        os._exit(int(words[1]))
    host = hosts[params["sessionId"]]
    if words[:1] == ["echo"]:
        return {"stopReason": "end_turn", "text": "x" * int(words[1])}
    names = [tool["name"] for tool in host.tools()]
    hook = [sys.executable, "-P", "-m", "capd_client.entry", "hook", "claude", "UserPromptSubmit"]
    subprocess.run(hook, input=json.dumps({"prompt": " ".join(words)}).encode(), check=True)
    return {"stopReason": "end_turn", "saw": params["prompt"], "tools": names}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        say({"jsonrpc": "2.0", "method": "session/update", "params": {"heard": message}})
        continue
    answer: dict[str, Any] = {"protocolVersion": 1}
    if message["method"] == "session/new":
        answer = opened(message["params"])
    elif message["method"] == "session/prompt":
        answer = prompted(message["params"])
    elif message["method"] == "raw":
        answer = {"line": line}
    say({"jsonrpc": "2.0", "id": message["id"], "result": answer})
for host in hosts.values():
    host.leave()
