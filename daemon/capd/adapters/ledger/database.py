"""The SQLite file of the ledger, which records calls and decisions (docs/records.md).

Every method blocks, and only one thread may use the file at a time. A *note* is one record, a row
of one table.

WAL with `synchronous=NORMAL`: a crash of the machine may lose the newest notes, but never damages
the file. A file that is damaged or of another version is renamed, and a new one is started.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from capd.adapters.ledger import schema
from capd.core.records.retention import Retention
from capd_protos import ledger as messages
from capd_protos.places import make_folders

log = structlog.get_logger(actor="ledger")

T = TypeVar("T")

_BESIDE = ("", "-wal", "-shm")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_CACHE_KIB = 256
_KEPT_ASIDE = 2
"""How many damaged files are kept for inspection."""


class Database:
    """The ledger's file at `path`, opened at the first use, and again after an error."""

    def __init__(self, path: Path, retention: Retention) -> None:
        self.path = path
        self._retention = retention
        self._connection: sqlite3.Connection | None = None
        self._inodes: list[tuple[int, int] | None] = []
        """The devices and inodes of the open file and of its WAL and shm files."""

    def add(self, notes: Sequence[messages.Note]) -> None:
        """Write notes, all or none of them.

        Raises:
            sqlite3.Error, OSError: the disk is full or fails; no note is written.
        """
        rows: dict[type[messages.Note], list[tuple[Any, ...]]] = {}
        for note in notes:
            rows.setdefault(type(note), []).append(schema.row(note))

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                for kind, values in rows.items():
                    connection.executemany(schema.insertion(kind), values)

        self._tried(write)

    def prune(self, now: float) -> None:
        """Remove notes that are too old at the time `now`.

        If the file is too large, also remove a share of the oldest notes of each table.
        """

        def remove(connection: sqlite3.Connection) -> None:
            since = self._retention.keep_since(now)
            share = self._retention.share_to_drop(self._used_bytes(connection))
            with connection:
                for table in schema.TABLES.values():
                    # The table's name is a constant, so the statement contains no foreign text.
                    connection.execute(f"DELETE FROM {table} WHERE at < ?", (since,))  # noqa: S608
                    if share:
                        connection.execute(
                            f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} "  # noqa: S608
                            f"ORDER BY at LIMIT (SELECT CAST(count(*) * ? AS INT) FROM {table}))",
                            (share,),
                        )
            # As a script, because the pragma frees one page per step and `execute` steps once.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

        self._tried(remove)

    def uses(self, since: float) -> list[messages.Use]:
        """Return how often each tool was called with success since `since`, most used first."""
        rows = self._rows(
            "SELECT identity, tool, count(*), max(at) FROM calls WHERE at >= ? "
            "AND outcome = 'result' GROUP BY identity, tool ORDER BY count(*) DESC, max(at) DESC",
            (since,),
        )
        return schema.read(messages.Use, rows)

    def sums(self, since: float) -> list[messages.CapabilityCalls]:
        """Return, for each capability, sums over its calls since the time `since`.

        Calls that capd refused do not count.
        """
        rows = self._rows(
            "SELECT coalesce(granted.value, ''), count(*), sum(outcome = 'result'), avg(ms), "
            "sum(bytes_out), max(at) FROM calls LEFT JOIN json_each(calls.capabilities) AS granted "
            # Calls that capd refused did not reach the server.
            "WHERE at >= ? AND outcome != 'refused' GROUP BY granted.value "
            "ORDER BY count(*) DESC, granted.value",
            (since,),
        )
        return schema.read(messages.CapabilityCalls, rows)

    def decisions(self, limit: int, session: str) -> list[messages.DecisionNote]:
        """Return the `limit` newest decisions of a session; of all if `session` is empty."""
        return schema.read(messages.DecisionNote, self._newest("decisions", limit, session))

    def activations(self, limit: int, session: str) -> list[messages.ActivationNote]:
        """Return the `limit` newest activations of a session; of all if `session` is empty."""
        return schema.read(messages.ActivationNote, self._newest("activations", limit, session))

    def scripts(self, limit: int, session: str) -> list[messages.ScriptNote]:
        """Return the `limit` newest scripts of a session; of all if `session` is empty."""
        return schema.read(messages.ScriptNote, self._newest("scripts", limit, session))

    def counts(self) -> tuple[int, dict[str, int]]:
        """Return the size of the file in bytes, and the number of rows in each table."""

        def look(connection: sqlite3.Connection) -> tuple[int, dict[str, int]]:
            # Row ids instead of count(*), which reads every page: rows are added at one end of a
            # table and removed at the other.
            rows = {
                table: int(
                    connection.execute(
                        f"SELECT coalesce((SELECT max(rowid) FROM {table}) "  # noqa: S608
                        f"- (SELECT min(rowid) FROM {table}) + 1, 0)"
                    ).fetchone()[0]
                )
                for table in schema.TABLES.values()
            }
            return self._size(), rows

        return self._tried(look)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _newest(self, table: str, limit: int, session: str) -> list[tuple[Any, ...]]:
        return self._rows(
            f"SELECT * FROM {table} WHERE ? IN ('', session) ORDER BY at DESC, rowid DESC LIMIT ?",  # noqa: S608 - the table's name is ours
            (session, limit),
        )

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._tried(lambda connection: connection.execute(query, values).fetchall())

    def _tried(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `act`, which is called with the open database.

        If the file is damaged, start a new one and call `act` again.
        """
        try:
            return act(self._opened())
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            self.close()
            if not _is_damage(error):
                raise
            self._set_aside(str(error))
            return act(self._opened())

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and _inode(self.path) != self._inodes[0]:
            self._leave_removed()
        if self._connection is None:
            self._connection = self._open()
            self._inodes = [_inode(each) for each in self._files()]
        return self._connection

    def _leave_removed(self) -> None:
        """Close a file that a person has removed or replaced, which SQLite does not notice.

        The old file's WAL and shm files are removed, because SQLite would apply them to the new
        file.
        """
        self.close()
        for file, inode in list(zip(self._files(), self._inodes, strict=True))[1:]:
            if _inode(file) == inode:
                file.unlink(missing_ok=True)
        log.warning("ledger_removed", reason=f"{self.path} is not the file that was open")

    def _open(self) -> sqlite3.Connection:
        make_folders(self.path.parent)
        # Created first with mode 0600; SQLite gives the WAL and shm files the same mode.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(self.path, timeout=2.0, check_same_thread=False)
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, why: str) -> None:
        name = f"{self.path.name}.damaged-{time.time_ns() // 1_000_000}"
        for end in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.path}{end}").replace(self.path.with_name(name + end))
        aside = sorted(self.path.parent.glob(f"{self.path.name}.damaged-*[0-9]"))
        for old in aside[:-_KEPT_ASIDE]:
            for end in _BESIDE:
                Path(f"{old}{end}").unlink(missing_ok=True)
        log.error("ledger_set_aside", reason=why, kept_as=name)

    def _size(self) -> int:
        return sum(file.stat().st_size for file in self._files() if file.exists())

    def _files(self) -> list[Path]:
        return [Path(f"{self.path}{end}") for end in _BESIDE]

    @staticmethod
    def _used_bytes(connection: sqlite3.Connection) -> int:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        return int((pages - free) * connection.execute("PRAGMA page_size").fetchone()[0])


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _UnusableError(sqlite3.DatabaseError):
    """The file is not a ledger of this version, or failed its check."""


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty file; check any other file.

    Raises:
        _UnusableError: the file is not a ledger of this version, or is damaged.
    """
    # A small page cache instead of the default 2 MB, because notes are seldom read.
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        with connection:
            for statement in schema.statements():
                connection.execute(statement)
    elif version != schema.VERSION:
        raise _UnusableError(f"it is of version {version}, not {schema.VERSION}")
    connection.execute("PRAGMA synchronous = NORMAL")
    # A damaged page may contain invalid UTF-8.
    connection.text_factory = lambda text: text.decode(errors="replace")
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _UnusableError(str(found))
    with connection:
        for statement in schema.added():
            connection.execute(statement)


def _is_damage(error: sqlite3.DatabaseError | UnicodeDecodeError) -> bool:
    # A UnicodeDecodeError too: SQLite's error may quote bytes of a damaged file.
    if isinstance(error, _UnusableError | UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _DAMAGED:
        return True
    # A missing table or column means that the file is not ours, despite its version.
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith(
        ("no such table", "no such column", "table ")
    )
