"""Decides whether capd connects to a URL that a server names, such as an authorization server's.

The URL of a server itself is not restricted, because a person has written it. A URL that the server
names must be https, or plain http on loopback if the server itself is on loopback. Such a URL must
not resolve into a network that the server is not in. Otherwise a server on the internet could make
capd connect to hosts in the user's network. capd connects to the address that was checked.
"""

import ipaddress
import urllib.request
from collections.abc import Awaitable, Callable

import httpx2
import trio

from capd.core.errors import CapdError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
RESOLVE_TIMEOUT = 20.0
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""The IPv6 addresses that stand for IPv4 addresses in a network without IPv4 (RFC 6052). The last
32 bits are the IPv4 address."""


class AddressRefusedError(CapdError):
    """A server named an address that capd does not connect to; the text says why."""


async def resolve(host: str, port: int) -> list[str]:
    """Return the IP addresses of `host`, as the system resolves them.

    Raises:
        AddressRefusedError: it has none, or the answer took too long.
    """
    try:
        with trio.fail_after(RESOLVE_TIMEOUT):
            found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError, trio.TooSlowError):
        raise AddressRefusedError("is at an address whose name cannot be resolved") from None
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class AddressPolicy:
    """Decides to which addresses one server may make capd connect."""

    def __init__(
        self,
        server_url: str,
        resolve: Resolve = resolve,
        has_proxy: Callable[[httpx2.URL], bool] | None = None,
    ) -> None:
        """Create the policy for the server at `server_url`, which a person has written.

        `resolve` returns the IP addresses of a host. `has_proxy` tells whether a URL uses a proxy.
        """
        self._server = httpx2.URL(server_url)
        self._resolve = resolve
        self._has_proxy = has_proxy or _is_proxied
        self._own_kinds: set[str] | None = None

    async def check_server(self) -> None:
        """Refuse a login at a server that would get the token unencrypted.

        Raises:
            AddressRefusedError: the server is reached by plain http, outside of loopback.
        """
        if self._server.scheme != "https" and await self._kinds_of(self._server) != {"loopback"}:
            raise AddressRefusedError(
                "is reached by plain http, where everybody on the way could read the token:"
                " give it an https address"
            )

    async def check(self, text: str, what: str) -> list[str]:
        """Return the IP addresses of the URL `text`; none if a proxy resolves it.

        `what` is what errors call the URL.

        Raises:
            AddressRefusedError: capd must not connect to this URL.
        """
        try:
            url = httpx2.URL(text)
        except httpx2.InvalidURL:
            raise AddressRefusedError(f"names {what} that is not a URL") from None
        if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
            raise AddressRefusedError(f"names {what} that is not an https address")
        is_local_server = await self._kinds_of(self._server) == {"loopback"}
        addresses = await self._addresses(url)
        kinds = {_kind(each) for each in addresses}
        if url.scheme == "http" and not (is_local_server and kinds == {"loopback"}):
            raise AddressRefusedError(f"names {what} that is not an https address")
        if self._own_kinds is None:
            self._own_kinds = await self._kinds_of(self._server)
        strange = kinds - {"public"} - (self._own_kinds - {"link-local"})
        if strange:
            raise AddressRefusedError(
                f"names {what} in a {min(strange)} network, where it is not itself"
            )
        return [] if self._has_proxy(url) else [str(each) for each in addresses]

    async def _kinds_of(self, url: httpx2.URL) -> set[str]:
        try:
            return {_kind(each) for each in await self._addresses(url)}
        except AddressRefusedError:
            return set()

    async def _addresses(self, url: httpx2.URL) -> list[Address]:
        try:
            return [ipaddress.ip_address(url.host)]
        except ValueError:
            pass
        if self._has_proxy(url):
            return []  # the proxy resolves it, and this machine may not be able to
        port = url.port or (443 if url.scheme == "https" else 80)
        return [
            ipaddress.ip_address(each.partition("%")[0])
            for each in await self._resolve(url.host, port)
        ]


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _kind(written: Address) -> str:
    address = _plain(written)
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_unspecified or address.is_multicast or address.is_reserved:
        return "reserved"
    return "public" if address.is_global else "private"


def _is_proxied(url: httpx2.URL) -> bool:
    proxies = urllib.request.getproxies()
    has_one = url.scheme in proxies or "all" in proxies
    return has_one and not urllib.request.proxy_bypass(url.host)
