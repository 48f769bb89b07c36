"""Parses server-sent events, in time linear in the input and in bounded memory.

The data of an event stays bytes: it is a JSON-RPC message that is passed on unchanged.
"""

import io
from dataclasses import dataclass

from capd.adapters.fair_share import FairShare
from capd.core.errors import CapdError
from capd.core.protocol.outcomes import OutcomeUnknownError

CAP_BYTES = 256 * 1024 * 1024
MOST_LINES = 1_000_000
"""The most lines of data in one event. Each line costs more memory than its own bytes."""
_STEP_BYTES = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_ID_BYTES = 8 * 1024


class EventTooLargeError(CapdError):
    """One server-sent event, or the text between two of them, is too large."""


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. If its `data` are empty, it has no message, at most an id."""

    name: str
    data: bytes


class EventParser:
    """Parses the events of one stream, and keeps what is needed to resume the stream."""

    def __init__(self, cap_bytes: int = CAP_BYTES) -> None:
        self.last_id = ""
        self.retry: float | None = None
        """Seconds to wait before the stream is resumed; None if the server has not said."""
        self.has_brought = False
        """Whether this stream had an event with data."""
        self._cap_bytes = cap_bytes
        # One buffer, because each of many small pieces would take more memory than its bytes.
        self._line = io.BytesIO()
        self._is_first = True
        self._after_return = False
        self._name = ""
        self._data: list[bytes] = []
        self._has_fields = False
        self._since_event_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """How many bytes the event that has begun takes."""
        return self._since_event_bytes

    def restart(self) -> None:
        """Begin to parse another stream, which continues this one after its last event."""
        self._line, self._data, self._name = io.BytesIO(), [], ""
        self._has_fields = self._after_return = self.has_brought = False
        self._is_first = True
        self._since_event_bytes = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes.

        Raises:
            EventTooLargeError: an event, or the text between two events, is too large.
        """
        events: list[Event] = []
        if self._is_first and chunk:
            self._is_first = False
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        was_after_return, self._after_return = self._after_return, chunk.endswith(b"\r")
        if was_after_return:
            chunk = chunk.removeprefix(b"\n")
        # Comments count as well, or an endless one would be unlimited.
        self._since_event_bytes += len(chunk)
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            if self._line.tell():
                self._line.write(part)
                part = self._line.getvalue()  # noqa: PLW2901 - the whole line
                self._line = io.BytesIO()
            self._take(part, events)
        self._line.write(rest)
        if events:
            self._since_event_bytes = len(rest)
        if self._since_event_bytes > self._cap_bytes:
            raise EventTooLargeError(f"sent an event of more than {self._cap_bytes} bytes")
        return events

    def _take(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._has_fields:
                event = Event(self._name or "message", b"\n".join(self._data))
                self.has_brought = self.has_brought or bool(event.data)
                events.append(event)
            self._name, self._data, self._has_fields = "", [], False
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            if len(self._data) >= MOST_LINES:
                raise EventTooLargeError(f"sent an event of more than {MOST_LINES} lines")
            self._data.append(value)
            self._has_fields = True
        elif field == b"event":
            self._name = value[:80].decode(errors="replace")
            self._has_fields = True
        elif field == b"id" and b"\0" not in value and len(value) <= _LONGEST_ID_BYTES:
            self.last_id = value.decode(errors="replace")
            self._has_fields = True
        elif field == b"retry" and value.isdigit() and len(value) < 10:  # noqa: PLR2004 - sane
            self.retry = int(value) / 1000


async def fed_in_turns(parser: EventParser, chunk: bytes) -> list[Event]:
    """Return the events that `chunk` completes; let other tasks run meanwhile.

    Raises:
        OutcomeUnknownError: an event, or the text between two events, is too large.
    """
    share = FairShare()
    events: list[Event] = []
    try:
        for at in range(0, len(chunk), _STEP_BYTES):
            events += parser.feed(chunk[at : at + _STEP_BYTES])
            await share.give_way()
    except EventTooLargeError as error:
        raise OutcomeUnknownError(str(error)) from None
    return events
