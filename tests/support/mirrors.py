"""The index files of a mirror (see the fixture ``mirror``) and their footers."""

from collections.abc import Sequence
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.commoncrawl.datasets import index_file
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.parquet.footer import decode_footer, footer_length
from catalogue.parquet.model import TRAILER, Footer


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def index_paths(mirror: Path) -> list[Path]:
    return sorted(mirror.glob("cc-index/table/cc-main/warc/crawl=*/subset=*/*.parquet"))


def crawl_of(path: Path) -> str:
    return path.parent.parent.name.removeprefix("crawl=")


def one_of_each_crawl(mirror: Path) -> list[Path]:
    return list({crawl_of(path): path for path in reversed(index_paths(mirror))}.values())


def raw_footer(data: bytes) -> bytes:
    return data[-TRAILER - footer_length(data) : -TRAILER]


def read_footer(data: bytes) -> Footer:
    return decode_footer(raw_footer(data), len(data))


def whole_table(mirror: Path, names: Sequence[str] = SCHEMA.names) -> pa.Table:
    """Every row of every index file, read by pyarrow alone; reading all columns takes long."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    tables = []
    for path in sorted(mirror.rglob("*.parquet")):
        file = index_file(str(path.relative_to(mirror)))
        assert file
        opened = pq.ParquetFile(path)
        table = opened.read([name for name in names if name in opened.schema_arrow.names])
        columns: dict[str, pa.Array] = {}
        for field in schema:
            if field.name in {"crawl", "subset"}:
                columns[field.name] = pa.array([getattr(file, field.name)] * len(table), pa.string())
            elif field.name in table.column_names:
                column = table.column(field.name)
                if pa.types.is_timestamp(column.type):
                    column = column.cast(pa.timestamp("ms"), safe=False)
                columns[field.name] = column.cast(field.type)
            else:
                columns[field.name] = pa.nulls(len(table), field.type)
        tables.append(pa.table(columns, schema=schema))
    return pa.concat_tables(tables)


def copy_crawl(mirror: Path, crawl: str, folder: Path) -> Path:
    """Copy the columnar index and the CDX index of a crawl."""
    for path in (f"cc-index/table/cc-main/warc/crawl={crawl}", f"cc-index/collections/{crawl}"):
        copytree(mirror / path, folder / path)
    for file in [mirror / "collinfo.json", *(mirror / "crawl-data" / crawl).glob("*.paths.gz")]:
        there = folder / file.relative_to(mirror)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(file.read_bytes())
    return folder
