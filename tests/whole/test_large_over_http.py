"""Results too large for memory pass through the HTTP front, as JSON and as events."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from whole_daemon import Home, wait_for

from .large_server import text_of
from .test_http_front import switched_on
from .test_large_results import LARGE_SERVER, spooled_files

BLOCKS = 500
"""More than what is read whole where it has to be."""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "mine", "method": method, "params": params}


async def session_headers(client: httpx2.AsyncClient, url: str, generation: str) -> dict[str, str]:
    """Return the headers of each request of a client of this generation."""
    if generation == "stateless":
        names = {"mcp-method": "tools/call", "mcp-name": "give"}
        return {"mcp-protocol-version": "2026-07-28", **names}
    info = {"name": "raw", "version": "1"}
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    answer = await client.post(
        url,
        json=request("initialize", asked),
        headers={"accept": "application/json, text/event-stream"},
    )
    return {"mcp-session-id": answer.headers["mcp-session-id"]}


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("generation", ["handshake", "stateless"])
async def test_a_large_result_is_the_same_in_either_form_and_generation(
    home: Home, generation: str, kind: str
) -> None:
    home.capability("large", [sys.executable, "-I", str(LARGE_SERVER), home.tag])
    port = switched_on(home, 'names = "bare"', 'capabilities = ["mine/large"]')
    daemon = home.start()
    url = f"http://127.0.0.1:{port}/mcp"
    token = Path(home.folder, "state", "http.token").read_text().strip()
    async with httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {token}"}, timeout=60
    ) as client:
        headers = await session_headers(client, url, generation)
        arguments = {"layout": "id first", "blocks": BLOCKS}
        meta = {"_meta": META} if generation == "stateless" else {}
        call = request("tools/call", {"name": "give", "arguments": arguments, **meta})

        answer = await client.post(url, json=call, headers={**headers, "accept": kind})

    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    body = answer.text
    if kind == "text/event-stream":
        events = [line for line in body.split("\n") if line.startswith("data: {")]
        [body] = [line.removeprefix("data: ") for line in events]
    message = json.loads(body)
    text = message["result"]["content"][0].pop("text")
    assert (len(text), text == text_of(BLOCKS)) == (len(text_of(BLOCKS)), True)
    complete = {"resultType": "complete"} if generation == "stateless" else {}
    result = {"content": [{"type": "text"}], "isError": False, **complete}
    assert message == {"jsonrpc": "2.0", "id": "mine", "result": result}
    wait_for(lambda: spooled_files(daemon.pid, home.folder) == [])
