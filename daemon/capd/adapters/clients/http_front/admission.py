"""Decides which HTTP requests are accepted: by host, origin and token (docs/design/trust.md).

A web page can reach the loopback interface, also by DNS rebinding, but it cannot choose its Host
and Origin headers. Another user of the machine can choose both, but has no token. All three are
checked on every request, whatever its method, and no CORS header is ever sent. A request that can
be read in two ways is refused (RFC 9112, section 6.1).
"""

import secrets
from dataclasses import dataclass

from capd.adapters.clients.http_front.http_connection import HttpRequest

ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that is refused."""

    status: int
    text: str


class Admission:
    """Decides which requests one listener accepts."""

    def __init__(self, port: int, token: str) -> None:
        self._hosts = {f"{ADDRESS}:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._token = token.encode()

    def refusal(self, request: HttpRequest) -> Refusal | None:
        """Return why `request` is refused; None if it is accepted."""
        hosts = request.values("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return Refusal(403, "this is not a host of capd")
        if any(origin.lower() not in self._origins for origin in request.values("origin")):
            return Refusal(403, "this origin may not use capd")
        if request.values("content-length") and request.values("transfer-encoding"):
            return Refusal(400, "the length of the body is said in two ways")
        if not self._is_token(request.values("authorization")):
            return Refusal(401, "the bearer token of capd is needed: capd keeps it in http.token")
        return None

    def _is_token(self, said: list[str]) -> bool:
        if len(said) != 1:
            return False
        scheme, _, token = said[0].partition(" ")
        # Compared as bytes, because `compare_digest` raises for a string that is not ASCII.
        is_it = secrets.compare_digest(token.strip().encode(), self._token)
        return is_it and scheme.lower() == "bearer"
