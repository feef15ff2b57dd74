"""Fill the tables ``files`` and ``row_groups`` from summaries of footers.

Summaries are stored as JSON: a database is built from them in a small part of the time that decoding takes, and DuckDB
reads JSON faster than Python builds rows.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.metadata_db.incoming import incoming
from catalogue.parquet.summary import FileSummary, RowGroupSummary
from catalogue.store.stored_file import StoredFile

_FORM = 5
"""Version of the summaries; those of another version are derived again."""


def _struct(kinds: Mapping[str, str]) -> str:
    return f"STRUCT({', '.join(f'{name} {kind}' for name, kind in kinds.items())})"


_FILE = {
    "file_size": "BIGINT",
    "footer_size": "INTEGER",
    "etag": "VARCHAR",
    "last_modified": "VARCHAR",
    "source": "VARCHAR",
    "harvested_at": "VARCHAR",
    "num_rows": "BIGINT",
    "created_by": "VARCHAR",
    "codec": "VARCHAR",
    "column_names": "VARCHAR[]",
    "column_kinds": "VARCHAR[]",
    "utc_times": "BOOLEAN",
    "has_page_index": "BOOLEAN",
    "footer_rest": "INTEGER",
}
_ROW_GROUP = {
    "ordinal": "INTEGER",
    "num_rows": "BIGINT",
    "total_byte_size": "BIGINT",
    "total_compressed_size": "BIGINT",
    "min_key": "VARCHAR",
    "max_key": "VARCHAR",
    "bounds_from": "VARCHAR",
    "first_fetch": "BIGINT",
    "last_fetch": "BIGINT",
    "footer_offset": "INTEGER",
    "file_offset": "BIGINT",
}
_INCOMING = {
    "file": "INTEGER",
    "path": "VARCHAR",
    "crawl": "VARCHAR",
    "subset": "VARCHAR",
    "version": "BLOB",
    "found": _struct({**_FILE, "row_groups": f"{_struct(_ROW_GROUP)}[]"}),
}


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to be added."""

    number: int
    file: IndexFile
    version: bytes
    facts: StoredFile
    """See ``packed``."""


def packed(facts: FileSummary, stored: StoredFile, version: bytes) -> StoredFile:
    """Return the summary of a footer as a value for the store.

    Args:
        facts: the summary.
        stored: the file's own value.
        version: digest of that value.
    """
    known = {
        "file_size": stored.size,
        "footer_size": len(stored.data),
        "etag": stored.etag,
        "last_modified": stored.last_modified,
        "source": stored.source,
        "harvested_at": stored.fetched_at.replace(tzinfo=None).isoformat(),
    }
    found = _fields(facts) | {"row_groups": [_fields(group) for group in facts.row_groups]}
    del found["column_chunks"]
    return of_version(replace(stored, data=json.dumps(known | found).encode()), version)


def of_version(facts: StoredFile, version: bytes) -> StoredFile:
    """Return a packed summary as that of another version."""
    return replace(facts, note=_note(version))


def _fields(value: FileSummary | RowGroupSummary) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__slots__}  # asdict takes ten times as long


def are_of(note: str, version: bytes) -> bool:
    """Whether a summary with this note is of this version of a file, and of the present form."""
    return note == _note(version)


def _note(version: bytes) -> str:
    return f"{_FORM}:{version.hex()}"


def _line(new: NewFile) -> bytes:
    place = {name: getattr(new.file, name) for name in ("path", "crawl", "subset")}
    row = json.dumps({"file": new.number, "version": new.version.hex(), **place})
    return row.removesuffix("}").encode() + b', "found": ' + new.facts.data + b"}\n"


def add_files(db: duckdb.DuckDBPyConnection, files: Iterable[NewFile], folder: Path) -> None:
    """Add files; ``folder`` is for temporary files."""
    with incoming(folder, _INCOMING, map(_line, files)) as source:
        db.execute(f"CREATE OR REPLACE TEMP TABLE incoming_files AS FROM {source}")
    db.execute(
        """
        INSERT INTO derived.files BY NAME
        SELECT * EXCLUDE (row_groups, harvested_at), harvested_at::TIMESTAMP AS harvested_at, false AS column_chunks
        FROM (SELECT * EXCLUDE found, unnest(found) FROM incoming_files)
        """
    )
    db.execute(
        """
        INSERT INTO derived.row_groups BY NAME
        SELECT * RENAME (ordinal AS row_group)
        FROM (SELECT file, unnest(each) FROM (SELECT file, unnest(found.row_groups) AS each FROM incoming_files))
        """
    )
    db.execute("DROP TABLE incoming_files")
