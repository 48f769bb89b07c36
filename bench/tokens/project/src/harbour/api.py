"""The HTTP interface: berths, boats, and the invoice of a stay."""

import json
import sqlite3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from harbour.billing import invoice, total
from harbour.settings import load_settings
from harbour.stays import stay_of


class Api(BaseHTTPRequestHandler):
    """Answers GET requests with JSON."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        match parts.path:
            case "/berths":
                self._answer(self._rows("select * from berths order by number"))
            case "/boats":
                self._answer(self._rows("select * from boats order by name"))
            case "/invoice":
                stay = stay_of(int(parse_qs(parts.query)["stay"][0]))
                lines = invoice(stay)
                self._answer({"lines": [line.text for line in lines], "total": str(total(lines))})
            case _:
                self.send_error(404, "No such resource")

    def _rows(self, query: str) -> list[dict[str, object]]:
        connection = sqlite3.connect(load_settings().database)
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8000), Api).serve_forever()
