"""`secrets.env`: read again when it has changed, and refused if others can read it.

The format is that of dotenv without interpolation: a `$` in a password is a `$`.
"""

import io
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from capd_protos.secret_places import FILE_LIMIT_BYTES, KEY, refusal_of_mode


class SecretsFile:
    """The values of `secrets.env`, read again when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._values: dict[str, str] = {}
        self.problem = ""
        """Why the file or one of its lines is not used; never contains a value."""

    def __repr__(self) -> str:
        """Show no values."""
        return f"SecretsFile({str(self._path)!r})"

    def values(self) -> Mapping[str, str]:
        """Return the values in the file by key; none without a file. Each call costs one `stat`."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._take({}, "", None)
            return self._values
        except OSError as error:
            self._take({}, f"{self._path} is not used: {error.strerror}", None)
            return self._values
        # With the ctime, so that a `chmod 600` is noticed.
        seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
        if seen != self._seen:
            values, problem = self._read()
            self._take(values, problem, seen)
        return self._values

    def _take(self, values: dict[str, str], problem: str, seen: tuple[int, ...] | None) -> None:
        self._values, self.problem, self._seen = values, problem, seen

    def _read(self) -> tuple[dict[str, str], str]:
        try:
            # Non-blocking, because the path may be a pipe.
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
                status = os.fstat(fd)
                problem = refusal_of_mode(status.st_mode, status.st_uid, os.getuid())
                if not stat.S_ISREG(status.st_mode):
                    problem = "it is no regular file"
                elif status.st_size > FILE_LIMIT_BYTES:
                    problem = f"it has more than {FILE_LIMIT_BYTES} bytes"
                if problem:
                    return {}, f"{self._path} is not used: {problem}"
                text = file.read(FILE_LIMIT_BYTES).decode()
        except OSError as error:
            return {}, f"{self._path} is not used: {error.strerror}"
        except UnicodeDecodeError as error:
            return {}, f"{self._path} is not used: byte {error.start} is not UTF-8"
        return self._parsed(text)

    def _parsed(self, text: str) -> tuple[dict[str, str], str]:
        # Imported here: most users have no such file.
        from dotenv.parser import parse_stream  # noqa: PLC0415

        values: dict[str, str] = {}
        wrong: list[int] = []
        for binding in parse_stream(io.StringIO(text)):
            if binding.error or (binding.key is not None and not KEY.fullmatch(binding.key)):
                before = binding.original.string
                blank = len(before) - len(before.lstrip())
                wrong.append(binding.original.line + before[:blank].count("\n"))
            elif binding.key is not None and binding.value:
                values[binding.key] = binding.value
        if not wrong:
            return values, ""
        lines = ", ".join(str(line) for line in wrong[:5])
        return values, f"{self._path}: not KEY=value, and left out: line {lines}"
