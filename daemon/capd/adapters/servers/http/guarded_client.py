"""HTTP to servers that may be hostile: every size is limited, and no redirect leads elsewhere.

TLS is always verified, and proxies are taken from the environment. No error quotes what a server or
the HTTP library wrote, because a URL or a header may contain a secret.

`Dispatch.has_begun` is set when the first byte of a request is written: from then on the request
may run.
"""

import functools
import http.cookiejar
import io
import logging
import os
import ssl
import urllib.request
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import httpx2
import trio

from capd.adapters.servers.http.large_bodies import LargeBody
from capd.core.protocol.outcomes import (
    CallFailedError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
)

CONNECT_TIMEOUT = 20.0
WRITE_TIMEOUT = 120.0
POOL_TIMEOUT = 30.0
MOST_CONNECTIONS = 256
MOST_REDIRECTS = 3
HEADER_CAP_BYTES = 64 * 1024
BODY_CAP_BYTES = 256 * 1024 * 1024
MOST_COOKIES = 50
"""The most cookies that one answer may set, and that are kept. Browsers keep at least 50."""
LONGEST_COOKIE = 4096
"""The most characters in the name and value of a cookie, as in browsers."""
_STEP_BYTES = 128 * 1024
_CHUNKS_IN_A_TURN = 32
"""Chunks of a body after which other tasks get a turn. A server may send chunks of one byte, which
the HTTP library yields from one read by the ten thousand."""
_GZIP_BEGIN = 0x1F
_GZIP, _GZIP_OR_ZLIB = zlib.MAX_WBITS + 16, zlib.MAX_WBITS + 32
_PLAIN_ENCODINGS = {"", "identity"}
_PACKED_ENCODINGS = {"gzip", "x-gzip", "deflate"}


def silence_libraries() -> None:
    """Silence the HTTP and MCP libraries' logs, which contain URLs, bodies and tokens."""
    for name in ("httpx2", "httpcore2", "mcp"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        logger.propagate = False


def new_client(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """Return an HTTP client for one server, which sends `headers` with each request.

    It reads certificates, so run it in a thread.
    """
    silence_libraries()
    return httpx2.AsyncClient(
        headers={"accept-encoding": "gzip, deflate", "user-agent": "capd", **headers},
        timeout=httpx2.Timeout(
            None, connect=CONNECT_TIMEOUT, write=WRITE_TIMEOUT, pool=POOL_TIMEOUT
        ),
        limits=httpx2.Limits(max_connections=MOST_CONNECTIONS),
        max_redirects=MOST_REDIRECTS,
        cookies=_Cookies(),
        verify=_trust(),
    )


class _Cookies(http.cookiejar.CookieJar):
    """The cookies of one server, few and short; load balancers use one or two.

    Each request searches all cookies on the event loop, so a server must not set any number of
    them. The HTTP library cannot send characters outside of ASCII back.
    """

    def make_cookies(self, response: Any, request: urllib.request.Request) -> Any:
        """Return the cookies that `response` sets; none if it sets too many to be parsed."""
        if len(response.info().get_all("set-cookie", [])) > MOST_COOKIES:
            return []
        return super().make_cookies(response, request)

    def set_cookie(self, cookie: http.cookiejar.Cookie) -> None:
        """Keep `cookie`, unless it cannot be sent back; drop another one if there are too many."""
        text = f"{cookie.name}={cookie.value or ''}"
        if len(text) > LONGEST_COOKIE or not text.isascii():
            return
        super().set_cookie(cookie)
        if len(self) > MOST_COOKIES:
            first = next(iter(self))
            self.clear(first.domain, first.path, first.name)


@functools.cache
def _trust() -> ssl.SSLContext:
    """Return the TLS context. All connections share it, because reading certificates takes long."""
    return httpx2.create_ssl_context()


@dataclass(slots=True)
class Dispatch:
    """Records whether the first byte of a request was written: from then on it may run."""

    has_begun: bool = False

    async def note(self, event: str, _: Mapping[str, object]) -> None:
        """Handle an event of the HTTP library's trace, which tells when a request is written."""
        if event.endswith("send_request_headers.started"):
            self.has_begun = True


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """The parts of one request to a server: method, URL, headers and body."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes = b""


class Answer:
    """A response, whose decoded body is read in bounded steps.

    The caller must close it, because nothing else closes the HTTP library's generators.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.url = response.request.url
        self._response = response
        self._raw = response.aiter_raw()
        self._inflater: _Inflater | None = None
        self._is_begun = False
        self._chunks = 0

    async def read(self, cap_bytes: int = BODY_CAP_BYTES, large: LargeBody | None = None) -> bytes:
        """Return the whole body of the response.

        `large` is told how much of the body is in memory, and may make this call wait.

        Raises:
            OutcomeUnknownError: the body is over `cap_bytes`, or as in `step`.
        """
        # The buffer of this object becomes the result, so that no body is in memory twice.
        body = io.BytesIO()
        while step := await self.step():
            if body.tell() + len(step) > cap_bytes:
                raise OutcomeUnknownError(f"answered with more than {cap_bytes} bytes")
            body.write(step)
            if large is not None:
                await large.note(body.tell())
        return body.getvalue()

    async def step(self) -> bytes:
        """Return the next bytes of the body; empty at its end.

        Raises:
            OutcomeUnknownError: the connection broke, or the body cannot be decoded.
        """
        if not self._is_begun:
            self._is_begun = True
            self._inflater = _inflater(self.headers.get("content-encoding", ""))
        inflater = self._inflater
        try:
            while True:
                if inflater is not None and inflater.is_over:
                    return b""
                if inflater is not None and inflater.rest:
                    await trio.lowlevel.checkpoint()
                    step = inflater.step()
                    if step:
                        return step
                    continue
                raw = await anext(self._raw, b"")
                self._chunks += 1
                if self._chunks % _CHUNKS_IN_A_TURN == 0:
                    await trio.lowlevel.checkpoint()
                if not raw or inflater is None:
                    return raw
                inflater.rest = raw
        except zlib.error:
            raise OutcomeUnknownError("answered with a body that cannot be decoded") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise OutcomeUnknownError(f"cut its answer off ({reason_of(error)})") from None

    async def aclose(self) -> None:
        """Close the connection unless everything was read, and end the reading generators."""
        await self._response.aclose()
        with suppress(httpx2.HTTPError, httpx2.StreamError, RuntimeError):
            while await anext(self._raw, b""):
                pass


class _Inflater:
    """Decompresses a body in steps, of what browsers accept.

    That is gzip, also in several members (RFC 1952), and deflate, with the zlib header (RFC 9110)
    or without. What follows the compressed data is ignored.
    """

    def __init__(self, encoding: str) -> None:
        self.rest = b""
        """The input that was not decompressed yet."""
        self.is_over = False
        """Whether the compressed data has ended, and something else follows."""
        self._is_deflate = encoding == "deflate"
        self._member: _Member | None = None

    def step(self) -> bytes:
        """Return the next bytes from `rest`, which is not empty; may return none.

        Raises:
            zlib.error: the input is not what its encoding says.
        """
        if self._member is None:
            self._member = zlib.decompressobj(self._window_bits())
        elif self._member.eof:
            # The library would keep all further input in `unused_data`.
            self.is_over = self.rest[0] != _GZIP_BEGIN
            if self.is_over:
                return b""
            self._member = zlib.decompressobj(_GZIP)
        step = self._member.decompress(self.rest, _STEP_BYTES)
        self.rest = self._member.unused_data or self._member.unconsumed_tail
        return step

    def _window_bits(self) -> int:
        has_header = self.rest[0] == _GZIP_BEGIN or self.rest[0] & 0x0F == zlib.DEFLATED
        return -zlib.MAX_WBITS if self._is_deflate and not has_header else _GZIP_OR_ZLIB


class _Member(Protocol):
    """A decompressor of zlib's, which has no public type."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


def _inflater(encoding: str) -> _Inflater | None:
    name = encoding.strip().lower()
    if name in _PLAIN_ENCODINGS:
        return None
    if name not in _PACKED_ENCODINGS:
        # Lists of encodings are refused too, as each decoding may grow the data a thousandfold.
        raise OutcomeUnknownError("answered in an encoding that it was not asked for")
    return _Inflater(name)


@asynccontextmanager
async def answered(
    client: httpx2.AsyncClient, ask: ServerRequest, dispatch: Dispatch
) -> AsyncIterator[Answer]:
    """Send the request `ask` and yield the answer, whose body can be read inside the block.

    `dispatch` records when the first byte is written.

    Raises:
        NotSentError, OutcomeUnknownError: there is no answer.
        RefusedError: the answer redirects to another server or too often, or has too many headers.
    """
    request = client.build_request(
        ask.method,
        ask.url,
        # An event's id may have any characters, and the library takes ASCII texts only.
        headers=[(name.encode(), value.encode()) for name, value in ask.headers.items()],
        content=ask.content or None,
        extensions={"trace": dispatch.note},
    )
    for _ in range(MOST_REDIRECTS + 1):
        try:
            response = await client.send(request, stream=True, follow_redirects=False)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise _failed(error, dispatch) from None
        async with aclosing(Answer(response)) as answer:
            check_headers(response)
            following = _within_origin(response)
            if following is None:
                yield answer
                return
            request = following
    raise RefusedError(f"redirects more than {MOST_REDIRECTS} times")


def check_headers(response: httpx2.Response) -> None:
    """Check that the headers of a response are not too large.

    Raises:
        RefusedError: the headers are over 64 KiB.
    """
    size_bytes = sum(len(name) + len(value) + 4 for name, value in response.headers.raw)
    if size_bytes > HEADER_CAP_BYTES:
        raise RefusedError(f"answers with more than {HEADER_CAP_BYTES} bytes of headers")


def _within_origin(response: httpx2.Response) -> httpx2.Request | None:
    """Return the request that a redirect asks for; None if `response` is no redirect.

    Raises:
        RefusedError: the redirect leads to another server, or would change the method and drop the
            body.
    """
    if not response.has_redirect_location:
        return None
    sent, following = response.request, response.next_request
    is_same = (
        following is not None
        and following.method == sent.method
        and following.url.userinfo in {b"", sent.url.userinfo}
        and _is_origin_kept(sent.url, following.url)
    )
    if not is_same:
        raise RefusedError(
            f"redirects elsewhere (HTTP {response.status_code}), which is not followed:"
            " put the address that it means into its definition"
        )
    return following


def _is_origin_kept(old: httpx2.URL, new: httpx2.URL) -> bool:
    if (old.scheme, old.host, old.port) == (new.scheme, new.host, new.port):
        return True
    is_upgrade = (old.scheme, new.scheme) == ("http", "https")
    return is_upgrade and old.host == new.host and old.port is None and new.port is None


def _failed(error: Exception, dispatch: Dispatch) -> CallFailedError:
    never_left = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.PoolTimeout)
    if isinstance(error, never_left) or not dispatch.has_begun:
        return NotSentError(f"cannot be reached ({reason_of(error)})")
    return OutcomeUnknownError(f"did not answer ({reason_of(error)})")


def reason_of(error: BaseException) -> str:
    """Return an error's reason in capd's or the system's words.

    The HTTP library's words are not used, because they may quote a header.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not valid: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return "TLS failed"
        if isinstance(cause, OSError) and cause.errno:
            # The resolver's error numbers are negative, and `os.strerror` does not know them.
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        group = cause if isinstance(cause, BaseExceptionGroup) else None
        cause = group.exceptions[0] if group else cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.TimeoutException):
        return "it took too long"
    return {
        "ConnectError": "no connection",
        "LocalProtocolError": "the request is not valid HTTP; look at its headers",
        "ReadError": "the connection broke",
        "RemoteProtocolError": "what it sent is not HTTP, or the connection was closed",
        "UnsupportedProtocol": "its URL is neither http nor https",
    }.get(type(error).__name__, type(error).__name__)
