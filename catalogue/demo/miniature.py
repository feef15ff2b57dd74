"""A miniature of https://data.commoncrawl.org/: the same paths, columns and traps, but few pages.

Three crawls represent three eras of the columnar index (commoncrawl/cc-index-table):

``CC-MAIN-2018-05``
    25 columns, INT96 times, no page index, subset ``warc`` alone. Each file is two sorted streams zipped together, so
    that its row groups overlap. Every second file has no statistics of ``url_surtkey``; in the others one row group
    has none, because of a key that is too long.
``CC-MAIN-2022-05``
    30 columns, gzip, page indexes and page checksums, all subsets, sorted.
``CC-MAIN-2026-30``
    31 columns (``warc_record_id``), zstd, and a manifest that names a directory as well. A quarter as large.

The WARC files of the two newer crawls are included, with every record at the place in its row.
"""

import json
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urljoin
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.cdx.cluster import index_folder, list_path, shards_path
from catalogue.cdx.lines import lines_of
from catalogue.commoncrawl.crawls import COLLINFO, KEY_COLUMN, PATH_COLUMNS
from catalogue.commoncrawl.datasets import manifest_path
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo import pages
from catalogue.demo.pages import TRAPS, Row, Segment, captures, made_up_urls, write_warc

_BLOCK_LINES = 60
"""Common Crawl's blocks have 3,000 lines."""
_SHARDS = 3


def cdx_files(crawl: str, rows: Sequence[Row], missing: Collection[str]) -> dict[str, bytes]:
    """Return the files of the CDX index by path; lines do not have the columns ``missing``."""
    schema = pa.schema([field for field in SCHEMA if field.name not in missing])
    (batch,) = pa.Table.from_pylist([*rows], schema).combine_chunks().to_batches()
    lines = sorted({line.encode() for line in lines_of(batch)})
    files: dict[str, bytes] = {}
    listed: list[bytes] = []
    for shard, of_shard in enumerate(_pieces(lines, -(-len(lines) // _SHARDS))):
        name, data = f"cdx-{shard:05}.gz", b""
        for of_block in _pieces(of_shard, _BLOCK_LINES):
            block = zlib.compress(b"".join(line + b"\n" for line in of_block), 6, 31)
            first = b" ".join(of_block[0].split(b" ", 2)[:2])
            place = f"\t{name}\t{len(data)}\t{len(block)}\t{len(listed) + 1}\n"
            listed.append(first + place.encode())
            data += block
        files[f"{index_folder(crawl)}/{name}"] = data
    files[list_path(crawl)] = b"".join(listed)
    names = "".join(f"{path}\n" for path in files).encode()
    return files | {shards_path(crawl): zlib.compress(names, wbits=31)}


def _pieces(lines: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [lines[start : start + size] for start in range(0, len(lines), size)]


_FEWEST_PAGES = 1000
"""The traps would be most of a smaller crawl."""

_ROW_GROUP = 190
"""Common Crawl's row groups have a million rows."""

_REQUIRED = (
    *("url_surtkey", "url", "url_host_name", "url_protocol", "url_path"),
    *("fetch_time", "fetch_status", "warc_filename", "warc_record_offset", "warc_record_length"),
    *("warc_segment",),
)

_PLAIN = (
    *("url_surtkey", "url", "url_path", "url_query", "fetch_time"),
    *("content_digest", "warc_record_id", "warc_record_offset", "warc_record_length"),
)
"""Columns with too many values for a dictionary."""


@dataclass(frozen=True, slots=True)
class Miniature:
    """What was written."""

    folder: Path
    crawls: tuple[str, ...]
    """Crawls with a columnar index, newest first; ``collinfo.json`` lists an older one as well."""
    files: tuple[str, ...]
    """Relative to the folder, sorted."""
    rows: int


@dataclass(frozen=True, slots=True)
class _Era:
    crawl: str
    name: str
    start: datetime
    files: dict[str, int]  # index files of each subset
    size: float  # rows, as a share of ``pages_per_crawl``
    options: dict[str, Any]  # of pyarrow's writer
    missing: tuple[str, ...]  # columns that were added later
    old: bool = False  # INT96 times, zipped streams, gaps in the statistics
    escapes_twice: bool = True  # what is not UTF-8, in keys


_ALL = {"warc": 7, "crawldiagnostics": 2, "robotstxt": 2}
_FEW = {"warc": 3, "crawldiagnostics": 1, "robotstxt": 1}
_PAGE_INDEX = {"write_page_index": True, "write_page_checksum": True}
_ZSTD: dict[str, Any] = {"compression": "zstd", "compression_level": 19, **_PAGE_INDEX}
_GZIP: dict[str, Any] = {"compression": "gzip", **_PAGE_INDEX}
_INT96: dict[str, Any] = {"compression": "gzip", "use_deprecated_int96_timestamps": True}
_NOT_IN_2018 = (
    *("url_host_name_reversed", "fetch_redirect", "content_charset", "content_languages", "content_truncated"),
    "warc_record_id",
)
_NEWEST = datetime(2026, 7, 10, 3, tzinfo=UTC)
_MODERN = datetime(2022, 1, 16, 9, 31, 37, tzinfo=UTC)
_OLD = datetime(2018, 1, 16, 7, 5, tzinfo=UTC)
_ERAS = (
    _Era("CC-MAIN-2026-30", "July 2026 Index", _NEWEST, _FEW, 0.25, _ZSTD, (), escapes_twice=False),
    _Era("CC-MAIN-2022-05", "January 2022 Index", _MODERN, _ALL, 1.0, _GZIP, ("warc_record_id",)),
    _Era("CC-MAIN-2018-05", "January 2018 Index", _OLD, {"warc": 5}, 1.0, _INT96, _NOT_IN_2018, old=True),
)
_LONG = "https://zz-madeup.co.uk/all?of=" + "them-" * 900
"""The last URL in key order, longer than the 4,096 bytes that statistics may have."""


def stored_miniature(cache: Path) -> Path:
    """Return the folder of a miniature that is kept in the cache; the first use writes it."""
    made_by = b"".join(Path(module).read_bytes() for module in (__file__, pages.__file__))
    folder = cache / f"demo-{zlib.crc32(made_by):08x}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache, prefix="demo-") as made:
            miniature = Path(made) / "mirror"
            write_miniature(miniature)
            with suppress(OSError):  # of a process that was faster
                miniature.rename(folder)
    return folder


def write_miniature(folder: Path, *, seed: int = 1, pages_per_crawl: int = 6000) -> Miniature:
    """Write a miniature of data.commoncrawl.org into a folder, whose other files stay.

    The same arguments and the same pyarrow give the same bytes. The two larger crawls have ``pages_per_crawl`` rows
    each, 1,000 or more.
    """
    if pages_per_crawl < _FEWEST_PAGES:
        raise ValueError(f"a miniature needs {_FEWEST_PAGES} pages or more, not {pages_per_crawl}")
    urls = made_up_urls(Random(f"{seed} URLs"), pages_per_crawl)  # noqa: S311
    files: dict[str, bytes] = {}
    listed: list[dict[str, str]] = []
    rows = 0
    for era in _ERAS:
        rng = Random(f"{seed} {era.crawl}")  # noqa: S311
        subsets = _fetch(era, rng, urls, int(pages_per_crawl * era.size), files)
        job = UUID(bytes=rng.randbytes(16), version=4)
        parts = dict(chain.from_iterable(_parts(era, rng, job, subset, found) for subset, found in subsets.items()))
        rows += sum(map(len, subsets.values()))
        times = [row["fetch_time"] for row in chain(*subsets.values())]
        listed.append(_listing(era.crawl, era.name, min(times), max(times)))
        lines = sorted(parts) if era.escapes_twice else [next(iter(parts)).partition("subset=")[0], *sorted(parts)]
        files |= parts
        files |= cdx_files(era.crawl, [*chain(*subsets.values())], era.missing)
        files[manifest_path(era.crawl)] = zlib.compress("".join(f"{line}\n" for line in lines).encode(), wbits=31)
    first, last = datetime(2012, 1, 27, tzinfo=UTC), datetime(2012, 6, 30, tzinfo=UTC)
    listed.append(_listing("CC-MAIN-2012", "Index of 2012 ARC files", first, last))  # without a columnar index
    files[COLLINFO] = json.dumps(listed, indent=2).encode()
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return Miniature(folder, tuple(era.crawl for era in _ERAS), tuple(sorted(files)), rows)


def _fetch(era: _Era, rng: Random, urls: Sequence[str], count: int, files: dict[str, bytes]) -> dict[str, list[Row]]:
    segments = [Segment(era.crawl, number, era.start + timedelta(hours=53 * number)) for number in range(5)]
    subsets = {}
    for subset, urls_of_subset in _urls_by_subset(era, rng, urls, max(_FEWEST_PAGES, count)).items():
        rows = list(captures(rng, segments, subset, urls_of_subset, twice=era.escapes_twice))
        if era.old:
            for row in rows:
                row["warc_record_offset"], row["warc_record_length"] = (
                    rng.randrange(1 << 30),
                    rng.randrange(400, 30_000),
                )
        else:
            for segment in segments:
                path = segment.warc_path(subset)
                files[path] = write_warc(rng, segment, subset, [row for row in rows if row["warc_filename"] == path])
        subsets[subset] = sorted(rows, key=lambda row: (row[KEY_COLUMN], row["fetch_time"]))
    return subsets


def _urls_by_subset(era: _Era, rng: Random, urls: Sequence[str], count: int) -> dict[str, list[str]]:
    by_subset: dict[str, list[str]] = {"warc": []}
    for subset, share in {"crawldiagnostics": 0.08, "robotstxt": 0.05}.items():
        if subset in era.files:
            by_subset[subset] = rng.choices([*urls, *TRAPS], k=int(count * share))
    if "robotstxt" in by_subset:
        by_subset["robotstxt"] = [urljoin(url, "/robots.txt") for url in by_subset["robotstxt"]]
    left = count - sum(map(len, by_subset.values())) - len(TRAPS) - era.old
    popular = rng.choices(["https://example.com/", "https://www.example.com/", *rng.sample(urls, 8)], k=left // 9)
    once = rng.sample(urls, (left - len(popular)) * 19 // 20)
    again = rng.choices(once, k=left - len(popular) - len(once))
    by_subset["warc"] = [*TRAPS, *popular, *once, *again, *([_LONG] if era.old else [])]
    return by_subset


def _parts(era: _Era, rng: Random, job: UUID, subset: str, rows: Sequence[Row]) -> Iterator[tuple[str, bytes]]:
    numbers = [*range(era.files[subset])]
    rng.shuffle(numbers)
    if numbers == sorted(numbers):
        numbers.reverse()
    root = f"cc-index/table/cc-main/warc/crawl={era.crawl}/subset={subset}"
    codec = era.options["compression"].replace("gzip", "gz")
    for place, (start, end) in enumerate(pairwise(_cuts(rows, len(numbers)))):
        part = rows[start:end]
        if era.old:
            middle = (len(part) + 1) // 2
            part = [row for pair in zip_longest(part[:middle], part[middle:]) for row in pair if row]
        yield f"{root}/part-{numbers[place]:05}-{job}.c000.{codec}.parquet", _parquet(era, part, place)


def _parquet(era: _Era, rows: Sequence[Row], place: int) -> bytes:
    types: dict[str, pa.DataType] = {"warc_record_offset": pa.int32(), "warc_record_length": pa.int32()}
    if era.old:
        types["fetch_time"] = pa.timestamp("ms")
    schema = pa.schema(
        pa.field(column.name, types.get(column.name, column.type), nullable=column.name not in _REQUIRED)
        for column in SCHEMA
        if column.name not in (*PATH_COLUMNS, *era.missing)
    )
    settings: dict[str, Any] = {
        "version": "1.0",
        "store_schema": False,
        "use_dictionary": [name for name in schema.names if name not in _PLAIN],
        "dictionary_pagesize_limit": 500,  # so low that some chunks change to plain pages half-way
        "write_statistics": [name for name in schema.names if not (era.old and place % 2 and name == KEY_COLUMN)],
        # Pages of every second file have as many rows in all columns; else these differ, as they do in real files.
        "data_page_size": 1 if place % 2 else 300,
        "write_batch_size": 64 if place % 2 else 50,
        **era.options,
    }
    file = BytesIO()
    with pq.ParquetWriter(file, schema, **settings) as writer:
        table = pa.Table.from_pylist([*rows], schema)
        for start, end in pairwise(_cuts(rows, max(2, round(len(rows) / _ROW_GROUP)))):
            writer.write_table(table.slice(start, end - start), row_group_size=end - start)
    return file.getvalue()


def _cuts(rows: Sequence[Row], pieces: int) -> list[int]:
    cuts = [0]
    for number in range(1, pieces):
        cut = len(rows) * number // pieces
        near = range(cut - len(rows) // pieces // 3, cut + len(rows) // pieces // 3)
        equal = [(abs(at - cut), at) for at in near if rows[at - 1][KEY_COLUMN] == rows[at][KEY_COLUMN]]
        cuts.append(min(equal)[1] if equal and number % 3 == 1 else cut)
    return [*cuts, len(rows)]


def _listing(crawl: str, name: str, first: datetime, last: datetime) -> dict[str, str]:
    server = f"https://index.commoncrawl.org/{crawl}"
    times = {"from": f"{first:%Y-%m-%dT%H:%M:%S}", "to": f"{last:%Y-%m-%dT%H:%M:%S}"}
    return {"id": crawl, "name": name, "timegate": f"{server}/", "cdx-api": f"{server}-index", **times}
