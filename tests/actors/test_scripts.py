"""Scripts of a session: each call is a real call, and the answer reports what became of it."""

import json
import re
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd_protos.ledger import ScriptNote

from .fakes import FakeProcess, Json, Script, text, tool
from .world import OWN, Client, World, running_world

Handler = Callable[[FakeProcess, Json], Awaitable[None]]
LISTED = SessionRules(lists_scripts=True)
NUMBERED: Json = {
    "name": "alpha_number",
    "description": "Returns a number. And more.",
    "inputSchema": {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    },
    "outputSchema": {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    },
}


async def numbers(process: FakeProcess, message: Json) -> None:
    """Answer with the number that it was given; 13 is an error, and 99 ends the server."""
    n = message["params"]["arguments"].get("n")
    if n == 99:
        process.exit(9)
    elif n == 13:
        await process.reply(message, {**text("unlucky"), "isError": True})
    else:
        said = json.dumps({"n": n})
        await process.reply(message, {**text(said), "structuredContent": {"n": n}})


async def session(world: World, call: Handler = numbers, *tools: Json) -> Client:
    """Return a client with the server `alpha` on."""
    world.machine.scripts["alpha"] = Script(tools=[NUMBERED, *(tools or [tool("echo")])], call=call)
    client = await world.session("s")
    said, is_error = await client.capability("enable", "alpha")
    assert not is_error, said
    return client


async def run(client: Client, code: str, **inputs: object) -> tuple[str, str, bool]:
    """Return a script's value, its other output, and whether it failed."""
    arguments = {"code": code, "inputs": inputs}
    result = await client.result("tools/call", name="script_run", arguments=arguments)
    texts = [each["text"] for each in result["content"]]
    is_error = result.get("isError", False)
    return (texts[0] if len(texts) > 1 else "", texts[-1], is_error)


async def test_a_script_calls_tools_side_by_side_and_returns_its_last_value(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        value, told, is_error = await run(
            client,
            "import asyncio\n"
            "found = await asyncio.gather(*[alpha.number(n=n) for n in range(12)])\n"
            "print('half way')\n"
            "last = await alpha.number(n=inputs['last'])\n"
            "sum(each['n'] for each in found) + last['n']",
            last=100,
        )

        assert (value, is_error) == ("166", False)
        assert told.startswith("Printed:\nhalf way\n13 calls; ")
        assert "- alpha.number x13: result, " in told
        (process,) = world.machine.processes
        assert len(process.asked_for("tools/call")) == 13


async def test_a_tool_is_called_by_its_whole_name_too_as_its_card_has_it(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        value, told, is_error = await run(
            client, "[(await alpha.alpha_number(n=4))['n'], (await alpha.number(n=5))['n']]"
        )

        assert (value, is_error) == ("[4, 5]", False), told
        assert "wrong" in (await run(client, "await alpha.alpha_number(n='x')"))[1]


async def test_each_call_of_a_script_is_in_the_ledger(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        await run(client, "[await alpha.number(n=n) for n in (1, 13)]")

        (entry,) = await world.sessions()
        assert entry.calls == 1
        outcomes = {labels[-1]: count for labels, count in world.journal.tally.calls.items()}
        assert outcomes == {"result": 1, "error": 1}
        (ran,) = [note for note in world.journal.take() if isinstance(note, ScriptNote)]
        assert (ran.session, ran.outcome) == ("s", "error")
        assert [each[:3] for each in ran.calls] == [
            ("alpha__alpha_number", "error", 1),
            ("alpha__alpha_number", "result", 1),
        ]


async def test_wrong_types_are_told_before_any_call_is_made(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        _, told, is_error = await run(
            client, "await alpha.number(n=1)\nawait alpha.number(n='two')\n"
        )

        assert is_error
        assert told.startswith("The script was not run, and no call was made: its types are wrong.")
        assert "line 2:" in told
        assert told.endswith("No call was made.")
        assert not world.machine.processes[0].asked_for("tools/call")


async def test_a_tools_error_is_an_exception_that_a_script_may_catch(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        value, told, is_error = await run(
            client,
            "try:\n    await alpha.number(n=13)\nexcept ToolError as e:\n    said = str(e)\nsaid",
        )

        assert (value, is_error) == ('"ToolError: unlucky"', False)
        assert "- alpha.number: error, " in told


async def test_an_exception_that_nobody_catches_names_its_line_and_every_call(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        value, told, is_error = await run(
            client, "await alpha.number(n=1)\nx = 2\nawait alpha.number(n=13)\n"
        )

        lines = told.splitlines()
        assert (value, is_error) == ("", True)
        assert lines[:2] == ["Line 3: ToolError: unlucky", "    await alpha.number(n=13)"]
        assert [each.split(",")[0] for each in lines[2:]] == [
            "Its calls",
            "1. alpha.number: result",
            "2. alpha.number: error",
        ]


async def test_a_call_whose_server_dies_has_an_unknown_outcome_in_the_script(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        value, _, is_error = await run(
            client,
            "try:\n    await alpha.number(n=99)\nexcept OutcomeUnknown as error:\n    said = 1\n"
            "said",
        )

        assert (value, is_error) == ("1", False)


async def test_a_denied_tool_is_refused_inside_a_script_with_the_true_reason(
    tmp_path: Path,
) -> None:
    rules = SessionRules(
        lists_scripts=True, everyone=PolicyRules("[policy]", deny=("alpha:secret",))
    )
    async with running_world(tmp_path, rules=rules) as world:
        client = await session(world, numbers, tool("secret"))
        while "alpha__secret" not in world.finder._sets.users.known.sources:
            await trio.sleep(0.01)

        _, told, is_error = await run(client, "await alpha.secret()")

        assert is_error
        assert "rule 'alpha:secret' in [policy]" in told
        assert not world.machine.processes[0].asked_for("tools/call")


async def test_a_script_may_not_run_another_one(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        code = "await eval(\"__call__('script_run', {'code': '1'})\")"
        _, told, is_error = await run(client, code)

        assert is_error
        assert "Refused: script_run is capd's own" in told


async def test_without_code_the_functions_of_what_is_on_are_told(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        said, is_error = await client.call("script_run")

        assert not is_error
        assert "async def alpha.number(n: int) -> AlphaNumberResult" in said
        assert '    """Returns a number"""' in said


async def test_a_search_shows_tools_as_functions_and_how_to_make_many_calls(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path) as world:
        client = await session(world)

        while "alpha__echo" not in world.finder._sets.users.known.sources:
            await trio.sleep(0.01)

        said, _ = await client.call(
            "tool_search", query="select:alpha__alpha_number,alpha__echo", detail="stubs"
        )

        assert "async def alpha.number(n: int) -> AlphaNumberResult" in said
        assert "async def alpha.echo(**more: Any) -> Any" in said
        assert said.endswith("\nThree or more calls: tool_call script_run, code: Python.")


async def test_a_call_whose_script_cannot_be_kept_is_not_sent(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        # The call is told before the snapshot is made, for which there is no room.
        _, told, is_error = await run(
            client, "held = 'x' * 20_000_000\nawait alpha.number(n=1)\nlen(held)"
        )

        assert is_error
        assert "1. alpha.number: not_sent" in told
        assert not world.machine.processes[0].asked_for("tools/call")


async def test_policy_denies_scripts_like_any_tool(tmp_path: Path) -> None:
    rules = SessionRules(
        lists_scripts=True, everyone=PolicyRules("[policy]", deny=("capd:script_run",))
    )
    async with running_world(tmp_path, rules=rules) as world:
        client = await world.session("s")

        said, is_error = await client.call("tool_call", name="script_run", arguments={"code": "1"})

        assert await client.tools() == OWN
        assert is_error
        assert "rule 'capd:script_run' in [policy]" in said


async def test_a_script_that_is_not_listed_is_run_by_tool_call(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        client = await session(world)
        assert "script_run" not in await client.tools()

        said, is_error = await client.call(
            "tool_call", name="script_run", arguments={"code": "(await alpha.number(n=4))['n']"}
        )

        assert (said, is_error) == ("4", False)


async def test_at_most_eight_calls_of_a_script_are_under_way(tmp_path: Path) -> None:
    under_way: set[int] = set()
    most = 0
    full, go_on = trio.Event(), trio.Event()

    async def slow(process: FakeProcess, message: Json) -> None:
        nonlocal most
        n = message["params"]["arguments"]["n"]
        under_way.add(n)
        most = max(most, len(under_way))
        if len(under_way) == 8:
            full.set()
        await go_on.wait()
        under_way.discard(n)
        await process.reply(message, text(str(n)))

    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world, slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                run,
                client,
                "import asyncio\nawait asyncio.gather(*[alpha.number(n=n) for n in range(20)])",
            )
            await full.wait()
            go_on.set()

        assert most == 8


async def test_a_cancelled_request_cancels_the_script_and_its_calls(tmp_path: Path) -> None:
    is_asked = trio.Event()

    async def silent(process: FakeProcess, message: Json) -> None:
        del process, message
        is_asked.set()
        await trio.sleep_forever()

    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world, silent)
        (process,) = world.machine.processes
        request = {
            "jsonrpc": "2.0",
            "id": 900,
            "method": "tools/call",
            "params": {"name": "script_run", "arguments": {"code": "await alpha.number(n=1)"}},
        }
        await client.send(request)
        await is_asked.wait()

        await client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 900}}
        )

        while not process.asked_for("notifications/cancelled"):
            await trio.sleep(0.01)


async def test_progress_counts_the_calls_under_the_clients_token(tmp_path: Path) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        client = await session(world)

        await client.result(
            "tools/call",
            name="script_run",
            arguments={"code": "for n in range(3):\n    await alpha.number(n=n)\n"},
            _meta={"progressToken": "t"},
        )

        told = [e["params"] for e in client.heard if e.get("method") == "notifications/progress"]
        assert [(each["progressToken"], each["progress"]) for each in told] == [
            ("t", 1),
            ("t", 2),
            ("t", 3),
        ]


PAGE = Path(__file__).parents[2] / "docs" / "scripts.md"


def examples() -> list[str]:
    """Return the scripts of the section with the three examples."""
    section = PAGE.read_text("utf-8").partition("## Three examples")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", section, re.MULTILINE)
    return [textwrap.dedent(block).strip() for block in blocks if block.strip()]


async def tracked(process: FakeProcess, message: Json) -> None:
    """Play a tracker with twelve issues: the odd ones are open, and 7 is missing."""
    asked = message["params"]["arguments"]
    if "path" in asked:
        await process.reply(message, text("fine\nerror: one\nfine\nerror: two\n"))
        return
    n = asked["number"]
    if n == 7:
        await process.reply(message, {**text("no such issue"), "isError": True})
        return
    said = json.dumps({"number": n, "title": f"Issue {n}", "open": n % 2 == 1, "body": "x" * 2000})
    await process.reply(message, text(said))


@pytest.mark.parametrize(
    ("number", "numbers", "value"),
    [
        (0, [1, 2, 3], [{"number": n, "title": f"Issue {n}"} for n in (1, 3)]),
        (1, [6, 7], ["Issue 6", "none: ToolError: no such issue"]),
        (2, [], ["error: one", "error: two"]),
    ],
)
async def test_the_examples_of_the_page_do_what_it_says(
    tmp_path: Path, number: int, numbers: list[int], value: object
) -> None:
    async with running_world(tmp_path, rules=LISTED) as world:
        for server, name in (("tracker", "get"), ("files", "read")):
            world.machine.scripts[server] = Script(tools=[tool(name)], call=tracked)
            world.capability(server, server)
        await world.reload()
        client = await world.session("s")
        for server in ("tracker", "files"):
            assert not (await client.capability("enable", server))[1]

        said, told, is_error = await run(client, examples()[number], numbers=numbers)

        assert not is_error, told
        assert json.loads(said) == value
        assert len(examples()) == 3
