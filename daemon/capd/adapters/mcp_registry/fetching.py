"""HTTP GET, into memory or into a file, with limits on size and time."""

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx2
import trio

from capd.adapters.servers.http.guarded_client import (
    Answer,
    Dispatch,
    ServerRequest,
    answered,
    new_client,
)
from capd.core.errors import CapdError
from capd.core.protocol.outcomes import CallFailedError

TIMEOUT = 120.0
_OK = 200
_NOT_MODIFIED = 304

T = TypeVar("T")


class FetchError(CapdError):
    """There was no usable answer. `status` is the answer's HTTP status; 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Fetched:
    """The HTTP response to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of a downloaded file, to compare with those that its index states."""

    sha256: str
    sha512: bytes
    size_bytes: int


class Fetcher:
    """Sends requests over one pool of connections."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    @staticmethod
    async def opened() -> "Fetcher":
        """Return a fetcher, after a thread has read the certificates that HTTPS needs."""
        return Fetcher(await trio.to_thread.run_sync(new_client, {}))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(
        self,
        url: str,
        most_bytes: int,
        headers: Mapping[str, str] | None = None,
        accepted: tuple[int, ...] = (_OK,),
    ) -> Fetched:
        """Send a GET to `url` with these headers; return the response.

        Raises:
            FetchError: there is no response, its status is not one of `accepted`, or it has more
                than `most_bytes`.
        """

        async def read(answer: Answer) -> Fetched:
            body = b"" if answer.status == _NOT_MODIFIED else await answer.read(most_bytes)
            return Fetched(answer.status, answer.headers, body)

        return await self._asked(url, headers or {}, accepted, read)

    async def download(
        self, url: str, file: Path, most_bytes: int, headers: Mapping[str, str] | None = None
    ) -> Digests:
        """Download `url` into the new file `file`; return its digests.

        Raises:
            FetchError: there was no usable answer, or it has more than `most_bytes`.
            OSError: `file` exists or cannot be written.
        """

        async def read(answer: Answer) -> Digests:
            sha256, sha512, size_bytes = hashlib.sha256(), hashlib.sha512(), 0
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                while step := await answer.step():
                    size_bytes += len(step)
                    if size_bytes > most_bytes:
                        raise FetchError(f"{_host(url)} answered with more than {most_bytes} bytes")
                    sha256.update(step)
                    sha512.update(step)
                    await trio.to_thread.run_sync(opened.write, step)
            return Digests(sha256.hexdigest(), sha512.digest(), size_bytes)

        return await self._asked(url, headers or {}, (_OK,), read)

    async def _asked(
        self,
        url: str,
        headers: Mapping[str, str],
        accepted: tuple[int, ...],
        read: Callable[[Answer], Awaitable[T]],
    ) -> T:
        host = _host(url)
        try:
            with trio.fail_after(TIMEOUT):
                ask = ServerRequest("GET", url, headers)
                async with answered(self._client, ask, Dispatch()) as answer:
                    if answer.status not in accepted:
                        text = f"{host} answered with HTTP status {answer.status}"
                        raise FetchError(text, answer.status)
                    return await read(answer)
        except CallFailedError as error:
            raise FetchError(f"{host} {error}") from None
        except (httpx2.InvalidURL, ValueError):
            raise FetchError(f"{host or 'an address'} cannot be asked: it is not a URL") from None
        except trio.TooSlowError:
            raise FetchError(f"{host} took more than {TIMEOUT:g} s") from None


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2]
