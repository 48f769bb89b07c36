"""`capd top` on a real daemon, driven through a terminal."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from capd_client.top.app import TopApp
from whole_daemon import PATIENCE, Home

pytestmark = pytest.mark.model


def cells(app: TopApp, table: str) -> list[list[str]]:
    found: DataTable[Any] = app.query_one(table, DataTable)
    return [[str(cell) for cell in found.get_row_at(at)] for at in range(found.row_count)]


def text(app: TopApp, place: str) -> str:
    return str(app.query_one(place, Static).render())


async def until(pilot: Pilot[int], look: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not look():
            await pilot.pause(0.02)


def test_the_screen_follows_the_daemon_until_q(shipped_home: Home) -> None:
    home = shipped_home
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


def test_a_row_is_looked_into_and_rows_are_searched_and_paused(home: Home) -> None:
    home.plain("alpha")
    home.start()
    app = TopApp(home.socket, every=0.2)

    async def watched() -> None:
        async with app.run_test(size=(140, 44)) as pilot:
            with home.shim("one"), home.shim("two"):
                home.ask("turn", session="one", text="please do something with alpha")
                await until(pilot, lambda: len(cells(app, "#sessions")) == 2)
                await until(pilot, lambda: len(cells(app, "#decisions")) == 1)
                await pilot.press("enter")
                await until(pilot, lambda: text(app, "#details").startswith("one: test-editor"))
                await pilot.press("w")
                await until(pilot, lambda: "why: " in text(app, "#details"))
                await pilot.press("slash", *"two", "enter")
                await until(pilot, lambda: [row[0] for row in cells(app, "#sessions")] == ["two"])
                await pilot.press("escape")
                await until(pilot, lambda: len(cells(app, "#sessions")) == 2)
                assert not app.query_one("#details", Static).display
                await pilot.press("p")
                assert text(app, "#head") == "paused: p goes on"
                await pilot.press("p")
                await until(pilot, lambda: text(app, "#head").startswith("capd "))
            await pilot.press("q")

    asyncio.run(watched())

    assert not app.is_running
