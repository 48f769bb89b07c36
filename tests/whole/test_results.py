"""Long results are shortened, and can be read whole by handle, also after a restart."""

import base64
import json
import os
import random
import re
import shutil
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client
from mcp_types import BlobResourceContents, ResourceLink, TextContent

from capd_client.mcp_host import McpHost
from whole_daemon import PATIENCE, Home

from .test_http_front import client_of as http_client
from .test_http_front import switched_on, unclosed_streams
from .test_sdk_client import shim_of

RESULTS_SERVER = Path(__file__).parent / "results_server.py"
ISSUE = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "state": {"enum": ["open", "closed"]},
        "url": {"type": "string", "pattern": "^https://"},
        "body": {"type": "string"},
    },
    "required": ["id", "state", "url", "body"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "integer"}, "issues": {"type": "array", "items": ISSUE}},
    "required": ["total", "issues"],
}


SLOW_PATH = f"$.deep{'..*' * 8}[?@ == 'nowhere']"


def issues(count: int) -> dict[str, Any]:
    """Return a tracker's answer; about 1,100 of these are 171,000 tokens."""
    drawn = random.Random(7)
    words = ["the", "server", "fails", "when", "its", "cache", "in", "src/cache.rs", "is", "full"]
    return {
        "total": count,
        "issues": [
            {
                "id": number,
                "state": drawn.choice(["open", "closed"]),
                "url": f"https://tracker.example/o/r/issues/{number}",
                "body": " ".join(drawn.choices(words, k=90)) + f" needle{number}",
            }
            for number in range(count)
        ],
    }


class Wire:
    """A client directly on the socket, for messages that a shim does not send."""

    def __init__(self, path: str, **hello: Any) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")
        client = {"name": "agent", "pid": os.getpid()}
        self._send({"capd": "hello", "protocol": 1, "role": "mcp", "client": client, **hello})
        assert json.loads(self._lines.readline())["capd"] == "welcome"
        self.heard: list[str] = []
        """The methods of notifications, in their order."""
        self._ask("initialize", {"protocolVersion": "2025-11-25"})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self._ask("tools/call", {"name": name, "arguments": arguments})

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = json.loads(self.line(method, params))
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def line(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        """Return the response as raw bytes."""
        self._send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
        while True:
            line = self._lines.readline()
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == 1:
                return line
            self.heard.append(message.get("method", ""))

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")


def text_result(text: str, **members: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **members}


class Shop:
    """A server of results, and sessions that have it on."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.port = 0
        self.folder = home.folder / "results"
        self.folder.mkdir()
        home.capability(
            "shop", [sys.executable, "-I", str(RESULTS_SERVER), str(self.folder), home.tag]
        )

    def offers(self, name: str, result: Any, **beside: Any) -> None:
        data = result if isinstance(result, bytes) else json.dumps(result).encode()
        self.folder.joinpath(f"{name}.json").write_bytes(data)
        for suffix, value in beside.items():
            self.folder.joinpath(f"{name}.{suffix}").write_text(json.dumps(value))

    def configure(self, toml: str) -> None:
        config = self.home.folder / "config"
        config.mkdir(exist_ok=True)
        config.joinpath("config.toml").write_text(toml)

    def session(self, key: str) -> McpHost:
        editor = self.home.shim(key)
        self.home.ask("enable", session=key, name="shop")
        return editor

    @property
    def stored(self) -> list[Path]:
        return sorted((self.home.folder / "cache" / "results").glob("*.result"))


@pytest.fixture
def shop(home: Home) -> Shop:
    return Shop(home)


def handle_in(result: dict[str, Any]) -> str:
    handle: str = result["_meta"]["capd/compacted"]["handle"]
    assert handle in result["content"][0]["text"]
    return handle


def read(editor: McpHost, **arguments: Any) -> tuple[str, str]:
    """Return the first two texts of a `result_read`; the second is empty if there is none."""
    result = editor.call("result_read", arguments)
    assert not result["isError"], result
    texts = [block["text"] for block in result["content"]]
    return texts[0], texts[1] if len(texts) > 1 else ""


def refusal(editor: McpHost, **arguments: Any) -> str:
    result = editor.call("result_read", arguments)
    assert result["isError"], result
    text: str = result["content"][0]["text"]
    return text


def read_all(editor: McpHost, handle: str, **more: Any) -> str:
    pieces, offset = [], 0
    while True:
        said, shown = read(editor, handle=handle, offset=offset, length=24_000, **more)
        pieces.append(shown)
        following = re.search(r"Next: offset (\d+)", said)
        if following is None:
            return "".join(pieces)
        offset = int(following[1])


def test_a_result_of_171_000_tokens_is_short_valid_and_whole_by_its_handle(shop: Shop) -> None:
    found = issues(1_100)
    whole = text_result(json.dumps(found), structuredContent=found, isError=False, extra=[1])
    shop.offers("list", whole, schema=SCHEMA)
    shop.home.start()
    editor = shop.session("one")

    result = editor.call("shop__list", {})

    assert len(json.dumps(found)) > 171_000 * 3.5
    assert len(json.dumps(result, ensure_ascii=False)) <= 24_000
    jsonschema.validate(result["structuredContent"], SCHEMA)
    count = len(result["structuredContent"]["issues"])
    assert result["structuredContent"]["issues"] == found["issues"][:count]
    assert count > 5
    assert (result["isError"], result["extra"]) == (False, [1])
    assert json.loads(result["content"][1]["text"])["issues"][0] == found["issues"][0]
    handle = handle_in(result)
    assert json.loads(read_all(editor, handle)) == found
    assert read_all(editor, handle, part="raw") == json.dumps(whole)
    assert read_all(editor, handle, part="0") == json.dumps(found)
    editor.leave()


def test_a_schema_that_allows_no_cut_leads_to_a_preview_that_says_so(shop: Shop) -> None:
    found = issues(500)
    strict = {"type": "object", "properties": {"issues": {"type": "array", "minItems": 500}}}
    shop.offers("list", text_result("500", structuredContent=found), schema=strict)
    body = {"properties": {"body": {"minLength": 300}}}
    items = {"minItems": 500, "items": {"required": ["body"], **body}}
    exact = {"type": "object", "required": ["issues"], "properties": {"issues": items}}
    shop.offers("exact", text_result(json.dumps(found), structuredContent=found), schema=exact)
    shop.offers("plain", text_result("0", structuredContent={}), schema={"type": "object"})
    shop.home.start()
    editor = shop.session("one")

    result = editor.call("shop__list", {})
    forbidden = editor.call("shop__exact", {})

    # Every item is still there: each of them is shorter.
    assert len(result["structuredContent"]["issues"]) == 500
    assert "structuredContent" not in forbidden
    assert not forbidden.get("isError")
    assert {t["name"]: "outputSchema" in t for t in editor.tools() if "shop" in t["name"]} == {
        "shop__exact": False,
        "shop__list": False,
        "shop__plain": True,
    }
    assert "output schema allows no shorter" in forbidden["content"][0]["text"]
    assert len(json.dumps(forbidden)) <= 24_000
    assert json.loads(read_all(editor, handle_in(forbidden))) == found
    editor.leave()


def test_only_the_session_that_got_a_handle_and_those_that_it_started_may_read_it(
    shop: Shop,
) -> None:
    shop.offers("log", text_result("line\n" * 20_000))
    shop.home.start()
    editor, other = shop.session("one"), shop.session("two")
    handle = handle_in(editor.call("shop__log", {}))

    refused = refusal(other, handle=handle)
    unknown = refusal(other, handle="r" + "a" * 26)
    other_handle = handle_in(other.call("shop__log", {}))

    assert refused.startswith("This handle belongs to another session")
    assert unknown.startswith("No result is kept under this handle")
    assert other_handle != handle
    assert len(shop.stored) == 1
    assert read(editor, handle=handle, length=5)[1] == "line\n"
    editor.leave()
    other.leave()


def test_a_handle_outlives_the_daemon_and_a_damaged_copy_is_told(shop: Shop) -> None:
    shop.offers("log", text_result("line\n" * 20_000))
    daemon = shop.home.start()
    editor = shop.session("one")
    handle = handle_in(editor.call("shop__log", {}))
    daemon.terminate()
    daemon.wait(PATIENCE)
    shop.home.start()
    (stored,) = shop.stored
    modes = [path.stat().st_mode & 0o777 for path in (stored.parent, stored)]

    before = read(editor, handle=handle, offset=-5)
    data = bytearray(stored.read_bytes())
    data[50_000] ^= 1
    stored.write_bytes(data)
    flipped = refusal(editor, handle=handle)
    stored.write_bytes(data[:1000])
    truncated = refusal(editor, handle=handle)
    stored.unlink()
    gone = refusal(editor, handle=handle)

    assert modes == [0o700, 0o600]
    assert before == ("[capd] characters 99995 to 100000 of 100,000. This is the end.", "line\n")
    assert flipped.startswith("The stored copy of this result is damaged")
    assert truncated == flipped
    assert gone.startswith("This result is no longer kept")
    editor.leave()


def test_words_and_paths_find_parts_of_a_result(shop: Shop) -> None:
    shop.offers("list", text_result(json.dumps(issues(1_100), indent=1)))
    shop.offers("log", text_result("".join(f"{n} GET /a/{n}\n" for n in range(10_000))))
    shop.offers("deep", text_result(f'{{"deep": {"[" * 60}{"]" * 60}, "pad": "{"x" * 40_000}"}}'))
    shop.home.start()
    editor = shop.session("one")
    handle = handle_in(editor.call("shop__list", {}))
    log = handle_in(editor.call("shop__log", {}))
    deep = handle_in(editor.call("shop__deep", {}))

    path = read(editor, handle=handle, json_path="$.issues[700:703].id")
    one = read(editor, handle=handle, json_path="$.total")
    none = read(editor, handle=handle, json_path="$.nothing")
    bad = refusal(editor, handle=handle, json_path="issues[")
    item = read(editor, handle=handle, query="NEEDLE777")
    line = read(editor, handle=log, query="get /a/4242")
    slow = refusal(editor, handle=deep, json_path=SLOW_PATH)
    outside = refusal(editor, handle=log, offset=10**9)

    assert path == ("[capd] 3 values, as a list.", "[700,701,702]")
    assert one == ("[capd] 1 value.", "1100")
    assert none == ("[capd] Nothing is at '$.nothing'.", "")
    assert bad.startswith("The JSON path 'issues[' is wrong")
    assert item[0] == "[capd] 1 of the JSON items has all the words."
    assert item[1].startswith('$.issues[777]: {"id":777,')
    assert line[1].startswith("line 4243, offset ")
    assert line[1].endswith(": 4242 GET /a/4242")
    assert "takes too much time" in slow
    assert outside.startswith("Offset 1000000000 is out of range")
    editor.leave()


def test_images_stay_whole_or_become_links_that_can_be_read(shop: Shop) -> None:
    image = base64.b64encode(random.Random(1).randbytes(60_000)).decode()
    block = {
        "type": "image",
        "data": image,
        "mimeType": "image/png",
        "annotations": {"priority": 1},
    }
    shop.offers("shot", {"content": [block]})
    shop.offers("shots", {"content": [block, *text_result("x" * 90_000)["content"], block]})
    shop.configure("[results]\nmedia = 100000\n")
    shop.home.start()
    editor = shop.session("one")

    alone = editor.call("shop__shot", {})
    both = editor.call("shop__shots", {})
    link = both["content"][3]
    contents = editor.ask("resources/read", {"uri": link["uri"]})["contents"]

    assert alone == {"content": [block]}
    assert [each["type"] for each in both["content"]] == ["text", "image", "text", "resource_link"]
    assert both["content"][1] == block
    assert (link["mimeType"], link["annotations"]) == ("image/png", {"priority": 1})
    assert contents == [{"uri": link["uri"], "mimeType": "image/png", "blob": image}]
    editor.leave()


def test_what_is_under_its_limit_passes_byte_for_byte_and_limits_are_per_tool_and_server(
    shop: Shop,
) -> None:
    log = text_result("x" * 40_000)
    for name in ("under", "over", "named", "own"):
        shop.offers(name, text_result("é" * 31_000) if name == "under" else log)
    shop.offers("own", log, meta={"anthropic/maxResultSizeChars": 50_000})
    shop.offers("small", text_result("y" * 9_000), meta={"anthropic/maxResultSizeChars": 8_000})
    shop.configure('[results.tools]\n"shop:named" = 0\n')
    shop.home.start()
    editor = shop.session("one")

    got = {n: editor.call(f"shop__{n}", {}) for n in ("under", "over", "named", "own", "small")}

    whole = {name for name, result in got.items() if "_meta" not in result}
    assert whole == {"under", "named", "own"}
    assert got["named"] == log
    (session,) = shop.home.ask("sessions")["sessions"]
    results = session["results"]
    assert (results["compacted"], results["characters_in"]) == (2, 49_000)
    assert results["characters_out"] <= 24_000 + 6_000
    editor.leave()


def test_switched_off_everything_passes_and_no_tool_is_offered(shop: Shop) -> None:
    log = text_result("x" * 400_000)
    shop.offers("log", log)
    shop.home.env["CAPD_RESULT_LIMIT"] = "0"
    shop.home.start()
    editor = shop.session("one")

    result = editor.call("shop__log", {})

    assert result == log
    assert "result_read" not in [tool["name"] for tool in editor.tools()]
    editor.leave()


def client_of(shop: Shop, way: str) -> AbstractAsyncContextManager[Client]:
    mode = "2026-07-28" if way.startswith("stateless") else "legacy"
    if way.endswith("HTTP"):
        return http_client(shop.home, shop.port, mode)
    return Client(shim_of(shop.home), mode=mode)


@unclosed_streams
@pytest.mark.parametrize(
    "way",
    [
        f"{generation} over {by}"
        for generation in ("handshake", "stateless")
        for by in ("stdio", "HTTP")
    ],
)
async def test_the_sdk_client_takes_short_results_for_valid_ones_in_both_eras(
    shop: Shop, way: str
) -> None:
    found = issues(400)
    shop.offers("list", text_result(json.dumps(found), structuredContent=found), schema=SCHEMA)
    items = {"required": ["body"], "properties": {"body": {"minLength": 300}}}
    strict: dict[str, Any] = {"type": "object", "required": ["issues"]}
    strict |= {"properties": {"issues": {"minItems": 400, "items": items}}}
    shop.offers("strict", text_result("400", structuredContent=found), schema=strict)
    image = {"type": "image", "data": "QUJD" * 9_000, "mimeType": "image/png"}
    shop.offers("shot", {"content": [image]})
    shop.port = switched_on(shop.home, "[results]", "media = 9000")
    shop.home.start()

    async with client_of(shop, way) as client:
        await client.call_tool("capability", {"action": "enable", "name": "shop"})
        result = await client.call_tool("shop__list", {})
        handle = (result.meta or {})["capd/compacted"]["handle"]
        page = await client.call_tool("result_read", {"handle": handle, "json_path": "$.total"})
        preview = await client.call_tool("shop__strict", {})
        through = await client.call_tool("tool_call", {"name": "shop__strict"})
        listed = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        shot = await client.call_tool("shop__shot", {})
        link = shot.content[1]
        assert isinstance(link, ResourceLink)
        blob = (await client.read_resource(link.uri)).contents[0]

    assert result.structured_content is not None
    assert 0 < len(result.structured_content["issues"]) < 400
    # A client of the SDK refuses a result without the structured content that it was promised.
    if "shop__strict" in listed:
        assert listed["shop__strict"] is None
    for cut in (preview, through):
        assert (cut.is_error or False, cut.structured_content) == (False, None)
        assert isinstance(cut.content[0], TextContent)
        assert "The call succeeded." in cut.content[0].text
        assert (cut.meta or {})["capd/compacted"]["handle"] in cut.content[0].text
    assert isinstance(page.content[1], TextContent)
    assert page.content[1].text == "400"
    assert isinstance(blob, BlobResourceContents)
    assert blob.blob == image["data"]


def test_a_full_disk_costs_no_result_and_is_told(shop: Shop) -> None:
    log = text_result("x" * 400_000)
    shop.offers("log", log)
    shop.home.start()
    editor = shop.session("one")
    in_the_way = shop.home.folder / "cache" / "results"
    shutil.rmtree(in_the_way, ignore_errors=True)
    in_the_way.write_text("")

    result = editor.call("shop__log", {})
    in_the_way.unlink()
    in_the_way.mkdir()
    later = editor.call("shop__log", {})

    assert result == log
    assert "result_not_kept" in shop.home.log()
    assert shop.home.ask("sessions")["sessions"][0]["results"]["not_kept"] == 1
    assert json.loads(json.dumps(later))["_meta"]["capd/compacted"]["characters"] == 400_000
    editor.leave()


def test_a_session_reads_what_the_session_that_started_it_got(shipped_home: Home) -> None:
    shop = Shop(shipped_home)
    shop.offers("log", text_result("line\n" * 20_000))
    shop.home.start()
    editor = shop.session("one")
    handle = handle_in(editor.call("shop__log", {}))
    child = Wire(shop.home.socket, session="child", parent="one")
    stranger = Wire(shop.home.socket, session="stranger", parent="nobody")

    read_by_child = child.call("result_read", handle=handle, length=5)
    read_by_stranger = stranger.call("result_read", handle=handle, length=5)

    assert (read_by_child["isError"], read_by_child["content"][1]["text"]) == (False, "line\n")
    assert read_by_stranger["isError"]
    for wire in (child, stranger):
        wire.close()
    editor.leave()


def large(say: Callable[[int], str], count: int) -> bytes:
    """Return a result of one text, of which Python never holds two."""
    body = json.dumps("".join(map(say, range(count)))).encode()
    return b'{"content":[{"type":"text","text":' + body + b'}],"isError":false}'


def test_a_result_of_40_mb_is_short_and_every_byte_can_be_read(shop: Shop) -> None:
    data = large(lambda n: f"{n:09} é GET /some/path/{n}\n", 1_100_000)
    shop.offers("log", data)
    shop.home.start()
    editor = shop.session("one")

    result = editor.call("shop__log", {})

    handle = handle_in(result)
    assert len(data) > 33_000_000
    assert len(json.dumps(result, ensure_ascii=False)) <= 24_000
    assert result["content"][1]["text"].startswith("000000000 é GET /some/path/0\n")
    size = len(data)
    for at in (0, 12_345_678, 20 << 20, size - 8_000):
        said, shown = read(editor, handle=handle, offset=at)
        start, end = (int(n) for n in re.findall(r"bytes (\d+) to (\d+)", said)[0])
        assert shown.encode() == data[start:end]
        assert at <= start <= at + 3
    assert "Over 33,554,432" in refusal(editor, handle=handle, query="GET")
    editor.leave()
