"""Runs scripts for one session: the interpreter's steps, and the calls between them.

    script_run ──> functions for what it names ──> step ──> waits for calls ──> each goes the way of
                                                    ^        any call (`calls.call_for_script`)
                                                    └── resumed with the answers that are there

A call of a script is a call: policy, arguments, memories, leases, the ledger and its one outcome
are those of a call that the client makes. An outcome that is no result is an exception in the
script. The rules are `core/scripts/run`; the interpreter is in a process of its own
(`adapters/scripts`).
"""

import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog
import trio

from capd.actors.session.parts import SessionParts
from capd.actors.session.tool_search import ToolSearch
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.scripts.steps import Damaged, Ended, Resume, Start, Stepped, Waiting
from capd.adapters.scripts.workers import ScriptsUnavailableError
from capd.adapters.servers.callers import Caller, OnProgress
from capd.core.protocol.generations import raw
from capd.core.protocol.outcomes import CallFailedError, ServerError, text_result
from capd.core.results.large_results import LargeResult, Result
from capd.core.scripts.run import MOST_CALLS, SLEEP, Answer, IssuedCall, ScriptRun
from capd.core.scripts.script_answers import (
    ScriptEnd,
    answer_of,
    failed_answer,
    refused_answer,
    report,
)
from capd.core.scripts.script_tool import DEFINITION, SCRIPT_RUN, ScriptArguments, checked_script
from capd.core.scripts.stubs import (
    ToolFunction,
    checking_stubs,
    described_stubs,
    prelude,
    references,
    tool_functions,
)
from capd.core.sessions.active_set import Grant
from capd.core.sessions.session_view import OWN_SERVER
from capd.core.sessions.surface import Shown
from capd_protos.codec import JsonCodec
from capd_protos.types import ClientFacts, ServerIdentity, SessionKey, ToolName, WireName

CallTool = Callable[[str, Request], Awaitable[Result]]

LONGEST = 1800.0
"""Seconds for one script; a client's own timeout is shorter."""
LONGEST_COMPUTING = 60.0
"""Seconds that all steps of one script may take together."""
LEFT_OVER = 10.0
"""Seconds for calls that are under way when their script has ended."""
MOST_AT_ONCE = 4
"""Scripts of one session under way."""
MOST_REFERENCES = 48
_ARGUMENTS: JsonCodec[ScriptArguments] = JsonCodec(ScriptArguments)
_SHOWN = Shown(SCRIPT_RUN, Grant(ServerIdentity(OWN_SERVER), ToolName(SCRIPT_RUN)), DEFINITION)


class _InnerCaller:
    """The client behind a call of a script: asked as ever, told of progress by the script alone."""

    def __init__(self, outer: Caller, on_dispatched: Callable[[], Awaitable[None]]) -> None:
        self._outer = outer
        self._on_dispatched = on_dispatched

    @property
    def session(self) -> SessionKey:
        """Whose call it is."""
        return self._outer.session

    @property
    def client(self) -> ClientFacts:
        """What the client says of itself."""
        return self._outer.client

    @property
    def log_level(self) -> str:
        """From which level on it wants log messages."""
        return self._outer.log_level

    async def dispatched(self) -> None:
        """Note that the first byte of the call is about to be written."""
        await self._on_dispatched()

    def progress(self, params: bytes) -> None:
        """Drop it: the client's token counts the script's calls."""

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Ask the session's client."""
        return await self._outer.ask(method, params, on_progress)

    def tell(self, method: str, params: bytes) -> None:
        """Pass a notification on."""
        self._outer.tell(method, params)


class SessionScripts:
    """The scripts of one session."""

    def __init__(self, parts: SessionParts, search: ToolSearch, call_tool: CallTool) -> None:
        """`call_tool` makes a call as every call is made, and returns its whole result."""
        self._state = parts.context.state
        self._view = parts.context.view
        self._key = parts.context.place.key
        self._workers = parts.context.services.scripts
        self._results = parts.results
        self._search = search
        self._call_tool = call_tool
        self._under_way = 0
        self._log = structlog.get_logger(actor="curator", session=self._key)

    async def run(self, request: Request, arguments: msgspec.Raw) -> Result:
        """Return the result of the tool `script_run`.

        Raises:
            MalformedError, BadScriptError: the arguments are wrong.
        """
        if refusal := self._view.scripts_refusal:
            return text_result(f"{SCRIPT_RUN} cannot be called: {refusal}.", is_error=True)
        given = checked_script(_ARGUMENTS.decode(arguments))
        if not given.code.strip():
            return text_result(self._described())
        if self._under_way >= MOST_AT_ONCE:
            text = f"{MOST_AT_ONCE} scripts of this session are under way: wait for one of them."
            return text_result(text, is_error=True)
        self._under_way += 1
        try:
            functions = await self._functions(given.code)
            script = _Script(self, request, given, functions)
            with trio.move_on_after(LONGEST):
                return await script.run()
            return await self.told(script, ScriptEnd(error=f"It took more than {LONGEST:g} s."))
        except ScriptsUnavailableError as error:
            return text_result(f"The script was not run: {error}.", is_error=True)
        finally:
            self._under_way -= 1

    # The functions

    def _shown(self) -> list[tuple[str, str, WireName, bytes]]:
        found: list[tuple[str, str, WireName, bytes]] = []
        for shown in self._state.surface.shown:
            lease = self._state.granted_by(shown.grant)
            if lease is not None:
                found.append((lease.spec.name, shown.grant.tool, shown.name, shown.definition))
        return found

    async def _functions(self, code: str) -> list[ToolFunction]:
        """Return the functions that a script names: of tools that are on, and of known ones."""
        wanted = set(references(code, MOST_REFERENCES))
        functions = tool_functions(self._shown())
        on = [each for each in functions if (each.module, each.function) in wanted]
        missing = wanted - {(each.module, each.function) for each in on}
        names = [name for each in sorted(missing) for name in _wire_names(*each)]
        hits = await self._search.known_tools(names) if names else {}
        found = tool_functions(
            (hit.server, hit.name, WireName(name), hit.definition) for name, hit in hits.items()
        )
        return on + [each for each in found if (each.module, each.function) in missing]

    def _described(self) -> str:
        """Return the stubs of what is on, for a call without code."""
        functions = tool_functions(self._shown())
        stubs, left_out = described_stubs(functions)
        if not stubs:
            stubs = "# No tool is on."
        more = f"{left_out} more are on. " if left_out else ""
        finds = self._view.searcher
        return (
            f"{stubs}\n# {more}Each is awaited, and takes arguments by name. {finds} with detail "
            "stubs finds others; any installed tool can be called as server.tool.\n"
            "# asyncio.gather(*calls) runs 8 at a time. Exceptions: ToolError, NotSent, Refused, "
            "OutcomeUnknown. `inputs` is the dict of the argument inputs."
        )

    # The calls

    async def answer(self, call: IssuedCall, caller: Caller, request: Request) -> Answer:
        """Make a call, and return what the script gets of it."""
        if call.tool == SLEEP:
            await trio.sleep(msgspec.json.decode(call.arguments, type=float))
            return Answer("value", b"null")
        began_at = time.monotonic()
        members = {"name": raw(call.tool), "arguments": msgspec.Raw(call.arguments)}
        inner = Request(request.method, members, caller)
        try:
            result = await self._call_tool(call.tool, inner)
        except (CallFailedError, ServerError) as error:
            answer = failed_answer(error)
        except UnknownNameError as error:
            answer = refused_answer(str(error))
        else:
            if isinstance(result, LargeResult):
                text = f"The result of {call.tool} is larger than a script may hold."
                answer = Answer("ToolError", text.encode(), result.size_bytes)
            else:
                answer = await trio.to_thread.run_sync(answer_of, result)
        milliseconds = round((time.monotonic() - began_at) * 1000, 1)
        return msgspec.structs.replace(answer, milliseconds=milliseconds)

    async def step(self, step: Start | Resume) -> Stepped:
        """Have a step done; raises ScriptsUnavailableError."""
        return await self._workers.done(step)

    # The answer

    async def told(self, script: "_Script", end: ScriptEnd) -> Result:
        """Return what the model gets of a script that has ended."""
        calls = script.calls.table()
        self._log.info(
            "script_ended",
            calls=len(calls),
            failed=sum(each.kind != "value" for each in calls),
            error=end.error.partition("\n")[0][:80],
        )
        value = end.value.decode() if end.value and end.value != b"null" else ""
        if not value and not end.printed and not end.error:
            value = "null"
        first = text_result(value)
        passed = await self._results.passed(first, _SHOWN, OWN_SERVER, script.request.caller.client)
        text = report(end, calls, script.names, len(passed) if isinstance(passed, bytes) else 0)
        return _with_text(passed, text, is_error=bool(end.error), has_value=bool(value))


class _Script:
    """One run, from its request to its answer."""

    def __init__(
        self,
        session: SessionScripts,
        request: Request,
        given: ScriptArguments,
        functions: list[ToolFunction],
    ) -> None:
        self.request = request
        self.calls = ScriptRun()
        self.names = {each.wire_name: each.name for each in functions}
        self._session = session
        self._given = given
        self._functions = functions
        self._id = secrets.token_hex(8)
        self._printed = ""
        self._seconds = 0.0
        self._news = trio.Event()

    async def run(self) -> Result:
        """Run it, and return what the model gets."""
        functions = self._functions
        first = Start(
            self._id,
            self._given.code,
            bytes(self._given.inputs),
            prelude(functions),
            checking_stubs(functions),
        )
        return await self._session.told(self, await self._ended(await self._step(first)))

    async def _ended(self, stepped: Stepped) -> ScriptEnd:
        """Make its calls until it has ended."""
        async with trio.open_nursery() as nursery:
            while isinstance(stepped, Waiting):
                self.calls.issue(stepped.calls)
                if error := self._excess():
                    nursery.cancel_scope.cancel()
                    return self._end(error)
                stepped = await self._resumed(stepped, nursery)
            # What is under way without anybody who waits for it has its outcome all the same.
            nursery.cancel_scope.deadline = trio.current_time() + LEFT_OVER
        if isinstance(stepped, Damaged):
            return self._end(f"its saved state cannot be used: {stepped.reason}.")
        return ScriptEnd(stepped.value, stepped.error, self._printed, self._seconds)

    def _excess(self) -> str:
        """Return which bound the script is over; empty where it is within all."""
        if self.calls.issued_count > MOST_CALLS:
            return f"it makes more than {MOST_CALLS} calls."
        if self._seconds > LONGEST_COMPUTING:
            return f"it computes for more than {LONGEST_COMPUTING:g} s."
        return ""

    async def _resumed(self, waiting: Waiting, nursery: trio.Nursery) -> Stepped:
        """Go on with the answers that are there, once one is."""
        while True:
            for call in self.calls.begin():
                nursery.start_soon(self._make, call)
            due = self.calls.due()
            if due:
                break
            self._news = trio.Event()
            await self._news.wait()
        stepped = await self._step(Resume(self._id, waiting.snapshot, due))
        self.calls.delivered(due)
        return stepped

    async def _make(self, call: IssuedCall) -> None:
        caller = _InnerCaller(self.request.caller, partial(self._sent, call))
        answer = await self._session.answer(call, caller, self.request)
        self.calls.answered(call.id, answer)
        self._news.set()
        if call.tool != SLEEP:
            done, issued = self.calls.answered_count, self.calls.issued_count
            name = self.names.get(call.tool, call.tool)
            said = {"progress": done, "total": issued, "message": f"{name}: {done} of {issued}"}
            self.request.caller.progress(msgspec.json.encode(said))

    async def _sent(self, call: IssuedCall) -> None:
        """Note that a call is about to be sent, and tell the client once that this has begun."""
        is_first = not self.calls.has_sent
        self.calls.sent(call.id)
        if is_first:
            await self.request.caller.dispatched()

    async def _step(self, step: Start | Resume) -> Stepped:
        stepped = await self._session.step(step)
        if isinstance(stepped, Waiting | Ended):
            self._printed += stepped.printed
            self._seconds += stepped.seconds
        return stepped

    def _end(self, error: str) -> ScriptEnd:
        return ScriptEnd(error=f"The script was ended: {error}", printed=self._printed)


def _wire_names(module: str, function: str) -> list[str]:
    """Return the names that the tool of a function may have on the wire."""
    server = module.rstrip("_")
    names = [f"{server}__{function}", f"{server}__{server}_{function}"]
    return [name.lower() for name in names]


def _with_text(passed: Result, text: str, *, is_error: bool, has_value: bool) -> Result:
    """Return a result with `text` behind its value."""
    if not isinstance(passed, bytes):
        return passed
    members = msgspec.json.decode(passed, type=dict[str, msgspec.Raw])
    content = msgspec.json.decode(members.get("content", b"[]"), type=list[msgspec.Raw])
    kept = content if has_value else []
    if text:
        kept.append(raw({"type": "text", "text": text}))
    members["content"] = raw(kept)
    members["isError"] = raw(is_error)
    return msgspec.json.encode(members)
