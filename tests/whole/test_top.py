"""`capd top` on a real daemon, driven as by a person at a terminal."""

import asyncio
from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from capd_client.top.app import TopApp
from whole_daemon import PATIENCE, Home


def cells(app: TopApp, table: str) -> list[list[str]]:
    found: DataTable[Any] = app.query_one(table, DataTable)
    return [[str(cell) for cell in found.get_row_at(at)] for at in range(found.row_count)]


def text(app: TopApp, place: str) -> str:
    return str(app.query_one(place, Static).render())


async def until(pilot: Pilot[int], look: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not look():
            await pilot.pause(0.02)


def test_the_screen_follows_the_daemon_until_q(home: Home) -> None:
    home.plain("alpha")
    home.start()
    app = TopApp(home.socket, every=0.2)

    async def watched() -> None:
        async with app.run_test(size=(140, 40)) as pilot:
            await until(pilot, lambda: text(app, "#head").startswith("capd "))
            with home.shim("one"):
                home.ask("enable", session="one", name="alpha")
                await until(pilot, lambda: cells(app, "#servers") != [])
                home.ask("call", session="one", name="alpha__echo", arguments={})
                await until(pilot, lambda: [row[2] for row in cells(app, "#sessions")] == ["1"])
                assert [row[:2] + row[4:5] for row in cells(app, "#sessions")] == [
                    ["one", "test-editor", "1/4 (alpha)"]
                ]
                assert [row[:2] + row[3:4] for row in cells(app, "#servers")] == [
                    ["alpha", "ready", "one"]
                ]
                await until(pilot, lambda: "index.tools" in text(app, "#events"))
                await pilot.press("tab")
                assert app.focused is app.query_one("#servers")
            await until(pilot, lambda: cells(app, "#sessions") == [])
            home.processes[0].terminate()
            home.processes[0].wait(PATIENCE)
            await until(pilot, lambda: text(app, "#trouble").startswith("no daemon at "))
            home.start()
            await until(pilot, lambda: text(app, "#trouble") == "")
            await pilot.press("q")

    asyncio.run(watched())

    assert not app.is_running
