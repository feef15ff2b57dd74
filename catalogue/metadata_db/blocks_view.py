"""Show the stored lists of blocks of the CDX index: a table of lists, and the view of their blocks."""

from typing import Any

import duckdb

from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import StoreDamaged
from catalogue.metadata_db.queries import statement
from catalogue.query.literals import literals
from catalogue.store.database import Store
from catalogue.store.stored_blocks import LISTS, crawls_with_blocks, list_file


def list_rows(store: Store) -> list[dict[str, Any]]:
    """Return the rows of ``derived.block_lists``: the lists whose files exist."""
    rows = []
    crawls = crawls_with_blocks(store)
    if crawls:
        from catalogue.cdx.block_file import block_count  # noqa: PLC0415 - imports pyarrow.compute, slowly
    for crawl in crawls:
        try:
            document = store.get("documents", LISTS + crawl)
        except StoreDamaged:
            continue
        file = list_file(store, crawl)
        if document and file.exists():
            row = {"crawl": crawl, "blocks": block_count(document.data), "file": str(file.resolve())}
            row |= {"file_size": document.size, "etag": document.etag, "source": document.source}
            rows.append(row | {"harvested_at": document.fetched_at.replace(tzinfo=None).isoformat()})
    return rows


def show_rows(db: duckdb.DuckDBPyConnection) -> None:
    """Let the view ``blocks`` read the files of ``derived.block_lists``, each of which has the rows of a crawl."""
    db.execute(statement("views/_tables.sql", COMMON_CRAWL))  # which defines it without rows
    files = [file for (file,) in db.execute("SELECT file FROM derived.block_lists ORDER BY crawl").fetchall()]
    if files:
        db.execute(statement("views/_block_files.sql", COMMON_CRAWL).replace("FILES)", f"{literals(files)})"))
