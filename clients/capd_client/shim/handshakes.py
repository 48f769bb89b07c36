"""What daemons answered to handshakes, kept for the next one that is slow."""

import posix

from capd_client.shim.json_lines import (
    TruncatedLine,
    encode,
    object_of,
    params_of,
    parse,
    text_of,
)
from capd_client.shim.replay import METHOD_NOT_FOUND
from capd_client.shim.starting import join, make_folders

VERSION = "0.1.0"
DISCOVER = "server/discover"
HANDSHAKES = ("initialize", DISCOVER)
META = "io.modelcontextprotocol/"
_FILE_NAME = "handshake.json"
_MOST_BYTES = 64 * 1024
_MOST_ANSWERS = 8


class Handshakes:
    """What daemons of this version answered to `initialize` and `server/discover`, in one file.

    An answer is for those alone who ask for the same version: which one a daemon agrees on is
    the daemon's rule. It is the same for every session, and holds no secret.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = join(folder, _FILE_NAME)
        self._unsaved: list[tuple[bytes | bytearray, bytes | bytearray]] = []

    def find(self, line: "bytes | bytearray") -> "dict[str, object]":
        """Return the `result` or `error` for the request `line`; nothing where none is known."""
        answer = object_of(self._read(), _question(line))
        return answer if _reusable_outcome(answer) else {}

    def note(self, line: "bytes | bytearray", answer: "bytes | bytearray | TruncatedLine") -> None:
        """Note a daemon's `answer` to the request `line`, to be written when there is time."""
        if not isinstance(answer, TruncatedLine):
            self._unsaved.append((line, answer))

    def save(self) -> None:
        """Write what was noted and is not there yet, but for what holds at this moment only."""
        if not self._unsaved:
            return
        answers = self._read()
        is_other = False
        for line, answer in self._unsaved:
            asked, outcome = _question(line), _reusable_outcome(parse(answer) or {})
            if outcome and answers.get(asked) != outcome:
                answers.pop(asked, None)
                answers[asked] = outcome
                is_other = True
        self._unsaved.clear()
        while len(answers) > _MOST_ANSWERS:
            del answers[next(iter(answers))]
        text = encode({"version": VERSION, "answers": answers})
        try:
            if is_other and len(text) <= _MOST_BYTES:
                self._replace(text)
        except OSError:
            # A shim that can keep nothing waits for the daemon instead.
            return

    def _read(self) -> "dict[str, object]":
        try:
            fd = posix.open(self._path, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK)
        except (OSError, ValueError):
            return {}
        try:
            is_ours = posix.fstat(fd).st_uid == posix.getuid()
            kept = parse(posix.read(fd, _MOST_BYTES)) if is_ours else None
        except OSError:
            kept = None
        posix.close(fd)
        is_known = kept is not None and kept.get("version") == VERSION
        return object_of(kept or {}, "answers") if is_known else {}

    def _replace(self, text: bytes) -> None:
        make_folders(self._folder)
        path = f"{self._path}.{posix.getpid()}"
        flags = posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW
        fd = posix.open(path, flags, 0o600)
        try:
            is_whole = posix.write(fd, text) == len(text)
        finally:
            posix.close(fd)
        if is_whole:
            posix.replace(path, self._path)
        else:
            posix.unlink(path)


def _question(line: "bytes | bytearray") -> str:
    """Return method and version that a handshake asks for, as one word to keep it under."""
    method = text_of(parse(line) or {}, "method")
    params = params_of(line)
    if method == DISCOVER:
        return f"{method} {text_of(object_of(params, '_meta'), META + 'protocolVersion')}"
    return f"{method} {text_of(params, 'protocolVersion')}"


def _reusable_outcome(answer: "dict[str, object]") -> "dict[str, object]":
    """Return the part of `answer` that holds for every session; other errors pass."""
    if isinstance(answer.get("result"), dict):
        return {"result": answer["result"]}
    if object_of(answer, "error").get("code") == METHOD_NOT_FOUND:
        return {"error": answer["error"]}
    return {}
