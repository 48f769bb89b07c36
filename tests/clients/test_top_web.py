"""`capd top --web` serves one browser, with a token that is valid once."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import ClientSession, CookieJar, web
from aiohttp.test_utils import TestServer
from yarl import URL

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


async def opened(browser: ClientSession, address: str) -> str:
    """Open the address that was printed, and return the page that it leads to."""
    async with browser.get(address, allow_redirects=False) as answer:
        assert answer.status == 302
        return str(answer.url.join(URL(answer.headers["Location"])))


def test_the_token_is_good_once_and_becomes_the_cookie_of_that_browser() -> None:
    async def visit(browser: ClientSession, served: TokenServer, root: str) -> None:
        address = served.address
        assert address.startswith(f"{root}/?token=")
        assert await status_of(browser, root) == 403
        assert await status_of(browser, f"{root}/?token=") == 403
        page_url = await opened(browser, address)
        async with browser.get(page_url) as page:
            assert page.status == 200
            assert "connect-src 'self'" in page.headers["Content-Security-Policy"]
            text = await page.text()
        assert f"ws://{page_url.removeprefix('http://')}ws" in text
        assert await status_of(browser, f"{page_url}static/js/textual.js") == 200
        async with ClientSession() as other:
            assert await status_of(other, address) == 403
            assert await status_of(other, f"{page_url}ws") == 403
            assert await status_of(other, f"{page_url}static/") == 403

    visited(visit)


def test_another_site_gets_nothing_even_in_the_browser_that_has_the_cookie() -> None:
    async def visit(browser: ClientSession, served: TokenServer, root: str) -> None:
        page_url = await opened(browser, served.address)
        assert await status_of(browser, page_url, Host="evil.example") == 403
        assert await status_of(browser, f"{page_url}ws", Origin="http://evil.example") == 403
        assert await status_of(browser, page_url, Origin=root) == 200

    visited(visit)


def test_another_server_on_this_machine_is_not_shown_the_cookie() -> None:
    """A browser sends a cookie to every port of a host: to an MCP server's own page as well."""
    shown: list[str] = []

    async def noted(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Cookie", ""))
        return web.Response()

    async def visit(browser: ClientSession, served: TokenServer, _: str) -> None:
        page_url = await opened(browser, served.address)
        assert await status_of(browser, page_url) == 200
        app = web.Application()
        app.router.add_get("/{rest:.*}", noted)
        other = TestServer(app, host=HOST)
        await other.start_server()
        try:
            for path in ("", "ws", "static/js/textual.js"):
                await status_of(browser, f"http://{HOST}:{other.port}/{path}")
        finally:
            await other.close()

    visited(visit)

    assert shown == ["", "", ""]
