"""Datasets of files that a test wrote."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from catalogue import Catalogue
from tests.support.catalogues import catalogue_in
from tests.support.crawls import harvest_footers

KEY = "k"


@contextmanager
def dataset_of(files: Mapping[str, bytes], *, key: str = KEY, pages: bool = False) -> Iterator[Catalogue]:
    """Yield a catalogue with the footers of files, and with their page indexes if ``pages``."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source = Path(folder) / "files"
        for name, data in files.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        with catalogue_in(Path(folder), source, table="t") as cat:
            cat.define(key, paths=list(files))
            cat.harvest_estimate()  # finds the columns of paths
            harvest_footers(cat, "t", pages=pages)
            yield cat


def scan(table: pa.Table, where: str) -> list[tuple[object, ...]]:
    """Return the rows of a table that match a condition, by DuckDB."""
    with duckdb.connect() as db:
        db.register("scanned", table)
        return sorted(db.sql(f"SELECT * FROM scanned WHERE {where}").fetchall(), key=repr)  # noqa: S608


def rows_of(found: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=repr)
