"""Decides how long capd waits before it continues a stream that the server has ended.

A server may ask for a pause (`retry`), even one of 0 seconds: some servers end each stream on
purpose, so that the client polls. The first pause is what the server asks for. Each later one has a
lower bound, so that a server that ends every stream immediately does not make capd connect hundreds
of times in a call.
"""

USUAL = 1.0
"""Seconds to wait if the server asks for no pause."""
LEAST = 0.1
"""The fewest seconds to wait before the second and each later continuation."""
LONGEST = 1.0
"""The highest lower bound, in seconds. The bound grows while streams bring no message."""


class StreamPauses:
    """How long to wait before the stream of one request is continued."""

    def __init__(self) -> None:
        self._least = 0.0

    def after(self, asked: float | None, *, is_new: bool) -> float:
        """Return the seconds to wait before the stream is continued.

        `asked` is the pause that the server asks for, in seconds. `is_new` tells whether the stream
        that has just ended brought a message.
        """
        if is_new:
            self._least = min(self._least, LEAST)
        pause = max(USUAL if asked is None else asked, self._least)
        self._least = min(max(self._least * 2, LEAST), LONGEST)
        return pause
