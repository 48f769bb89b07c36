"""`capd top --web` serves one browser, with a token that is valid once."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import ClientSession, CookieJar
from aiohttp.test_utils import TestServer

from capd_client.top.web import HOST, TokenServer, free_port

Visit = Callable[[ClientSession, TokenServer, str], Awaitable[None]]


def visited(visit: Visit) -> None:
    """Run `visit` against a server, with a browser that keeps cookies."""

    async def run() -> None:
        served = TokenServer(free_port(), 1.0)
        # The web part alone: no page opens, so no `capd top` is started.
        server = TestServer(await served._make_app(), host=HOST, port=served.port)
        await server.start_server()
        try:
            # Cookies of an address are kept on request only.
            async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
                await visit(browser, served, f"http://{HOST}:{served.port}")
        finally:
            await server.close()

    asyncio.run(run())


async def status_of(browser: ClientSession, url: str, **headers: str) -> int:
    async with browser.get(url, headers=headers, allow_redirects=False) as answer:
        return answer.status


def test_the_token_is_good_once_and_becomes_the_cookie_of_that_browser() -> None:
    async def visit(browser: ClientSession, served: TokenServer, root: str) -> None:
        address = served.address
        assert address.startswith(f"{root}/?token=")
        assert await status_of(browser, root) == 403
        assert await status_of(browser, f"{root}/?token=") == 403
        assert await status_of(browser, address) == 302
        assert await status_of(browser, root) == 200
        async with browser.get(root) as page:
            assert "connect-src 'self'" in page.headers["Content-Security-Policy"]
        async with ClientSession() as other:
            assert await status_of(other, address) == 403
            assert await status_of(other, f"{root}/ws") == 403
            assert await status_of(other, f"{root}/static/") == 403

    visited(visit)


def test_another_site_gets_nothing_even_in_the_browser_that_has_the_cookie() -> None:
    async def visit(browser: ClientSession, served: TokenServer, root: str) -> None:
        await status_of(browser, served.address)
        assert await status_of(browser, root, Host="evil.example") == 403
        assert await status_of(browser, f"{root}/ws", Origin="http://evil.example") == 403
        assert await status_of(browser, root, Origin=root) == 200

    visited(visit)
