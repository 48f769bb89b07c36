"""Run as a program: plays the API server of a Kubernetes cluster with one service.

    cluster.py TARGET_PORT

It prints its port, then a line for each request. The service `github-mcp` of the namespace `team`
has the port 8080, called `http`, and one pod. What is forwarded to that pod goes to `TARGET_PORT`
of loopback.

It speaks as much of the published API as `kubectl port-forward` asks for: discovery, the service,
its pods, and the subresource `portforward` over SPDY/3.1, which every kubectl since 1.4 speaks.
Newer ones ask for WebSockets first, and take SPDY where that is refused.
"""

import contextlib
import json
import socket
import struct
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TARGET = int(sys.argv[1]) if len(sys.argv) > 1 else 0
LABELS = {"app": "github-mcp"}
SERVICE = {
    "kind": "Service",
    "apiVersion": "v1",
    "metadata": {"name": "github-mcp", "namespace": "team"},
    "spec": {
        "selector": LABELS,
        "ports": [{"name": "http", "port": 8080, "targetPort": 8080, "protocol": "TCP"}],
    },
}
POD: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "github-mcp-0", "namespace": "team", "labels": LABELS},
    "spec": {"containers": [{"name": "mcp", "ports": [{"name": "http", "containerPort": 8080}]}]},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "mcp", "ready": True, "restartCount": 0}],
    },
}
RESOURCES = {
    "kind": "APIResourceList",
    "groupVersion": "v1",
    "resources": [
        {
            "name": name,
            "singularName": name[:-1],
            "namespaced": True,
            "kind": kind,
            "verbs": ["get", "list", "watch", "create"],
        }
        for name, kind in (("services", "Service"), ("pods", "Pod"))
    ],
}
PODS = "/api/v1/namespaces/team/pods"
ANSWERS: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": RESOURCES,
    "/api/v1/namespaces/team/services/github-mcp": SERVICE,
    PODS: {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [POD]},
    f"{PODS}/github-mcp-0": POD,
}

# SPDY/3.1: types of control frames, and the flag of a stream's last frame.
SYN_STREAM, SYN_REPLY, PING = 1, 2, 6
FIN = 1


class Tunnel:
    """The SPDY connection of one `kubectl port-forward`.

    For each connection to its port kubectl opens two streams, one for errors and one for data. It
    closes that for errors at once, and a client of HTTP speaks first. So what a stream is for can
    be told without its compressed headers.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._headers = zlib.compressobj()
        self._targets: dict[int, socket.socket] = {}

    def run(self) -> None:
        with self._connection.makefile("rb") as file:
            while len(head := file.read(8)) == 8:
                flags, length = head[4], int.from_bytes(head[5:8], "big")
                body = file.read(length)
                if head[0] & 0x80:
                    self._control(struct.unpack(">H", head[2:4])[0], body)
                else:
                    self._data(int.from_bytes(head[:4], "big"), flags, body)

    def _control(self, kind: int, body: bytes) -> None:
        if kind == PING:
            self._send(struct.pack(">HHI", 0x8003, PING, 4) + body)
        if kind != SYN_STREAM:
            return
        stream = int.from_bytes(body[:4], "big") & 0x7FFFFFFF
        no_headers = self._headers.compress(bytes(4)) + self._headers.flush(zlib.Z_SYNC_FLUSH)
        reply = struct.pack(">I", stream) + no_headers
        self._send(struct.pack(">HHI", 0x8003, SYN_REPLY, len(reply)) + reply)

    def _data(self, stream: int, flags: int, body: bytes) -> None:
        target = self._targets.get(stream)
        if target is None and body:
            target = self._targets[stream] = socket.create_connection(("127.0.0.1", TARGET))
            threading.Thread(target=self._back, args=(stream, target), daemon=True).start()
        if target is None:
            # The stream for errors: there are none.
            self._send(struct.pack(">II", stream, FIN << 24))
            return
        try:
            target.sendall(body)
            if flags & FIN:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the reading side tells kubectl

    def _back(self, stream: int, target: socket.socket) -> None:
        data = b"-"
        while data:
            try:
                data = target.recv(65536)
            except OSError:
                data = b""
            flags = 0 if data else FIN
            self._send(struct.pack(">II", stream, flags << 24 | len(data)) + data)

    def _send(self, frame: bytes) -> None:
        # kubectl may have left.
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(frame)


class Api(BaseHTTPRequestHandler):
    """Answers requests, and turns one for a port into a tunnel."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        print("GET", path, self.headers.get("upgrade", ""), flush=True)
        if self.headers.get("upgrade"):
            self._answer({"kind": "Status", "status": "Failure", "code": 400}, 400)
        elif path in ANSWERS:
            self._answer(ANSWERS[path], 200)
        else:
            text = f'"{path}" not found'
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
            self._answer({**status, "reason": "NotFound", "message": text}, 404)

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        print("POST", path, self.headers.get("upgrade", ""), flush=True)
        is_port = path == f"{PODS}/github-mcp-0/portforward"
        if not is_port or self.headers.get("upgrade", "").upper() != "SPDY/3.1":
            self._answer({"kind": "Status", "status": "Failure", "code": 400}, 400)
            return
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "SPDY/3.1")
        self.send_header("X-Stream-Protocol-Version", "portforward.k8s.io")
        self.end_headers()
        self.close_connection = True
        Tunnel(self.connection).run()

    def _answer(self, content: dict[str, Any], status: int) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
