"""Synthetic crawls whose index files have footers of Common Crawl's size, and holes instead of pages.

pyarrow writes one file. Every other file is a copy with other host names of the same length, so that no offset changes.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.commoncrawl.crawls import COLLINFO, PATH_COLUMNS
from catalogue.commoncrawl.datasets import manifest_path
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo.pages import Row, Segment, captures, made_up_urls
from catalogue.parquet.model import TRAILER

CRAWL = "CC-MAIN-2022-05"
ROW_GROUPS, COLUMNS = 11, 30
"""As part-00000 of CC-MAIN-2022-05, whose footer has 58,735 bytes; the average of 25,193 files is 57 kB."""

_PLACE, _NOISE = "qzqz", "xqzxqzxq"
"""Placeholders in the hosts of the template: the number of the file, and a digest of crawl and number."""
_ROWS = 1500
_MISSING_COLUMNS = ("warc_record_id", *PATH_COLUMNS)
_INT32 = ("warc_record_offset", "warc_record_length")
_PLAIN = ("url_surtkey", "url", "url_path", "url_query", "fetch_time", "content_digest", *_INT32)


@dataclass(frozen=True, slots=True)
class Template:
    """The end of an index file, used to generate the ends of all others."""

    hole: int
    """Bytes of pages before the end."""
    end: bytes
    """Page indexes, footer, its length and the magic."""
    footer_length: int

    @property
    def footer(self) -> bytes:
        """Footer, without length and magic."""
        return self.end[-TRAILER - self.footer_length : -TRAILER]

    @property
    def size(self) -> int:
        """Bytes of each file."""
        return self.hole + len(self.end)

    def end_of(self, crawl: str, number: int) -> bytes:
        """Return the end of one file. Keys ascend with the number and are similar in all crawls."""
        return put_names(self.end, crawl, number)

    def footer_of(self, crawl: str, number: int) -> bytes:
        """Return the footer of one file, as in the store."""
        return put_names(self.footer, crawl, number)


def put_names(data: bytes, crawl: str, number: int) -> bytes:
    """Replace the placeholders in bytes of the template by the names of one file."""
    noise = hashlib.blake2b(f"{crawl} {number}".encode(), digest_size=4).hexdigest()
    return data.replace(_PLACE.encode(), f"{number:04}".encode()).replace(_NOISE.encode(), noise.encode())


def path_of(crawl: str, number: int) -> str:
    """Return the path of an index file."""
    job = UUID(bytes=hashlib.blake2b(crawl.encode(), digest_size=16).digest(), version=4)
    folder = f"cc-index/table/cc-main/warc/crawl={crawl}/subset=warc"
    return f"{folder}/part-{number:05}-{job}.c000.gz.parquet"


def domain_in(number: int) -> str:
    """Return a domain in the key range of each crawl's file with this number."""
    return f"{number:04}04nimbus.com"


def manifest(crawl: str, files: int) -> bytes:
    """Return the list of a crawl's index files, compressed."""
    return gzip.compress("".join(f"{path_of(crawl, number)}\n" for number in range(files)).encode())


def crawl_list(crawls: Sequence[str], first: str = "2022-01-16T09:31:37", last: str = "2022-01-29T15:03:27") -> bytes:
    """Return ``collinfo.json`` for these crawls, with the times of their first and last captures."""
    times = {"from": first, "to": last}
    return json.dumps([{"id": crawl, "name": f"Index of {crawl}", **times} for crawl in crawls]).encode()


def write_lists(folder: Path, crawl: str, files: int) -> None:
    """Write the list of crawls and the manifest into a folder."""
    for path, data in {COLLINFO: crawl_list([crawl]), manifest_path(crawl): manifest(crawl, files)}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def write_crawl(folder: Path, template: Template, files: int, *, crawl: str = CRAWL) -> None:
    """Write a crawl into a folder: the list of crawls, the manifest, and index files with holes."""
    write_lists(folder, crawl, files)
    (folder / path_of(crawl, 0)).parent.mkdir(parents=True)
    for number in range(files):
        with (folder / path_of(crawl, number)).open("wb") as file:
            file.write(b"PAR1")
            file.seek(template.hole)
            file.write(template.end_of(crawl, number))


@cache
def make_template(*, page_rows: int = 20_000) -> Template:
    """Generate the template; takes some seconds.

    Args:
        page_rows: rows of a page. By default each column chunk is a single page.
    """
    buffer = BytesIO()
    schema = _schema()
    start = datetime(2022, 1, 16, 9, 31, 37, tzinfo=UTC)
    segments = [Segment(CRAWL, number, start + timedelta(hours=4 * number)) for number in range(80)]
    with pq.ParquetWriter(
        buffer,
        schema,
        version="1.0",
        store_schema=False,
        compression="gzip",
        use_dictionary=[name for name in schema.names if name not in _PLAIN],
        write_page_index=True,
        write_page_checksum=True,
        max_rows_per_page=page_rows,
        write_batch_size=min(page_rows, 1024),
    ) as writer:
        for group in range(ROW_GROUPS):
            rng = Random(group)
            rows = [_with_offsets(rng, row) for row in _captures(rng, group, segments)]
            table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["url_surtkey"]), schema)
            writer.write_table(table, row_group_size=len(rows))
    data = buffer.getvalue()
    length = int.from_bytes(data[-TRAILER:-4], "little")
    metadata = pq.read_metadata(pa.BufferReader(data))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    pages_end = max(
        (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
        for chunk in (group.column(number) for group in groups for number in range(group.num_columns))
    )
    return Template(pages_end, data[pages_end:], length)


def _schema() -> pa.Schema:
    fields = [
        pa.field(column.name, pa.int32() if column.name in _INT32 else column.type)
        for column in SCHEMA
        if column.name not in _MISSING_COLUMNS
    ]
    # Spark writes the schema a second time, as JSON.
    described = [{"name": f.name, "type": "string", "nullable": True, "metadata": {}} for f in fields]
    spark = {
        "org.apache.spark.version": "3.2.1",
        "org.apache.spark.sql.parquet.row.metadata": json.dumps({"type": "struct", "fields": described}),
    }
    return pa.schema(fields, metadata=spark)


def _captures(rng: Random, group: int, segments: Sequence[Segment]) -> list[Row]:
    """Generate captures of a row group: distinct domains; hosts, paths and queries of usual lengths."""
    urls = []
    for url in made_up_urls(rng, _ROWS + 37 * group):
        scheme, _, rest = url.partition("://")
        host, _, path = rest.partition("/")
        name = re.sub("[^a-z]", "", host)[:14]
        labels = rng.choices(("www.", "", "blog.", "static.cdn.", "en.shop.cdn."), (40, 30, 20, 6, 4))[0]
        port = rng.choices(("", ":8080", ":8443"), (98, 1, 1))[0]
        folders = f"{rng.getrandbits(40):x}/{rng.choice(('archive', 'category', 'products', 'thread'))}"
        if rng.random() < 0.05:  # in a real row group, the minimum and maximum of paths and queries are long
            folders = f"~{rng.getrandbits(1000):x}"
            path += f"{'&' if '?' in path else '?'}{rng.choice(('%2B', 'zone'))}={rng.getrandbits(1000):x}"
        urls.append(f"{scheme}://{labels}{_PLACE}{group:02}{name}{_NOISE}.com{port}/{folders}/{path}")
    return list(captures(rng, segments, "warc", urls, twice=True))


def _with_offsets(rng: Random, values: Row) -> Row:
    return values | {"warc_record_offset": rng.randrange(1 << 30), "warc_record_length": rng.randrange(400, 60_000)}
