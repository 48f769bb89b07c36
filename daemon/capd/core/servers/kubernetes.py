"""Servers that run in a Kubernetes cluster: how a definition names one, and how it is reached.

    kubernetes = "team/github-mcp:8080/mcp"     namespace, service, port, path

A definition keeps this place as the URL `kubernetes://team/github-mcp:8080/mcp`, so that code which
shows, compares or trusts servers by URL handles these as well. The service is reached over `kubectl
port-forward`, which uses the kubeconfig of the user.
"""

from dataclasses import dataclass

from capd.core.lazy_patterns import lazy_pattern

DEFAULT_PORT = "http"
"""The name of a port: a service can give its ports names, and this is the usual one."""
DEFAULT_PATH = "/mcp"
SCHEME = "kubernetes://"
PROGRAM = "kubectl"

# RFC 1123 labels, as Kubernetes wants them for namespaces and services; RFC 6335 names for ports.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PLACE = lazy_pattern(
    rf"(?P<namespace>{_LABEL})/(?P<service>{_LABEL})"
    r"(?::(?P<port>\d{1,5}|[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?))?"
    r"(?P<path>/[!-~]*)?"
)
_FORWARDING = lazy_pattern(rb"Forwarding from 127\.0\.0\.1:(\d{1,5}) -> \d{1,5}\s*")
_MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class ClusterService:
    """A service of a cluster, with the port and the path of its MCP endpoint."""

    namespace: str
    service: str
    port: str = DEFAULT_PORT
    """A number, or the name that the service gives the port."""
    path: str = DEFAULT_PATH

    @property
    def url(self) -> str:
        """The URL that stands for the service in a definition."""
        return f"{SCHEME}{self.namespace}/{self.service}:{self.port}{self.path}"

    @property
    def command(self) -> tuple[str, ...]:
        """The command line that forwards a free port of loopback to the service."""
        return (
            PROGRAM,
            "port-forward",
            "--address=127.0.0.1",
            f"--namespace={self.namespace}",
            f"service/{self.service}",
            f":{self.port}",
        )

    def local_url(self, port: int) -> str:
        """Return the URL of the endpoint on the forwarded `port` of loopback."""
        return f"http://127.0.0.1:{port}{self.path}"


def place(text: str) -> ClusterService:
    """Return the cluster's service that `NAMESPACE/SERVICE[:PORT][/PATH]` names.

    Raises:
        ValueError: it names none; the text says why.
    """
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ValueError("`kubernetes` is not `namespace/service`, with `:port` and `/path` if any")
    port = match["port"] or DEFAULT_PORT
    if port.isdecimal() and not 1 <= int(port) <= _MOST_PORT:
        raise ValueError("`kubernetes` has a port that is not within 1 to 65535")
    return ClusterService(match["namespace"], match["service"], port, match["path"] or DEFAULT_PATH)


def is_place(url: str) -> bool:
    """Tell whether the URL of a definition stands for a service of a cluster."""
    return url.startswith(SCHEME)


def place_of(url: str) -> ClusterService:
    """Return the cluster's service that the URL in a definition stands for.

    Raises:
        ValueError: it stands for none.
    """
    return place(url.removeprefix(SCHEME))


def forwarded_port(line: bytes) -> int | None:
    """Return the port of loopback that `kubectl port-forward` reports in `line`, else None.

    kubectl prints `Forwarding from 127.0.0.1:41233 -> 8080` when the port is open.
    """
    match = _FORWARDING.fullmatch(line)
    return int(match[1]) if match is not None else None
