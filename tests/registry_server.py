"""A local server that speaks the MCP registry's API v0.1, and those of npm, PyPI and images.

    /v0.1/servers?cursor&limit&version&updated_since    /v0.1/servers/NAME/versions/VERSION
    /npm/NAME    /simple/NAME/    /v2/PATH/manifests/TAG

Entries have the shapes of real ones. What it was asked is in `asked`.
"""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

OFFICIAL = "io.modelcontextprotocol.registry/official"
SERVER_SOURCE = (Path(__file__).parent / "whole" / "plain_server.py").read_text()


def entry(
    name: str,
    version: str = "1.0.0",
    description: str = "Does something useful",
    *,
    status: str = "active",
    updated_at: str = "2026-01-01T00:00:00Z",
    is_latest: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return an entry as the registry gives it."""
    server = {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": name,
        "description": description,
        "version": version,
        **more,
    }
    official = {
        "status": status,
        "publishedAt": updated_at,
        "updatedAt": updated_at,
        "isLatest": is_latest,
    }
    return {"server": server, "_meta": {OFFICIAL: official}}


def package(kind: str, identifier: str, version: str = "1.0.0", **more: Any) -> dict[str, Any]:
    """Return a package of an entry."""
    return {
        "registryType": kind,
        "identifier": identifier,
        "version": version,
        "transport": {"type": "stdio"},
        **more,
    }


def wheel(name: str, version: str = "1.0.0", source: str = SERVER_SOURCE) -> bytes:
    """Return a wheel whose program of the same name runs `source`."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(f"{module}.py", f"def main():\n    exec({source!r}, {{}})\n")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr(f"{info}/WHEEL", tags)
        file.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {module}:main\n")
        file.writestr(f"{info}/RECORD", "")
    return made.getvalue()


def tarball(name: str, version: str, source: str) -> bytes:
    """Return an npm package whose program runs `source`."""
    short = name.rpartition("/")[2]
    manifest = {"name": name, "version": version, "bin": {short: "main.js"}}
    files = {"package/package.json": json.dumps(manifest), "package/main.js": source}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as file:
        for path, text in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(text.encode()), 0o755
            file.addfile(info, io.BytesIO(text.encode()))
    return gzip.compress(made.getvalue(), mtime=0)


class RegistryServer:
    """The server; everything that it says can be changed while it runs."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.npm: dict[str, dict[str, Any]] = {}
        self.simple: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.etag = ""
        self.page_size = 100
        self.breaks_after = -1
        """Answers that are given before every further one is an error; -1 for all."""
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """What has npm and uv ask this server."""
        return {"npm_config_registry": f"{self.url}/npm", "UV_DEFAULT_INDEX": f"{self.url}/simple"}

    def add_wheel(
        self, name: str, version: str = "1.0.0", *, source: str = SERVER_SOURCE, served: bytes = b""
    ) -> str:
        """Publish a wheel; `served` is handed out in its place. Return its sha256."""
        data = wheel(name, version, source)
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        digest = hashlib.sha256(data).hexdigest()
        page = self.simple.setdefault(name, {"name": name, "files": []})
        page["files"] = [each for each in page["files"] if each["filename"] != file]
        page["files"].append(
            {"filename": file, "url": f"{self.url}/files/{file}", "hashes": {"sha256": digest}}
        )
        self.files[file] = served or data
        return digest

    def add_npm(
        self, name: str, version: str = "1.0.0", *, source: str = "", served: bytes = b""
    ) -> str:
        """Publish an npm package; return its integrity."""
        data = tarball(name, version, source)
        file = f"{name.rpartition('/')[2]}-{version}.tgz"
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        packument = self.npm.setdefault(name, {"name": name, "versions": {}})
        packument["versions"][version] = {
            "name": name,
            "version": version,
            "bin": {name.rpartition("/")[2]: "main.js"},
            "dist": {"integrity": integrity, "tarball": f"{self.url}/files/{file}"},
        }
        self.files[file] = served or data
        return integrity

    def answer(self, path: str, headers: Any) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        if self.breaks_after == 0:
            return 503, {}, b"{}"
        self.breaks_after -= self.breaks_after > 0
        parts = urlsplit(path)
        place, query = parts.path, parse_qs(parts.query)
        if place == "/v0.1/servers":
            return self._page(query, headers)
        if place.startswith("/v0.1/servers/"):
            return self._version(place.removeprefix("/v0.1/servers/"))
        if place.startswith("/npm/"):
            found: Any = self.npm.get(unquote(place.removeprefix("/npm/")))
            return _json(found)
        if place.startswith("/simple/"):
            return _json(self.simple.get(place.removeprefix("/simple/").strip("/")))
        if place.startswith("/files/"):
            data = self.files.get(place.removeprefix("/files/"))
            return (200, {}, data) if data is not None else (404, {}, b"")
        if place.startswith("/v2/"):
            manifest = self.manifests.get(place)
            if manifest is None:
                return 404, {}, b""
            digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
            return 200, {"Docker-Content-Digest": digest}, manifest
        return 404, {}, b""

    def _page(self, query: dict[str, list[str]], headers: Any) -> tuple[int, dict[str, str], bytes]:
        since = query.get("updated_since", [""])[0]
        is_latest_only = query.get("version", [""])[0] == "latest"
        found = [
            each
            for each in self.entries
            if (each["_meta"][OFFICIAL]["isLatest"] or not is_latest_only)
            and each["_meta"][OFFICIAL]["updatedAt"] >= since
            and (since or each["_meta"][OFFICIAL]["status"] != "deleted")
        ]
        at = int(query.get("cursor", ["0"])[0])
        size = min(self.page_size, int(query.get("limit", ["30"])[0]))
        page = found[at : at + size]
        metadata: dict[str, Any] = {"count": len(page)}
        if at + size < len(found):
            metadata["nextCursor"] = str(at + size)
        if self.etag and headers.get("If-None-Match") == self.etag:
            return 304, {"ETag": self.etag}, b""
        more = {"ETag": self.etag} if self.etag else {}
        status, kinds, body = _json({"servers": page, "metadata": metadata})
        return status, {**kinds, **more}, body

    def _version(self, place: str) -> tuple[int, dict[str, str], bytes]:
        name, _, version = place.partition("/versions/")
        for each in self.entries:
            server, official = each["server"], each["_meta"][OFFICIAL]
            is_it = version in {server["version"], "latest" if official["isLatest"] else ""}
            if server["name"] == unquote(name) and is_it:
                return _json(each)
        return _json(None)

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: RegistryServer

    def do_GET(self) -> None:
        self.owner.asked.append(self.path)
        status, headers, body = self.owner.answer(self.path, self.headers)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


def _json(found: Any) -> tuple[int, dict[str, str], bytes]:
    if found is None:
        return 404, {"Content-Type": "application/json"}, b'{"error": "Server not found"}'
    return 200, {"Content-Type": "application/json"}, json.dumps(found).encode()


@contextlib.contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """Run a server while the block runs."""
    server = RegistryServer()
    try:
        yield server
    finally:
        server.close()
