"""Fill the tables ``files`` and ``row_groups`` from summaries of footers.

Summaries are stored as JSON: a database is built from them in a small part of the time that decoding takes, and DuckDB
reads JSON faster than Python builds rows, in particular one list for each field of the row groups.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.metadata_db.incoming import incoming
from catalogue.parquet.summary import FileSummary
from catalogue.store.stored_file import StoredFile, with_note

if TYPE_CHECKING:
    import duckdb

_FORM = 6
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
    "column_names": "VARCHAR",  # JSON: as texts, equal lists are compared and joined faster
    "column_kinds": "VARCHAR",
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
    "found": _struct({**_FILE, "row_groups": _struct({name: f"{kind}[]" for name, kind in _ROW_GROUP.items()})}),
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
    found = {name: getattr(facts, name) for name in facts.__slots__}  # asdict takes ten times as long
    found["row_groups"] = {name: [getattr(group, name) for group in facts.row_groups] for name in _ROW_GROUP}
    del found["column_chunks"]
    data = json.dumps(known | found, separators=(",", ":")).encode()
    return replace(stored, data=data, note=_note(version))


def of_version(summary: bytes, version: bytes) -> bytes:
    """Return an encoded summary as that of another version."""
    return with_note(summary, _note(version))


def are_of(note: str, version: bytes) -> bool:
    """Whether a summary with this note is of this version of a file, and of the present form."""
    return note == _note(version)


def _note(version: bytes) -> str:
    return f"{_FORM}:{version.hex()}"


def _line(new: NewFile) -> bytes:
    path, crawl, subset = map(json.dumps, (new.file.path, new.file.crawl, new.file.subset))
    place = (
        f'"file": {new.number}, "version": "{new.version.hex()}", "path": {path}, "crawl": {crawl}, "subset": {subset}'
    )
    return b'{%b, "found": %b}\n' % (place.encode(), new.facts.data)


def add_files(db: "duckdb.DuckDBPyConnection", files: Iterable[NewFile], folder: Path) -> None:
    """Add files; ``folder`` is for temporary files."""
    with incoming(folder, _INCOMING, map(_line, files)) as source:
        db.execute(f"CREATE OR REPLACE TEMP TABLE incoming_files AS FROM {source}")
    db.execute(
        """
        CREATE OR REPLACE TEMP TABLE incoming_columns AS
        SELECT
          *, from_json(names, '["VARCHAR"]') AS column_names, from_json(kinds, '["VARCHAR"]') AS column_kinds
        FROM (
          SELECT found.column_names AS names, found.column_kinds AS kinds, min(file) AS first
          FROM incoming_files GROUP BY ALL
        )
        """
    )
    db.execute(
        """
        INSERT INTO derived.columns BY NAME
        SELECT
          (SELECT count(*) FROM derived.columns) + row_number() OVER (ORDER BY first) - 1 AS columns,
          column_names, column_kinds
        FROM incoming_columns ANTI JOIN derived.columns USING (column_names, column_kinds)
        """
    )
    fields = ", ".join(f"found.{name}" for name in _FILE.keys() - {"harvested_at", "column_names", "column_kinds"})
    db.execute(
        f"""
        INSERT INTO derived.files BY NAME
        SELECT
          file, path, crawl, subset, version, {fields}, found.harvested_at::TIMESTAMP AS harvested_at, columns,
          false AS column_chunks
        FROM incoming_files
        JOIN incoming_columns ON names = found.column_names AND kinds = found.column_kinds
        JOIN derived.columns USING (column_names, column_kinds)
        """  # noqa: S608 - names of fields
    )
    row_groups = ", ".join(f"unnest(found.row_groups.{name}) AS {name}" for name in _ROW_GROUP)
    db.execute(
        f"""
        INSERT INTO derived.row_groups BY NAME
        SELECT * RENAME (ordinal AS row_group) FROM (SELECT file, {row_groups} FROM incoming_files)
        """  # noqa: S608 - names of fields
    )
    db.execute("DROP TABLE incoming_files")
    db.execute("DROP TABLE incoming_columns")
