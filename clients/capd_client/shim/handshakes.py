"""Saves the daemon's answers to handshakes, and its tool lists.

The shim uses them to answer at once while a daemon starts slowly.
"""

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
_LISTS_FILE_NAME = "tool_lists.json"
_MOST_LIST_BYTES = 1024 * 1024
_MOST_LISTS = 16


class _Answers:
    """A file of saved answers, each under the question that it answers.

    All are answers of daemons of this version.
    """

    def __init__(self, folder: str, name: str, most_bytes: int, most_answers: int) -> None:
        self._folder = folder
        self._path = join(folder, name)
        self._most_bytes = most_bytes
        self._most_answers = most_answers
        self._unsaved: list[tuple[str, bytes | bytearray]] = []

    def _find(self, question: str) -> "dict[str, object]":
        answer = object_of(self._read(), question)
        return answer if _reusable_outcome(answer) else {}

    def _note(self, question: str, answer: "bytes | bytearray | TruncatedLine") -> None:
        if not isinstance(answer, TruncatedLine):
            self._unsaved.append((question, answer))

    def save(self) -> None:
        """Write the noted answers to the file, except errors that may be temporary."""
        if not self._unsaved:
            return
        answers = self._read()
        is_other = False
        for asked, answer in self._unsaved:
            outcome = _reusable_outcome(parse(answer) or {})
            if outcome and answers.get(asked) != outcome:
                answers.pop(asked, None)
                answers[asked] = outcome
                is_other = True
        self._unsaved.clear()
        while len(answers) > self._most_answers:
            del answers[next(iter(answers))]
        text = encode({"version": VERSION, "answers": answers})
        try:
            if is_other and len(text) <= self._most_bytes:
                self._replace(text)
        except OSError:
            # Without saved answers the shim waits for the daemon.
            return

    def _read(self) -> "dict[str, object]":
        try:
            fd = posix.open(self._path, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK)
        except (OSError, ValueError):
            return {}
        try:
            is_ours = posix.fstat(fd).st_uid == posix.getuid()
            kept = parse(posix.read(fd, self._most_bytes)) if is_ours else None
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


class Handshakes(_Answers):
    """The saved answers to the last `initialize` and `server/discover`.

    An answer is used only for a request with the same MCP version. Apart from that, the answers are
    the same for every session, and contain no secret.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(folder, _FILE_NAME, _MOST_BYTES, _MOST_ANSWERS)

    def find(self, line: "bytes | bytearray") -> "dict[str, object]":
        """Return the saved `result` or `error` for the request `line`, as a dict with that member.

        It is empty if none is saved.
        """
        return self._find(_question(line))

    def note(self, line: "bytes | bytearray", answer: "bytes | bytearray | TruncatedLine") -> None:
        """Note the daemon's `answer` to the request `line`; `save` writes it."""
        self._note(_question(line), answer)


class ToolLists(_Answers):
    """The first tool list of each client's last session, by client and folder.

    Such a list has capd's own tools, pinned tools and tools of eager servers, so the client's next
    session begins with the same ones. A tool that was switched on during the conversation is not in
    it.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(folder, _LISTS_FILE_NAME, _MOST_LIST_BYTES, _MOST_LISTS)

    def find(self, client: str, folder: str) -> "dict[str, object]":
        """Return the saved `result` with tools, as a dict with that member.

        It is the list of `client` in this folder, or else of its last session. Empty if none is
        saved.
        """
        return self._find(f"{client} {folder}") or self._find(client)

    def note(self, client: str, folder: str, answer: "bytes | bytearray | TruncatedLine") -> None:
        """Note the daemon's answer to `tools/list` of `client` in `folder`; `save` writes it.

        A list that is long, or has further pages, is not noted.
        """
        if isinstance(answer, TruncatedLine):
            return
        if len(answer) < self._most_bytes // _MOST_LISTS and b'"nextCursor"' not in answer:
            self._note(f"{client} {folder}", answer)
            self._note(client, answer)


def _question(line: "bytes | bytearray") -> str:
    """Return the key under which a handshake's answer is saved: its method and its MCP version."""
    method = text_of(parse(line) or {}, "method")
    params = params_of(line)
    if method == DISCOVER:
        return f"{method} {text_of(object_of(params, '_meta'), META + 'protocolVersion')}"
    return f"{method} {text_of(params, 'protocolVersion')}"


def _reusable_outcome(answer: "dict[str, object]") -> "dict[str, object]":
    """Return the member of `answer` that is valid for every session; empty if there is none.

    A result is valid for every session, and so is the error that the daemon does not know the
    method. Any other error may be temporary.
    """
    if isinstance(answer.get("result"), dict):
        return {"result": answer["result"]}
    if object_of(answer, "error").get("code") == METHOD_NOT_FOUND:
        return {"error": answer["error"]}
    return {}
