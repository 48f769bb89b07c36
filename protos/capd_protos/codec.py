"""Decoders for all data that comes from outside this process.

On hostile input msgspec raises errors besides its own, such as `RecursionError`. Every decoder here
turns all of them into `MalformedError` (docs/design/relay.md, "Reading").
"""

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class MalformedError(ValueError):
    """Bytes that do not decode to the expected message; the text says in one line what is wrong."""


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError)


def _one_line(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    if isinstance(error, MemoryError):
        return "too large"
    return " ".join(str(error).split())[:300]


class JsonCodec(Generic[T]):
    """Reads and writes one type, or one union, as JSON."""

    def __init__(self, message_type: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(message_type)
        self._encoder = msgspec.json.Encoder()

    def decode(self, data: bytes | bytearray | memoryview | str | msgspec.Raw) -> T:
        """Return the message in `data`.

        Raises:
            MalformedError: `data` does not decode to this type.
        """
        try:
            return self._decoder.decode(data)
        except _UNREADABLE as error:
            raise MalformedError(_one_line(error)) from None

    def encode(self, message: T) -> bytes:
        """Return `message` as one line of JSON without the newline."""
        return self._encoder.encode(message)


class MsgpackCodec(Generic[T]):
    """Reads and writes one type, or one union, as msgpack."""

    def __init__(self, message_type: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(message_type)
        self._encoder = msgspec.msgpack.Encoder()

    def decode(self, data: bytes | bytearray | memoryview | msgspec.Raw) -> T:
        """Return the message in `data`.

        Raises:
            MalformedError: `data` does not decode to this type.
        """
        try:
            return self._decoder.decode(data)
        except _UNREADABLE as error:
            raise MalformedError(_one_line(error)) from None

    def encode(self, message: T) -> bytes:
        """Return `message` as msgpack."""
        return self._encoder.encode(message)
