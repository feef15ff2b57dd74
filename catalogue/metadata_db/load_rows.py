"""Add rows to a table through a temporary file of JSON, which DuckDB reads without pandas and a part at a time."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

from catalogue.atomic_files import create
from catalogue.commoncrawl.datasets import Dataset
from catalogue.metadata_db.queries import statement
from catalogue.query.literals import literal

_BUFFER = 1 << 20


def load_rows(
    db: duckdb.DuckDBPyConnection, folder: Path, name: str, dataset: Dataset, rows: Iterable[dict[str, Any]]
) -> None:
    """Run a statement of ``queries/`` with ``read_json`` options for the rows in place of ``$rows``.

    Args:
        db: the database.
        folder: for the temporary file.
        name: path of the statement.
        dataset: the dataset.
        rows: objects with the columns that the statement names.
    """
    path, longest = folder / "rows.json", 0
    with create(path, buffering=_BUFFER) as file:
        for row in rows:
            line = json.dumps(row).encode() + b"\n"
            longest = max(longest, len(line))
            file.write(line)
    # DuckDB's buffers have twice this size; by default 32 MB.
    options = f"format = 'newline_delimited', maximum_object_size = {max(longest, _BUFFER)}"
    db.execute(statement(name, dataset).replace("$rows", f"{literal(str(path))}, {options}"))
    path.unlink()
