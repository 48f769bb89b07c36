"""Runs scripts for one session: the interpreter's steps, and the calls between them.

A script is Python code that a model sends to the tool `script_run`. It calls tools as functions.

    script_run ──> functions for the tools it names ──> step ──> waits for calls
                                                         ^         │ each sent as any other call
                                                         │         v (`calls.call_for_script`)
                                                         └── resumed with the answers so far

A script's call is treated like a call of the client: the same policy, argument checks, memories,
leases and ledger notes apply, and it has exactly one outcome. An outcome other than a result raises
an exception in the script. The rules are in `core/scripts/run`. The interpreter runs in a process
of its own (`adapters/scripts`).
"""

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog
import trio
from structlog.typing import FilteringBoundLogger

from capd.actors.session.parts import SessionParts
from capd.actors.session.tool_search import ToolSearch
from capd.adapters.clients.client_call import ClientCall
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.scripts.run_files import RunJournal
from capd.adapters.scripts.steps import Damaged, Ended, OnCalls, Resume, Start, Stepped, Waiting
from capd.adapters.scripts.workers import ScriptsUnavailableError
from capd.adapters.servers.callers import Caller, OnProgress
from capd.core.protocol.generations import raw
from capd.core.protocol.outcomes import (
    CallFailedError,
    OutcomeUnknownError,
    ServerError,
    text_result,
)
from capd.core.protocol.tasks import without_tasks
from capd.core.results.large_results import LargeResult, Result
from capd.core.scripts.run import (
    ENGINE,
    MOST_CALLS,
    SLEEP,
    Answer,
    Begun,
    DamagedRunError,
    IssuedCall,
    Restored,
    ScriptRun,
    Suspended,
)
from capd.core.scripts.script_answers import (
    ScriptEnd,
    answer_of,
    failed_answer,
    refused_answer,
    report,
)
from capd.core.scripts.script_tool import (
    DEFINITION,
    SCRIPT_RUN,
    BadScriptError,
    ScriptArguments,
    checked_script,
)
from capd.core.scripts.stubs import (
    ToolFunction,
    bound_names,
    checking_stubs,
    described_stubs,
    prelude,
    references,
    tool_functions,
)
from capd.core.sessions.active_set import Grant
from capd.core.sessions.session_view import OWN_SERVER
from capd.core.sessions.surface import ShownTool
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ClientFacts, ServerIdentity, SessionKey, ToolName, WireName

CallTool = Callable[[str, Request], Awaitable[Result]]

LONGEST = 1800.0
"""Seconds for one script; a client's own timeout is shorter."""
LONGEST_COMPUTING = 60.0
"""Seconds that all steps of one script may take together."""
LEFT_OVER = 10.0
"""Seconds for calls in progress to end after their script has ended."""
MOST_AT_ONCE = 4
"""How many scripts of one session may run at a time."""
MOST_REFERENCES = 48
SHORT_RESULT = 16 << 10
"""A result of up to this many bytes is decoded on the event loop, a larger one in a thread."""
REMOVAL = 2.0
"""Seconds for the removal of a file."""
_CHECK = "Calls of it may have run: check before you repeat it."
_ARGUMENTS: JsonCodec[ScriptArguments] = JsonCodec(ScriptArguments)
_SHOWN = ShownTool(SCRIPT_RUN, Grant(ServerIdentity(OWN_SERVER), ToolName(SCRIPT_RUN)), DEFINITION)


class _InnerCaller:
    """Stands for the script's caller in each of the script's tool calls, except for progress.

    Requests and notifications of the server reach the client. Progress of single calls does not,
    because the client's progress token reports how many calls of the script have ended.
    """

    def __init__(self, outer: Caller, on_dispatched: Callable[[], Awaitable[None]]) -> None:
        self._outer = outer
        self._on_dispatched = on_dispatched

    @property
    def session(self) -> SessionKey:
        """The session whose script makes the call."""
        return self._outer.session

    @property
    def client(self) -> ClientFacts:
        """What is known about the client, without support for MCP tasks.

        A script waits for results, so its calls must not become tasks.
        """
        return without_tasks(self._outer.client)

    @property
    def log_level(self) -> str:
        """The lowest level of log messages that the client wants."""
        return self._outer.log_level

    async def dispatched(self) -> None:
        """Note that the call is about to be written to the server."""
        await self._on_dispatched()

    def progress(self, params: bytes) -> None:
        """Drop the progress of a single call."""

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Send a server's request on to the session's client; return the answer."""
        return await self._outer.ask(method, params, on_progress)

    def tell(self, method: str, params: bytes) -> None:
        """Pass a server's notification on to the session's client."""
        self._outer.tell(method, params)


class SessionScripts:
    """Runs the scripts of one session: their steps, and the tool calls between them."""

    def __init__(self, parts: SessionParts, search: ToolSearch, call_tool: CallTool) -> None:
        """Create it.

        `call_tool` makes a call as the client would, and shortens a result only if it is too large
        for a script.
        """
        self._state = parts.context.state
        self._view = parts.context.view
        self._key = parts.context.place.key
        self._files = parts.context.services.script_files
        self._workers = parts.context.services.scripts
        self._results = parts.results
        self._notes = parts.notes
        self._search = search
        self._call_tool = call_tool
        self._under_way = 0

    @property
    def _log(self) -> FilteringBoundLogger:
        # Most sessions log nothing here, and a kept logger is 200 bytes.
        log: FilteringBoundLogger = structlog.get_logger(actor="curator", session=self._key)
        return log

    async def run(self, request: Request, arguments: msgspec.Raw) -> Result:
        """Run a script and return the result of `script_run`.

        Without code, return the active tools as Python function stubs.

        Raises:
            MalformedError, BadScriptError: the arguments are invalid.
            OutcomeUnknownError: the script cannot continue, and calls of it may have run.
        """
        caller = request.caller
        if isinstance(caller, ClientCall) and caller.was_begun():
            return await self._continue(caller, request, arguments)
        if refusal := self._view.scripts_refusal:
            return text_result(f"{SCRIPT_RUN} cannot be called: {refusal}.", is_error=True)
        given = checked_script(_ARGUMENTS.decode(arguments))
        if not given.code.strip():
            return text_result(self._described())
        if self._under_way >= MOST_AT_ONCE:
            text = f"{MOST_AT_ONCE} scripts of this session are under way: wait for one of them."
            return text_result(text, is_error=True)
        functions = await self._functions(given.code)
        names = {each.wire_name: each.name for each in functions}
        script = _Script(self, request, names, self._journal(request, given, names))
        first = Start(
            script.id,
            given.code,
            bytes(given.inputs),
            prelude(functions),
            checking_stubs(functions),
        )
        return await self._run(script, first)

    async def _run(self, script: "_Script", first: Start | Waiting) -> Result:
        self._under_way += 1
        try:
            with trio.move_on_after(LONGEST):
                return await script.run(first)
            return await self.finish(script, ScriptEnd(error=f"It took more than {LONGEST:g} s."))
        except ScriptsUnavailableError as error:
            if script.calls.has_sent:
                raise OutcomeUnknownError(
                    f"The script cannot continue: {error}. {_CHECK}"
                ) from None
            return text_result(f"The script was not run: {error}.", is_error=True)
        finally:
            self._under_way -= 1

    # Scripts that outlive a daemon

    def _journal(
        self, request: Request, given: ScriptArguments, names: dict[WireName, str]
    ) -> RunJournal | None:
        """Return the journal that saves a script's run, so that the next daemon can continue it.

        `names` has the function of each tool. The result is None if this daemon saves no scripts,
        or if the client would not ask again for the result.
        """
        caller = request.caller
        if self._files is None or not isinstance(caller, ClientCall) or not caller.is_durable:
            return None
        begun = Begun(
            self._key,
            msgspec.json.encode(caller.request_id).decode(),
            given.code,
            bytes(given.inputs),
            ENGINE,
            time.time(),
            list(names.items()),
        )
        return RunJournal(self._files, begun)

    async def _continue(
        self, caller: ClientCall, request: Request, arguments: msgspec.Raw
    ) -> Result:
        """Continue a script that an earlier daemon began; return its result.

        Raises:
            OutcomeUnknownError: the script cannot be continued, and calls of it may have run.
        """
        try:
            given = checked_script(_ARGUMENTS.decode(arguments))
            found = await self._load_saved(caller, given)
        except (BadScriptError, MalformedError, DamagedRunError) as error:
            self._log.warning("script_lost", reason=str(error))
            text = f"capd ended while this script ran, and cannot go on with it: {error}. {_CHECK}"
            raise OutcomeUnknownError(text) from None
        assert self._files is not None
        begun, suspended = found.begun, found.suspended
        journal = RunJournal(self._files, begun, found.run.open_ids)
        script = _Script(self, request, dict(begun.functions), journal, found)
        self._log.info("script_goes_on", calls=found.run.issued_count)
        return await self._run(script, Waiting(suspended.snapshot, []))

    async def _load_saved(self, caller: ClientCall, given: ScriptArguments) -> Restored:
        if self._files is None:
            raise DamagedRunError("this daemon does not save scripts")
        request = msgspec.json.encode(caller.request_id).decode()
        found = await self._files.load(self._files.path(self._key, request))
        if found is None:
            raise DamagedRunError("nothing was saved of it")
        begun = found.begun
        if (begun.code, begun.inputs) != (given.code, bytes(given.inputs)):
            raise DamagedRunError("the saved state is of another script")
        if begun.engine != ENGINE:
            raise DamagedRunError(f"it was run by {begun.engine}, and this is {ENGINE}")
        return found

    # The functions

    def _shown(self) -> list[tuple[str, str, WireName, bytes]]:
        found: list[tuple[str, str, WireName, bytes]] = []
        for shown in self._state.surface.shown:
            lease = self._state.granted_by(shown.grant)
            if lease is not None:
                found.append((lease.spec.name, shown.shown_name, shown.name, shown.definition))
        return found

    async def _functions(self, code: str) -> list[ToolFunction]:
        """Return the functions for the tools that a script names, active or inactive."""
        wanted = set(references(code, MOST_REFERENCES))
        functions = tool_functions(self._shown(), wanted)
        on = [each for each in functions if (each.module, each.function) in wanted]
        missing = wanted - {(each.module, each.function) for each in on}
        own = bound_names(code)
        names = [n for each in sorted(missing) if each[0] not in own for n in _wire_names(*each)]
        hits = await self._search.known_tools(names) if names else {}
        # Two names may mean one tool, so the tools are collected by their wire names.
        known = {hit.wire_name: hit for hit in hits.values()}
        found = tool_functions(
            ((hit.server, hit.shown_name, name, hit.definition) for name, hit in known.items()),
            missing,
        )
        return on + [each for each in found if (each.module, each.function) in missing]

    def _described(self) -> str:
        """Return the Python stubs of the active tools, for a call without code."""
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
        """Make one tool call of a script; return its result or error in the form for the script."""
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
                is_short = len(result) <= SHORT_RESULT
                answer = (
                    answer_of(result)
                    if is_short
                    else await trio.to_thread.run_sync(answer_of, result)
                )
        milliseconds = round((time.monotonic() - began_at) * 1000, 1)
        return msgspec.structs.replace(answer, milliseconds=milliseconds)

    def on_save_failed(self, error: OSError) -> None:
        """Log that a run cannot be saved, and so is lost if this daemon ends."""
        self._log.warning("script_not_written", reason=error.strerror or str(error))

    async def step(self, step: Start | Resume, on_calls: OnCalls) -> Stepped:
        """Run a script until it waits for calls or ends; return its state then.

        `on_calls` gets the calls that the step makes, as soon as they are made.

        Raises:
            ScriptsUnavailableError: no script process can run the script.
        """
        return await self._workers.run(step, on_calls)

    # The answer

    async def finish(self, script: "_Script", end: ScriptEnd) -> Result:
        """Record the end of a script in ledger and log; return its result for the model."""
        calls = script.calls.table()
        outcome = "error" if end.error else "result"
        self._notes.script_ended(outcome, time.monotonic() - script.began_at, calls)
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


@dataclass(slots=True, eq=False)
class _Round:
    """The tool calls that a script makes in one step, until it waits for their answers.

    Each call is checked as soon as the script makes it, and sent only after the script's state was
    saved. The next daemon needs that state to know which calls were sent.
    """

    is_kept: trio.Event = field(default_factory=trio.Event)
    scopes: list[trio.CancelScope] = field(default_factory=list)
    """The scopes of its calls, which are cancelled together with the step."""
    is_over: bool = False

    def add(self, scope: trio.CancelScope) -> None:
        """Add the cancel scope of a call of this step.

        `end` cancels it; if `end` was called before, it is cancelled at once.
        """
        self.scopes.append(scope)
        if self.is_over:
            scope.cancel()

    def end(self) -> None:
        """Cancel the step's calls. None of them was sent, because the state was not saved."""
        self.is_over = True
        for scope in self.scopes:
            scope.cancel()


class _Script:
    """One run of a script, from the request to its answer."""

    def __init__(
        self,
        session: SessionScripts,
        request: Request,
        names: dict[WireName, str],
        journal: RunJournal | None,
        found: Restored | None = None,
    ) -> None:
        """Create it. `found` is the state of the run that an earlier daemon saved.

        `names` has the function of each tool. Without `journal` the run is not saved.
        """
        self.id = secrets.token_hex(8)
        self.began_at = time.monotonic()
        self.request = request
        self.calls = found.run if found is not None else ScriptRun()
        self.names = names
        self._session = session
        self._journal = journal
        self._is_announced = False
        """Whether the client knows that calls of the script may have run."""
        self._announcing = trio.Lock()
        self._printed = found.suspended.printed if found is not None else ""
        self._seconds = found.suspended.seconds if found is not None else 0.0
        self._snapshot = b""
        self._round = _Round()
        self._news = trio.Event()

    async def run(self, first: Start | Waiting) -> Result:
        """Run the script until it ends; return its result for the model."""
        try:
            result = await self._session.finish(self, await self._run_to_end(first))
        except trio.Cancelled:
            caller = self.request.caller
            if not isinstance(caller, ClientCall) or not caller.is_left:
                await self._remove_journal()
            raise
        await self._remove_journal()
        return result

    async def _remove_journal(self) -> None:
        """Remove the saved state of the run, because the script has ended."""
        if self._journal is not None and self.calls.has_sent:
            with trio.CancelScope(shield=True), trio.move_on_after(REMOVAL):
                await self._journal.remove()

    async def _run_to_end(self, first: Start | Waiting) -> ScriptEnd:
        """Run the script's steps and calls until it ends; return how it ended."""
        stepped: Ended | Damaged | ScriptsUnavailableError
        async with trio.open_nursery() as nursery:
            try:
                stepped = await self._until_ended(first, nursery)
            except ScriptsUnavailableError as error:
                stepped = error
                nursery.cancel_scope.cancel()
            # Calls that the script did not wait for get a little time to end with an outcome.
            nursery.cancel_scope.deadline = trio.current_time() + LEFT_OVER
        if isinstance(stepped, ScriptsUnavailableError):
            raise stepped
        if isinstance(stepped, Damaged):
            return self._end(f"its saved state cannot be used: {stepped.reason}.")
        return ScriptEnd(stepped.value, stepped.error, self._printed, self._seconds)

    async def _until_ended(self, first: Start | Waiting, nursery: trio.Nursery) -> Ended | Damaged:
        """Run the script until it ends; return how. Calls still in progress go on in `nursery`."""
        stepped = await self._step(first, nursery) if isinstance(first, Start) else first
        if isinstance(stepped, Waiting) and not self._round.is_kept.is_set():
            self._keep(stepped)
        while isinstance(stepped, Waiting):
            if error := self._excess():
                nursery.cancel_scope.cancel()
                return Ended(error=f"The script was ended: {error}")
            stepped = await self._next_step(nursery)
        return stepped

    def _excess(self) -> str:
        """Return which limit the script exceeds, as the end of a sentence; empty for none."""
        if self.calls.issued_count > MOST_CALLS:
            return f"it makes more than {MOST_CALLS} calls."
        if self._seconds > LONGEST_COMPUTING:
            return f"it computes for more than {LONGEST_COMPUTING:g} s."
        return ""

    async def _next_step(self, nursery: trio.Nursery) -> Stepped:
        """Wait until a call has an answer, then run the next step with all answers so far."""
        while True:
            self._begin(nursery)
            due = self.calls.due()
            if due:
                return await self._step(Resume(self.id, self._snapshot, due), nursery)
            self._news = trio.Event()
            await self._news.wait()

    def _begin(self, nursery: trio.Nursery) -> None:
        for call in self.calls.begin():
            nursery.start_soon(self._make_call, call, self._round)

    async def _step(self, step: Start | Resume, nursery: trio.Nursery) -> Stepped:
        """Run one step of the script, until the script waits again or ends; return its state.

        Meanwhile the calls that the step makes are checked, and approved by a person if necessary.
        Raises: as `SessionScripts.step`.
        """
        round_ = self._round = _Round()

        def called(calls: list[IssuedCall]) -> None:
            self.calls.issue_new(calls)
            if not self._excess():
                self._begin(nursery)

        stepped = await self._session.step(step, called)
        if isinstance(step, Resume):
            self.calls.delivered(step.answers)
        if isinstance(stepped, Waiting | Ended):
            self._printed += stepped.printed
            self._seconds += stepped.seconds
        if isinstance(stepped, Waiting):
            self._keep(stepped)
        else:
            round_.end()
        return stepped

    def _keep(self, waiting: Waiting) -> None:
        # No checkpoint comes in between, so that snapshot and calls are of the same moment.
        self._snapshot = waiting.snapshot
        self.calls.issue_new(waiting.calls)
        self._round.is_kept.set()

    async def _make_call(self, call: IssuedCall, round_: _Round) -> None:
        with trio.CancelScope() as scope:
            round_.add(scope)
            await self._answer_call(call, round_)

    async def _answer_call(self, call: IssuedCall, round_: _Round) -> None:
        caller = _InnerCaller(self.request.caller, partial(self._sent, call, round_))
        answer = await self._session.answer(call, caller, self.request)
        self.calls.answered(call.id, answer)
        self._news.set()
        if self._journal is not None:
            # Let the script go on first: its next step takes longer than writing the file.
            await trio.lowlevel.checkpoint()
            await self._journal.answered(call.id, answer)
        if call.tool != SLEEP:
            done, issued = self.calls.answered_count, self.calls.issued_count
            name = self.names.get(call.tool, call.tool)
            said = {"progress": done, "total": issued, "message": f"{name}: {done} of {issued}"}
            self.request.caller.progress(msgspec.json.encode(said))

    async def _sent(self, call: IssuedCall, round_: _Round) -> None:
        """Save that a call is about to be sent.

        Before the first call is sent, tell the client that calls of the script may have run.
        """
        await round_.is_kept.wait()
        if self.calls.was_sent(call.id):
            return
        self.calls.sent(call.id)
        # Under a lock: no call is sent before the client knows that calls may run.
        async with self._announcing:
            caller = self.request.caller
            if self._journal is not None and isinstance(caller, ClientCall):
                try:
                    await self._journal.sent(call.id, self._suspended)
                except OSError as error:
                    self._session.on_save_failed(error)
                    journal, self._journal, self._is_announced = self._journal, None, False
                    await journal.remove()
                else:
                    if not self._is_announced:
                        self._is_announced = True
                        await caller.durable()
                    return
            if not self._is_announced:
                self._is_announced = True
                await caller.dispatched()

    def _suspended(self) -> Suspended:
        return self.calls.suspended(self._snapshot, self._printed, self._seconds)

    def _end(self, error: str) -> ScriptEnd:
        return ScriptEnd(error=f"The script was ended: {error}", printed=self._printed)


def _wire_names(module: str, function: str) -> list[str]:
    """Return the names under which clients may know the tool of a script's function."""
    server = module.rstrip("_")
    names = [f"{server}__{function}", f"{server}__{server}_{function}"]
    return [name.lower() for name in names]


def _with_text(passed: Result, text: str, *, is_error: bool, has_value: bool) -> Result:
    """Return a result with `text` as its last block. Without `has_value`, it is the only block."""
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
