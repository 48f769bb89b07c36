"""Which addresses a server may redirect capd to."""

import httpx2
import pytest

from capd.adapters.servers.http.address_policy import AddressPolicy, AddressRefusedError

NAMES = {
    "mcp.example": ["93.184.215.14"],
    "login.example": ["93.184.215.15", "2606:2800:21f:cb07::1"],
    "rebound.example": ["93.184.215.14", "10.0.0.1"],
    "localhost": ["127.0.0.1", "::1"],
    # A network without IPv4 reaches a public address of it so.
    "translated.example": ["64:ff9b::5db8:d70e"],
    "inside.example": ["10.1.2.3"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
}
PUBLIC, LOCAL, INSIDE = (
    "https://mcp.example/mcp",
    "http://localhost:8000/mcp",
    "https://inside.example/mcp",
)
WHAT = "an authorization server"
NOT_HTTPS = f"names {WHAT} that is not an https address"


def strange(kind: str) -> str:
    return f"names {WHAT} in a {kind} network, where it is not itself"


async def look_up(host: str, port: int) -> list[str]:
    if host not in NAMES:
        raise AddressRefusedError("is at an address whose name cannot be resolved")
    return NAMES[host]


def policy(server: str, *, is_proxied: bool = False) -> AddressPolicy:
    def has_proxy(_: httpx2.URL) -> bool:
        return is_proxied

    return AddressPolicy(server, look_up, has_proxy)


@pytest.mark.parametrize(
    ("server", "url", "reason"),
    [
        (PUBLIC, "http://login.example/", NOT_HTTPS),
        (PUBLIC, "javascript:alert(1)", NOT_HTTPS),
        (PUBLIC, "file:///etc/passwd", NOT_HTTPS),
        (PUBLIC, "data:text/html,x", NOT_HTTPS),
        (PUBLIC, "https://user:pw@login.example/", NOT_HTTPS),
        (PUBLIC, "https://127.0.0.1/", strange("loopback")),
        (PUBLIC, "https://[::1]/", strange("loopback")),
        (PUBLIC, "https://localhost/", strange("loopback")),
        (PUBLIC, "https://mapped.example/", strange("loopback")),
        (PUBLIC, "https://10.0.0.1/", strange("private")),
        (PUBLIC, "https://rebound.example/", strange("private")),
        (PUBLIC, "https://0.0.0.0/", strange("reserved")),
        # Addresses with another one inside: NAT64, and 6to4.
        (PUBLIC, "https://[64:ff9b::a9fe:a9fe]/", strange("link-local")),
        (PUBLIC, "https://[64:ff9b::10.0.0.1]/", strange("private")),
        (PUBLIC, "https://[2002:7f00:1::]/", strange("loopback")),
        (PUBLIC, "https://[::ffff:169.254.169.254]/", strange("link-local")),
        (PUBLIC, "https://metadata.example/", strange("link-local")),
        (PUBLIC, "https://nowhere.example/", "is at an address whose name cannot be resolved"),
        (LOCAL, "http://login.example/", NOT_HTTPS),
        (LOCAL, "https://10.0.0.1/", strange("private")),
        (INSIDE, "https://127.0.0.1/", strange("loopback")),
        ("http://169.254.169.254/", "https://metadata.example/", strange("link-local")),
    ],
)
async def test_what_leads_into_a_strange_network_is_refused(
    server: str, url: str, reason: str
) -> None:
    with pytest.raises(AddressRefusedError) as refused:
        await policy(server).check(url, WHAT)

    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("server", "url", "addresses"),
    [
        (PUBLIC, "https://login.example/", NAMES["login.example"]),
        (PUBLIC, "https://translated.example/", NAMES["translated.example"]),
        (LOCAL, "http://127.0.0.1:9/", ["127.0.0.1"]),
        (LOCAL, "https://login.example/", NAMES["login.example"]),
        (INSIDE, "https://10.9.9.9/", ["10.9.9.9"]),
    ],
)
async def test_what_may_be_asked_is_connected_to_where_it_was_checked(
    server: str, url: str, addresses: list[str]
) -> None:
    found = await policy(server).check(url, WHAT)

    assert found == addresses


async def test_a_proxy_resolves_names_itself() -> None:
    found = await policy(PUBLIC, is_proxied=True).check("https://nowhere.example/", WHAT)

    assert found == []


async def test_a_proxy_is_not_asked_for_strange_addresses() -> None:
    with pytest.raises(AddressRefusedError):
        await policy(PUBLIC, is_proxied=True).check("https://127.0.0.1/", WHAT)


@pytest.mark.parametrize("server", ["http://mcp.example/", "http://inside.example/"])
async def test_nobody_logs_in_where_a_token_would_travel_in_the_clear(server: str) -> None:
    with pytest.raises(AddressRefusedError, match="plain http"):
        await policy(server).check_server()
