"""Whatever a client, its servers and the daemon do in what order, parking changes nothing.

A machine over real sockets: a client sends requests of every kind, servers answer late or never,
the daemon notifies and asks, time passes. Each request gets exactly one answer, each notification
arrives in order, and only a connection with nothing in progress gives up its task.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters import platform
from capd.adapters.clients.conversation import Request
from capd.adapters.clients.parking import Parking
from capd.core.protocol.outcomes import RefusedError
from client_stage import Json
from support.examples import examples

from . import test_direct_calls as direct
from .test_parking import INITIALIZED, Parked

LONGEST_QUIET = 30.0
"""Seconds after which a connection with nothing in progress is parked."""
LONGEST_STALL = 25.0
"""Less than any limit for a half line, and for a client that does not read."""
ENVELOPE: Json = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "zed", "version": "2"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
STREAM_MARK = "io.modelcontextprotocol/subscriptionId"
LARGE = "x" * 100_000
FLOOD = b'"%s"' % (b"x" * 300_000)

pytestmark = pytest.mark.skipif(
    platform.readiness_queue() is None, reason="this system does not park"
)


class HeldTalk(direct.DirectTalk):
    """A conversation whose calls end when the test says so. Calls named `asks-` ask first."""

    def __init__(self, server: direct.Server) -> None:
        super().__init__(server.server_connection)
        self.held: dict[str, trio.Event] = {}
        self.run = self._hold

    async def _hold(self, request: Request) -> bytes:
        name = json.loads(bytes(request.members["name"]))
        if name.startswith("asks-"):
            await request.caller.ask("elicitation/create", b'{"message":"who?"}', lambda _: None)
        event = self.held[name] = trio.Event()
        try:
            await event.wait()
        finally:
            del self.held[name]
        return b'{"content":[]}'


class Game:
    """One connection, with what its client may expect of it. A `rule_` is one thing that happens.

    `may_` of the same name tells whether it can happen now.
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.server = direct.Server()
        self.talk = HeldTalk(self.server)
        self.talk.is_release_due = draw(st.booleans())
        self.talk.passed_as = draw(st.sampled_from([None, b'{"content":["short"]}']))
        self.wants_dispatched = draw(st.booleans())
        self.numbers = count(1)
        # What is open, by the id of the client's request.
        self.open: dict[int, Json] = {}
        self.sent: dict[int, Json] = {}
        self.cancelled: set[int] = set()
        self.answers: Counter[int] = Counter()
        self.told: Counter[int] = Counter()
        self.asking: dict[int, Json] = {}
        """Calls that returned with a question and were not repeated, with what they returned."""
        self.written: dict[str, int] = {}
        """The ids that the server got, by the name of the called tool."""
        self.withdrawn: list[int] = []
        self.questions: list[str] = []
        self.asked = self.replied = 0
        self.do_questions_hold = False
        self.owed: list[object] = []
        """The numbers of the notes that the client has not heard yet, in order."""
        self.notes = count(1)
        self.streams: dict[int, int] = {}
        """How many changes of the list each open stream has not been told yet."""
        self.list_changes = 0
        self.half = b""
        """The rest of a line whose beginning was sent; `half_id` is its request's id."""
        self.half_id = 0
        self.stalled = 0.0
        self.is_reading = True
        self.is_flooded = False
        self.busy_at = 0.0
        self.closing: list[Json] = []

    async def play(self) -> None:
        ours, theirs = trio.socket.socketpair()
        streams = trio.SocketStream(ours), trio.SocketStream(theirs)
        problem: BaseException | None = None
        async with trio.open_nursery() as around, trio.open_nursery() as nursery:
            self.stage = stage = Parked(*streams, dispatched=self.wants_dispatched, talk=self.talk)
            self.stage.parking, self.stage.nursery = Parking(), nursery
            around.start_soon(self.server.server_connection.run)
            around.start_soon(stage.parking.run)
            nursery.start_soon(stage.serve)
            await wait_all_tasks_blocked()
            # What Hypothesis raises must not be put into a group.
            try:
                await self._play()
            except BaseException as error:  # noqa: BLE001 - raised below
                problem = error
            around.cancel_scope.cancel()
        stage.parking.close()
        for stream in streams:
            stream.socket.close()
        self.server.close()
        if problem is not None:
            raise problem

    async def _play(self) -> None:
        if self.draw(st.booleans()):
            await self.send(INITIALIZED)
        await self.look()
        names = [name for name in dir(Game) if name.startswith("rule_")]
        # A few kinds of step for each example, so that some of them come often.
        names = self.draw(st.lists(st.sampled_from(names), min_size=2, max_size=8, unique=True))
        for _ in range(self.draw(st.integers(1, 20))):
            usable = [each for each in names if self.may(each)]
            usable += ["rule_time_passes", "rule_requests"]
            name = self.draw(st.sampled_from(usable))
            await getattr(self, name)()
            # Between an event and the task that it wakes, too.
            _ = self.stage.upstream.is_busy
            await self.look()
        await self.settle()
        end = self.draw(st.sampled_from(["goodbye", "leave", "close", "stop"]))
        await getattr(self, f"end_by_{end}")()

    def may(self, name: str) -> bool:
        may = getattr(self, name.replace("rule_", "may_"), None)
        return may is None or may()

    # The client

    async def send(self, *messages: Json) -> None:
        data = b"".join(json.dumps(each).encode() + b"\n" for each in messages)
        if self.half:
            data, self.half = self.half + b"\n" + data, b""
        if not data:
            return
        self.do_questions_hold = bool(self.questions)
        self.busy_at = trio.current_time()
        await self.stage.client.send_all(data)
        await wait_all_tasks_blocked()

    def request(self, method: str, **params: Any) -> Json:
        number = next(self.numbers)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.sent[number] = message
        if self.stage.upstream.is_draining and self.wants_dispatched:
            # The next daemon gets it.
            self.cancelled.add(number)
        else:
            self.open[number] = message
        return message

    def any_request(self) -> Json:
        kind = self.draw(st.sampled_from(["direct", "slow", "asks", "list", "ping", "listen"]))
        name = f"{kind}-{len(self.open)}-{next(self.notes)}"
        match kind:
            case "direct":
                return self.request("tools/call", name=name)
            case "slow":
                return self.request("prompts/get", name=name)
            case "asks":
                return self.request("tools/call", name=name, _meta=ENVELOPE)
            case "list":
                return self.request("tools/list")
            case "ping":
                return self.request("ping")
        message = self.request("subscriptions/listen", notifications={"toolsListChanged": True})
        if message["id"] in self.open and not self.stage.upstream.is_draining:
            self.streams[message["id"]] = 0
        return message

    async def rule_requests(self) -> None:
        await self.send(*(self.any_request() for _ in range(self.draw(st.integers(1, 3)))))

    async def rule_calls_and_cancels_at_once(self) -> None:
        call = self.request("tools/call", name=f"direct-{next(self.notes)}")
        self.cancelled.add(call["id"])
        self.open.pop(call["id"], None)
        await self.send(call, direct.cancelled(call["id"]))

    def may_cancels(self) -> bool:
        return bool(self.open)

    async def rule_cancels(self) -> None:
        number = self.draw(st.sampled_from(sorted(self.open)))
        del self.open[number]
        self.streams.pop(number, None)
        self.cancelled.add(number)
        await self.send(direct.cancelled(number))

    def may_repeats_a_call(self) -> bool:
        return bool(self.asking) and not self.stage.upstream.is_draining

    async def rule_repeats_a_call(self) -> None:
        number = self.draw(st.sampled_from(sorted(self.asking)))
        asked = self.asking.pop(number)
        (key,) = asked["result"]["inputRequests"]
        replies = {key: {"action": "accept", "content": {}}}
        state = asked["result"]["requestState"]
        params = {**asked["params"], "inputResponses": replies, "requestState": state}
        await self.send(self.request("tools/call", **params))

    def may_sends_half_a_line(self) -> bool:
        return not self.half

    async def rule_sends_half_a_line(self) -> None:
        request = self.any_request()
        line = json.dumps(request).encode()
        cut = self.draw(st.integers(1, len(line) - 1))
        await self.stage.client.send_all(line[:cut])
        self.half, self.half_id = line[cut:], request["id"]

    def may_sends_the_rest(self) -> bool:
        return bool(self.half)

    async def rule_sends_the_rest(self) -> None:
        await self.send()

    def may_answers_a_question(self) -> bool:
        return bool(self.questions)

    async def rule_answers_a_question(self) -> None:
        key = self.questions.pop(self.draw(st.integers(0, len(self.questions) - 1)))
        await self.send({"jsonrpc": "2.0", "id": key, "result": {"roots": []}})

    async def rule_stops_or_starts_reading(self) -> None:
        self.is_reading = not self.is_reading

    # The server

    def finishable(self) -> list[int]:
        named = {number: each["params"].get("name") for number, each in self.open.items()}
        known = self.written.keys() | self.talk.held.keys()
        return sorted(number for number, name in named.items() if name in known)

    def may_server_answers(self) -> bool:
        return bool(self.finishable())

    async def rule_server_answers(self) -> None:
        number = self.draw(st.sampled_from(self.finishable()))
        how: Json = self.draw(
            st.sampled_from(
                [
                    {"result": {"content": []}},
                    {"error": {"code": -7, "message": "no"}},
                    {"result": {"content": [], "large": LARGE}},
                ]
            )
        )
        await self.finish(number, how)

    async def finish(self, number: int, how: Json) -> None:
        name = self.open[number]["params"]["name"]
        if name in self.talk.held:
            self.talk.held[name].set()
        elif name in self.written:
            await self.server.say({"id": self.written.pop(name), **how})
        await wait_all_tasks_blocked()

    # The daemon

    async def rule_notifies(self) -> None:
        note = next(self.notes)
        self.owed.append(note)
        self.stage.upstream.notify("notifications/message", b"%d" % note)

    def may_list_changes(self) -> bool:
        return not self.is_flooded

    async def rule_list_changes(self) -> None:
        self.list_changes += self.stage.connection.is_initialized
        for each in self.streams:
            self.streams[each] += not self._is_in_half(each)
        self.stage.upstream.list_changed("tools")

    def may_floods(self) -> bool:
        return not self.is_reading and not self.is_flooded

    async def rule_floods(self) -> None:
        """Notify until the client's socket is full."""
        self.is_flooded = True
        for _ in range(3):
            self.owed.append("flood")
            self.stage.upstream.notify("notifications/message", FLOOD)

    def may_asks_the_client(self) -> bool:
        return self.stage.connection.is_initialized and self.is_reading

    async def rule_asks_the_client(self) -> None:
        self.asked += 1
        self.do_questions_hold |= not self.is_parked
        self.stage.nursery.start_soon(self._ask)

    async def _ask(self) -> None:
        with suppress(RefusedError):
            await self.stage.upstream.ask("roots/list", b"{}", lambda _: None)
        self.replied += 1

    async def rule_wants_values(self) -> None:
        self.stage.upstream.want_environment(["KEY"])

    def may_drains(self) -> bool:
        return not self.half

    async def rule_drains(self) -> None:
        self.stage.upstream.is_draining = True

    def may_something_comes_at_the_look(self) -> bool:
        return not self.is_parked and not self.half and self.is_reading

    async def rule_something_comes_at_the_look(self) -> None:
        """Have something happen just before or after the connection is found idle."""
        if is_found_first := self.draw(st.booleans()):
            self.look_twice()
            await self.pass_turns()
        what = self.draw(st.sampled_from(["a line", "a note", "a large note", "a question"]))
        match what:
            case "a line":
                line = json.dumps(self.any_request()).encode() + b"\n"
                self.busy_at = trio.current_time()
                os.write(self.stage.client.socket.fileno(), line)
            case "a note":
                await self.rule_notifies()
            case "a large note":
                self.owed.append("flood")
                self.stage.upstream.notify("notifications/message", FLOOD)
            case _ if self.may_asks_the_client():
                self.asked += 1
                self.stage.nursery.start_soon(self._ask)
        if not is_found_first:
            await self.pass_turns()
            self.look_twice()

    async def pass_turns(self) -> None:
        for _ in range(self.draw(st.integers(0, 4))):
            await trio.lowlevel.checkpoint()

    def look_twice(self) -> None:
        self.stage.upstream.park_if_idle()
        self.stage.upstream.park_if_idle()

    # Time

    async def rule_time_passes(self) -> None:
        seconds = self.draw(st.sampled_from([1.0, 11.0, 25.0, 61.0]))
        if self.half and self.stalled + seconds > LONGEST_STALL:
            await self.send()
        if not self.is_reading and self.stalled + seconds > LONGEST_STALL:
            self.is_reading = True
            await self.read()
        self.stalled = self.stalled + seconds if self.half or not self.is_reading else 0.0
        await trio.sleep(seconds)

    # What must hold

    @property
    def is_parked(self) -> bool:
        return len(self.stage.parking) == 1

    @property
    def in_progress(self) -> dict[str, object]:
        return {
            "requests": [number for number in self.open if not self._is_in_half(number)],
            "questions": self.questions if self.do_questions_hold else [],
            "half a line": self.half,
            "calls that ask": list(self.asking),
            "unread": self.is_flooded,
        }

    def _is_in_half(self, number: int) -> bool:
        return bool(self.half) and number == self.half_id

    async def look(self) -> None:
        await wait_all_tasks_blocked()
        self.note_told(await self.server.told())
        if not self.is_reading:
            assert not (self.is_parked and self.is_flooded)
            self.busy_at = trio.current_time()
            return
        await self.read()
        assert not self.stage.ended.is_set()
        # Nobody but the client, or time, ends a call.
        for number in self.open:
            written = self.written.get(self.open[number]["params"].get("name", ""))
            assert written not in self.withdrawn, f"call {number} was withdrawn"
        busy = {what: which for what, which in self.in_progress.items() if which}
        if busy:
            self.busy_at = trio.current_time()
            assert not self.is_parked, f"parked with {busy} in progress"
        elif self.questions:
            self.busy_at = trio.current_time()
        elif trio.current_time() - self.busy_at > LONGEST_QUIET:
            assert self.is_parked, "idle, and not parked"
        counted = [
            number
            for number, each in self.open.items()
            if each["method"] != "subscriptions/listen" and not self._is_in_half(number)
        ]
        assert self.stage.upstream.is_busy == bool(counted)
        assert self.list_changes == 0
        assert not any(self.streams.values())
        assert self.owed == []

    def note_told(self, lines: list[Json]) -> None:
        for each in lines:
            if each.get("method") == "tools/call":
                name = each["params"]["name"]
                assert name not in self.written, f"{name} was written twice"
                self.written[name] = each["id"]
            else:
                self.withdrawn.append(each["params"]["requestId"])

    async def read(self) -> None:
        """Read until nothing more comes, and account for every line."""
        while lines := await self.stage.heard():
            for line in lines:
                self.on_line(json.loads(line))
        self.is_flooded = False

    def on_line(self, line: Json) -> None:
        match line:
            case {"capd": "dispatched", "id": number}:
                assert self.wants_dispatched
                self.told[number] += 1
                assert (self.told[number], self.answers[number]) == (1, 0)
            case {"capd": "want_env"}:
                pass
            case {"capd": "closing"}:
                self.closing.append(line)
            case {"method": "notifications/message", "params": what}:
                assert self.owed.pop(0) == (what if isinstance(what, int) else "flood")
            case {"method": "notifications/tools/list_changed"}:
                self._on_list_changed(line.get("params", {}).get("_meta", {}).get(STREAM_MARK))
            case {"method": "notifications/subscriptions/acknowledged"}:
                pass
            case {"method": "roots/list", "id": key}:
                self.questions.append(key)
            case {"method": "notifications/cancelled"}:
                self.questions.remove(line["params"]["requestId"])
            case {"id": number}:
                self._on_answer(number, line)
            case _:
                raise AssertionError(line)

    def _on_list_changed(self, stream: int | None) -> None:
        if stream is None:
            self.list_changes -= 1
        elif stream not in self.cancelled:
            self.streams[stream] -= 1

    def _on_answer(self, number: int, line: Json) -> None:
        self.answers[number] += 1
        assert self.answers[number] == 1, f"{number} was answered twice"
        if "inputRequests" in line.get("result", {}):
            self.asking[number] = {**line, "params": self.sent[number]["params"]}
        if number in self.cancelled:
            # Its answer was on its way.
            return
        message = self.open.pop(number)
        self.streams.pop(number, None)
        is_refused = "error" in line and self.stage.upstream.is_draining
        if message["method"] in ("tools/call", "prompts/get") and not is_refused:
            assert not self.wants_dispatched or self.told[number] == 1

    # The end

    async def settle(self) -> None:
        """Have everything answered that can be, and see the connection parked."""
        if not self.draw(st.booleans()):
            return
        self.is_reading = True
        await self.send()
        await self.look()
        for number in self.finishable():
            await self.finish(number, {"result": {"content": []}})
        while self.questions:
            await self.rule_answers_a_question()
        for number in list(self.streams):
            del self.open[number], self.streams[number]
            self.cancelled.add(number)
            await self.send(direct.cancelled(number))
        await self.look()
        assert self.open == {}
        assert self.replied == self.asked
        if not self.asking:
            await trio.sleep(LONGEST_QUIET + 1)
            await self.look()
            assert self.is_parked

    async def end_by_goodbye(self) -> None:
        await self.send({"capd": "goodbye"})
        await self.over()
        assert self.stage.upstream.is_goodbye

    async def end_by_leave(self) -> None:
        await self.stage.client.aclose()
        await self.over()

    async def end_by_close(self) -> None:
        await self.read()
        if not self.is_parked and self.draw(st.booleans()):
            self.look_twice()
            await self.pass_turns()
        self.stage.upstream.close("stopping", reconnect=True)
        _ = self.stage.upstream.is_busy
        await self.over()
        await self.read_to_the_end()
        assert [each["reason"] for each in self.closing] == ["stopping"]
        assert all(self._is_in_half(each) for each in self.streams)

    async def end_by_stop(self) -> None:
        """Have the daemon end at once, which closes what is parked."""
        await self.read()
        was_parked = self.is_parked
        self.stage.parking.close()
        if was_parked:
            assert await self.stage.client.receive_some() == b""
            assert self.stage.upstream.is_over
        self.stage.nursery.cancel_scope.cancel()

    async def read_to_the_end(self) -> None:
        for line in await self.stage.heard():
            self.on_line(json.loads(line))

    async def over(self) -> None:
        """See that the connection is over, has no task, and has cancelled what was in progress."""
        with trio.fail_after(5):
            await self.stage.ended.wait()
        await wait_all_tasks_blocked()
        assert self.stage.upstream.is_over
        assert not self.stage.nursery.child_tasks
        assert self.replied == self.asked
        assert self.talk.held == {}
        self.note_told(await self.server.told())
        names = {each["params"].get("name", "") for each in self.open.values()}
        assert {self.written[each] for each in names & self.written.keys()} <= {*self.withdrawn}


@given(st.data())
@settings(max_examples=10 * examples(20), deadline=None)
def test_parking_changes_nothing_for_a_client(data: st.DataObject) -> None:
    async def main() -> None:
        await Game(data.draw).play()

    trio.run(main, clock=MockClock(autojump_threshold=0))
