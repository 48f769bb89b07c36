"""Requests that servers send to a client: each gets an id on this connection, and one answer."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import msgspec
import trio

from capd.adapters.servers.callers import OnProgress
from capd.core.protocol.generations import Members, joined, members_of
from capd.core.protocol.outcomes import RefusedError, ServerError
from capd_protos.codec import JsonCodec, MalformedError

LONGEST_WAIT = 600.0
"""Seconds for which a server waits for a person (docs/design/outcomes.md)."""

_PREFIX = "capd-"


class _Token(msgspec.Struct):
    progressToken: int | str  # noqa: N815 - the protocol's name


_TOKEN: JsonCodec[_Token] = JsonCodec(_Token)


class _Question:
    def __init__(self, on_progress: OnProgress) -> None:
        self.done = trio.Event()
        self.result = b""
        self.error = b""
        self.token: msgspec.Raw | None = None
        """The server's own progress token, if it gave one."""
        self.on_progress = on_progress


class Questions:
    """The requests of servers that one client has not answered yet."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._open: dict[str, _Question] = {}
        self._is_over = False

    @property
    def are_open(self) -> bool:
        """Whether a server waits for an answer."""
        return bool(self._open)

    async def ask(
        self,
        method: str,
        params: bytes,
        write: Callable[[bytes], None],
        on_progress: OnProgress,
    ) -> bytes:
        """Send a server's request to the client with `write`; return the client's result.

        `on_progress` receives the params of progress that the client reports.

        Raises:
            ServerError: the client answered with an error.
            RefusedError: the client has disconnected, or does not answer.
            MalformedError: the params are not an object.
        """
        if self._is_over:
            raise RefusedError("the client has disconnected")
        key = f"{_PREFIX}{next(self._ids)}"
        question = _Question(on_progress)
        sent = self._with_token(params, key, question)
        self._open[key] = question
        is_asked = False
        try:
            write(
                b'{"jsonrpc":"2.0","id":"%s","method":%s,"params":%s}'
                % (key.encode(), msgspec.json.encode(method), sent)
            )
            is_asked = True
            with trio.move_on_after(LONGEST_WAIT):
                await question.done.wait()
        finally:
            if is_asked and not question.done.is_set():
                reason = {"requestId": key, "reason": "nobody waits for the answer"}
                sent = msgspec.json.encode(reason)
                with suppress(RefusedError):
                    write(
                        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}' % sent
                    )
            self._open.pop(key, None)
        if not question.done.is_set():
            raise RefusedError(f"the client has not answered {method} for {LONGEST_WAIT:g} s")
        if question.error:
            raise ServerError(question.error)
        if not question.result:
            raise RefusedError("the client disconnected before it answered")
        return question.result

    def on_answer(self, message_id: object, result: bytes, error: bytes) -> bool:
        """Note the client's answer, a result or an error; return whether a task waits for it.

        `message_id` is the id of the request. An answer that nobody waits for is dropped.
        """
        question = self._open.pop(message_id, None) if isinstance(message_id, str) else None
        if question is not None:
            question.result, question.error = result, error
            question.done.set()
        return question is not None

    def on_progress(self, params: bytes) -> None:
        """Send a server the client's progress on an answer, with the server's own token.

        `params` are the params of the client's notification.
        """
        try:
            key = _TOKEN.decode(params).progressToken
            question = self._open.get(key) if isinstance(key, str) else None
            if question is not None and question.token is not None:
                members = members_of(params)
                members["progressToken"] = question.token
                question.on_progress(joined(members))
        except MalformedError:
            return

    def close(self) -> None:
        """Fail every request that the client has not answered."""
        self._is_over = True
        for question in list(self._open.values()):
            question.done.set()

    def _with_token(self, params: bytes, key: str, question: _Question) -> bytes:
        if b'"progressToken"' not in params:
            return params
        members = members_of(params)
        meta: Members = members_of(members.get("_meta", msgspec.Raw(b"")))
        if "progressToken" not in meta:
            return params
        question.token = meta["progressToken"]
        meta["progressToken"] = msgspec.Raw(b'"%s"' % key.encode())
        return joined({**members, "_meta": msgspec.Raw(joined(meta))})
