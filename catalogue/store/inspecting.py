"""What is wrong with a store's file, as far as that itself can tell; nothing is changed.

SQLite's integrity check sees damage to pages and keys, and none to values; their digests see that, and none of these.
What neither sees are the notes of what changed when, which are compared with each other.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalogue.errors import StoreDamaged
from catalogue.store.read_only import open_to_read
from catalogue.store.schema import APPLICATION_ID, COUNTERS, TABLES, VERSION, check_header, disk_errors, is_ours, number
from catalogue.store.stored_file import Label, label_of, version_of

_MAGIC = b"SQLite format 3\0"
_JOURNALS = (b"\x01\x01", b"\x02\x02")
"""Of a rollback journal, which sqlitedict may have set, and of a write-ahead log."""
_KINDS = ", ".join(f"'{table}'" for table in COUNTERS)
_NOTES = {
    f"SELECT count(*) FROM touched WHERE kind NOT IN ({_KINDS}) OR typeof(key) <> 'text'": (  # noqa: S608 - of TABLES
        "what changed has no name"
    ),
    "SELECT count(*) FROM touched, identity WHERE typeof(change) <> 'integer' OR change NOT BETWEEN 0 AND "
    "1 + iif(kind = 'indexes', index_changes, changes)": "something changed at a time that has not come",
    **{
        f"SELECT count(*) FROM \"{table}\" WHERE key NOT IN (SELECT key FROM touched WHERE kind = '{table}')": (  # noqa: S608 - of TABLES
            f"it is not noted when some of {table} changed"
        )
        for table in COUNTERS
    },
    **{
        f"SELECT iif(count(*) = 1 + max(change) - min(change) AND max(change) = (SELECT {counter} FROM identity) "  # noqa: S608 - one of two
        f"AND count(*) = sum(typeof(token) = 'text'), 0, 1) FROM history WHERE counter = '{counter}'": (
            f"the history of {counter} has gaps"
        )
        for counter in sorted(set(COUNTERS.values()))
    },
    "SELECT count(*) FROM history WHERE counter NOT IN ('changes', 'index_changes')": "the history is of others",
    "SELECT count(*) <> 1 OR sum(typeof(id) = 'text') <> 1 FROM identity": "it does not say which store it is",
}
"""What must find nothing, and what it means if it does."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A value that was looked at."""

    key: str
    size: int
    """Bytes, as it stands there."""
    digest: bytes
    """As it stands there."""
    label: Label | None
    """None of one that is not what was written."""


class Inspection:
    """A store's file as it was at one moment, whatever is written meanwhile."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Take a connection to the store's file that can only read."""
        self._connection = connection
        self._path = path

    def begin(self) -> None:
        """Take the moment, or fail as the others do."""
        with disk_errors(self._path):
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()

    def wrong(self) -> str | None:
        """What is wrong with the file, apart from values; None if nothing is.

        Raises:
            StoreError: if it is something else than a store, or one of a newer version.
            DiskFailed: if it cannot be read.
        """
        head = _head(self._path)
        if head[:16] != _MAGIC or head[18:20] not in _JOURNALS:
            return "its header is damaged"
        try:
            self.begin()
            with disk_errors(self._path):
                return self._wrong()
        except StoreDamaged as error:
            return str(error.__cause__)

    def _wrong(self) -> str | None:
        run = self._connection.execute
        if not is_ours(self._connection, alone=False):
            check_header(self._connection, self._path)
            return "its layout is not that of a store"
        if number(self._connection, "PRAGMA application_id") != APPLICATION_ID:
            return "its header is damaged: it does not say that it is a store"
        if (version := number(self._connection, "PRAGMA user_version")) != VERSION:
            return f"its header is damaged: it claims to be of version {version}, and has all that is of {VERSION}"
        found = [str(text) for (text,) in run("PRAGMA integrity_check(10)").fetchall()]
        if found != ["ok"]:
            more = f" (and {len(found) - 1} more)" if found[1:] else ""
            return " ".join(found[0].split())[:300] + more
        return next((meaning for query, meaning in _NOTES.items() if number(self._connection, query)), None)

    def sizes(self) -> dict[str, int]:
        """How many values each table has.

        Raises:
            StoreDamaged: if that cannot be read.
        """
        with disk_errors(self._path):
            return {table: number(self._connection, f'SELECT count(*) FROM "{table}"') for table in TABLES}  # noqa: S608 - of TABLES

    def values(self, table: str) -> Iterator[Seen]:
        """The values of a table, each looked at, in the order in which they lie in the file.

        Raises:
            StoreDamaged: where they cannot be read on.
        """
        with disk_errors(self._path):
            for key, value in self._connection.execute(f'SELECT key, value FROM "{table}"'):  # noqa: S608 - of TABLES
                whole = isinstance(value, bytes)
                yield Seen(
                    str(key),
                    len(value) if whole else 0,
                    version_of(value) if whole else b"",
                    label_of(value) if isinstance(key, str) and key.isprintable() else None,
                )


@contextmanager
def inspected(path: Path) -> Iterator[Inspection]:
    """A store's file, to be looked at.

    Raises:
        DiskFailed: if it cannot be read.
    """
    with disk_errors(path):
        connection = open_to_read(path)[0]
    # What is damaged may be no text; then it is shown with marks in it.
    connection.text_factory = lambda text: text.decode(errors="replace")
    with closing(connection):
        yield Inspection(connection, path)


def _head(path: Path) -> bytes:
    with disk_errors(path), path.open("rb") as file:
        return file.read(100)
