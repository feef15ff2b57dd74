"""Show the column chunks of a crawl, from the footers of its files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from catalogue.commoncrawl.datasets import Dataset
from catalogue.metadata_db.load_rows import load_rows
from catalogue.parquet.model import Bounds
from catalogue.tables.file_metadata import FileMetadata
from catalogue.tables.stored_crawls import StoredCrawls


def show_column_chunks(
    db: duckdb.DuckDBPyConnection, folder: Path, crawls: StoredCrawls, dataset: Dataset, crawl: str
) -> None:
    """Add the column chunks of all stored files of a crawl; ``folder`` is for a temporary file."""
    rows = (row for file in crawls.files(crawl) for row in _rows(file))
    load_rows(db, folder, "views/_load_column_chunks.sql", dataset, rows)


def _rows(file: FileMetadata) -> Iterator[dict[str, Any]]:
    for group in file.footer.row_groups:
        for name, chunk in group.chunks.items():
            is_text = chunk.column.physical_type == "BYTE_ARRAY"
            bounds: Bounds | None = chunk.bounds if is_text else None
            yield {
                "path": file.path,
                "crawl": file.file.crawl,
                "subset": file.file.subset,
                "row_group": group.ordinal,
                "column_name": name,
                "physical_type": chunk.column.physical_type,
                "codec": chunk.codec_name,
                "num_values": chunk.num_values,
                "null_count": chunk.null_count,
                "file_offset": chunk.range.start,
                "total_compressed_size": len(chunk.range),
                "total_uncompressed_size": chunk.total_uncompressed_size,
                "min": bounds and bounds.min.decode(),
                "max": bounds and bounds.max.decode(),
                "has_page_index": bool(chunk.column_index and chunk.offset_index),
            }
