"""Spans reach a collector as children of the client's; without one they cost nothing."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from python_with import python_with
from whole_daemon import Home, wait_for

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
META = {
    "traceparent": f"00-{TRACE}-{PARENT}-01",
    "tracestate": "vendor=1",
    "baggage": "user=ada,key=canary-baggage",
}
SERVER = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    def reply(r): print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
    if m["method"] == "initialize":
        reply({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
               "serverInfo": {"name": "x", "version": "1"}})
    elif m["method"] == "tools/list":
        reply({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
    else:
        reply({"content": [{"type": "text", "text": json.dumps(m["params"].get("_meta"))}]})
"""


class Collector:
    """An HTTP server that receives spans."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        collector = self

        class Takes(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                collector.take(self.path, data)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Do not log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Takes)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path: str, data: bytes) -> None:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            attributes = {
                each.key: each.value.string_value for each in resource.resource.attributes
            }
            self.services.add(attributes["service.name"])
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def define(home: Home) -> None:
    script = home.folder / "meta.py"
    script.write_text(SERVER)
    home.capability("meta", [sys.executable, "-I", str(script), home.tag])


def test_a_call_has_a_span_that_is_the_child_of_the_clients_and_its_meta_is_untouched(
    home: Home, collector: Collector
) -> None:
    define(home)
    home.env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    daemon = home.start()
    wait_for(lambda: '"event":"tracing"' in home.log())
    editor = home.shim("one")
    home.ask("enable", session="one", name="meta")

    call = {"name": "meta__echo", "arguments": {"x": "canary-argument"}, "_meta": META}
    seen = editor.ask("tools/call", call)["content"][0]["text"]
    editor.ask("tools/call", {"name": "capability", "arguments": {"action": "nonsense"}})
    editor.leave()
    daemon.terminate()
    daemon.wait()

    assert json.loads(seen) == META
    called, own = collector.spans
    assert collector.services == {"capd"}
    assert (called.name, called.trace_id.hex(), called.parent_span_id.hex()) == (
        "tools/call meta__echo",
        TRACE,
        PARENT,
    )
    assert called.trace_state == "vendor=1"
    attributes = {each.key: each.value.string_value for each in called.attributes}
    assert attributes == {
        "mcp.method.name": "tools/call",
        "session.id": "one",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "meta__echo",
    }
    assert (own.name, own.parent_span_id, own.status.code) == ("tools/call capability", b"", 2)
    assert "canary" not in str(collector.spans)


def test_where_the_extra_is_missing_the_log_says_what_to_install_and_calls_work(
    home: Home, collector: Collector
) -> None:
    define(home)
    absent = home.folder / "absent" / "opentelemetry"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ImportError('not installed')\n")
    home.env |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
    }
    home.python = python_with(absent.parent, home.folder / "python")
    home.start()
    wait_for(lambda: '"event":"not_traced"' in home.log())
    editor = home.shim("one")
    home.ask("enable", session="one", name="meta")

    said = editor.call("meta__echo", {"x": 1})

    assert "pip install 'capd[otel]'" in home.log()
    assert said["content"][0]["text"] == "null"
    assert collector.spans == []
    editor.leave()
