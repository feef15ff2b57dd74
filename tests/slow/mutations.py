"""Damaged index files, read as every index file is: footer, examination, plan, pages, rows.

Each file ends in an error of ours, or in rows. Rows may differ from those of the original only where nothing can show
it: where the changed bytes have no checksum, such as the bounds in a footer.
"""

import os
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from io import BytesIO
from pathlib import Path
from random import Random
from time import process_time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.commoncrawl.datasets import IndexFile
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.demo import write_miniature
from catalogue.errors import BadFooter, CatalogueError, FormatError
from catalogue.parquet.footer import decode_footer, examine_footer, footer_length
from catalogue.parquet.model import TRAILER, Footer
from catalogue.parquet.page_index import Indexes, cut_indexes
from catalogue.parquet.splice import with_trailer
from catalogue.parquet.thrift import Reader
from catalogue.plan.requests import Cost
from catalogue.query.key_intervals import Intervals
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.read.reader import read
from catalogue.read.streams import ReadEvents
from catalogue.source.byte_ranges import SuffixRange
from catalogue.surt.interval import EVERYTHING, KeyInterval, exact_interval, prefix_interval
from catalogue.tables.crawl_table import FileMetadata
from tests.support.answers import Memory
from tests.support.catalogues import catalogue_in
from tests.support.crawls import CRAWL, index_path, write_manifest
from tests.support.executors import Recording
from tests.support.footers import confused, trimmed, write
from tests.support.mirrors import one_of_each_crawl, raw_footer, read_footer
from tests.support.mutators import GENTLE, MUTATORS, damage
from tests.support.plans import plan_reads

COLUMNS = ("url_surtkey", "url", "fetch_time", "fetch_status")
_PAGES_ARE_CHEAP = Cost(rate=None, bandwidth=1e5, latency=1e-5, connections=1)
_SLOWEST = 5.0
"""Seconds of CPU for one file."""
_MOST_MEMORY = 200_000_000
"""Bytes by which the peak memory of the process may grow."""
_UNTIL_WARM = 1000
"""Files that are read before, because libraries allocate memory at their first use."""
_CRC, _GZIP, _DATA_PAGE_V2 = 4, 2, 3
"""``PageHeader.crc``; of ``CompressionCodec`` and ``PageType``."""


def mirror_of(folder: Path) -> Path:
    """Return the folder if it exists, else that of CATALOGUE_TEST_MIRROR, else write a miniature."""
    if folder.exists():
        return folder
    if given := os.environ.get("CATALOGUE_TEST_MIRROR"):
        return Path(given)
    write_miniature(folder)
    return folder


@dataclass(frozen=True)
class _Place:
    """Some bytes of a file, and whether a checksum covers them."""

    what: str
    start: int
    end: int
    covered: bool = False


@dataclass(frozen=True)
class _Original:
    data: bytes
    footer: bytes
    rows: pa.Table
    places: tuple[_Place, ...]
    queries: tuple[tuple[KeyInterval, ...], ...]


def small(**options: object) -> bytes:
    """Write a file of two row groups, one of three pages and one of a single page."""
    numbers = range(32)
    table = pa.table(
        {
            "url_surtkey": sorted(f"com,example{number % 7})/{number:03}" for number in numbers),
            "url": [f"https://example{number % 7}.com/{number:03}" for number in numbers],
            "fetch_time": pa.array([1_642_000_000_000 + 1000 * n for n in numbers], pa.timestamp("ms", "UTC")),
            "fetch_status": pa.array([(200, 404, None)[number % 3] for number in numbers], pa.int16()),
        }
    )
    return write(table, **({"row_group_size": 24, "data_page_size": 1, "write_batch_size": 8} | options))


def _originals(mirror: Path) -> list[_Original]:
    """Our own small files first, then one file of each crawl of the mirror: every writer."""
    old = {"write_page_checksum": False, "write_page_index": False}
    own = [
        small(compression="gzip"),
        small(compression="zstd", data_page_version="2.0", use_dictionary=False),
        small(compression="none", row_group_size=32),
        small(compression="snappy", **old),
        small(compression="gzip", version="1.0", **old),
        small(compression="zstd", write_page_checksum=False, use_dictionary=False, row_group_size=32),
    ]
    return [_original(data) for data in (*own, *(trimmed(p.read_bytes(), COLUMNS) for p in one_of_each_crawl(mirror)))]


def _original(data: bytes) -> _Original:
    names = [name for name in COLUMNS if name in read_footer(data).columns]
    found = pq.ParquetFile(BytesIO(data)).read(names)
    if "fetch_time" in names:
        times = found.column("fetch_time").cast(pa.timestamp("ms"), safe=False)
        found = found.set_column(names.index("fetch_time"), "fetch_time", times)
    rows = pa.table([found.column(name).cast(SCHEMA.field(name).type) for name in names], names=names)
    keys = [key.encode() for key in rows.column("url_surtkey").to_pylist() if key is not None]
    middle = keys[len(keys) // 2]
    some = tuple(exact_interval(key) for key in sorted({middle, keys[-1]}))
    host = prefix_interval(middle.partition(b")")[0] + b")")
    return _Original(data, raw_footer(data), rows, tuple(_places(data, names)), ((EVERYTHING,), (host,), some))


def _places(data: bytes, names: Sequence[str]) -> Iterator[_Place]:
    for chunk in (group.chunks[name] for group in read_footer(data).row_groups for name in names):
        for what in ("column_index", "offset_index"):
            at = getattr(chunk, what)
            if at and (what == "offset_index" or chunk.column.name == "url_surtkey"):
                yield _Place(what, at.start, at.end)
        start = chunk.range.start
        while start < chunk.range.end:
            reader = Reader(data, start)
            header = reader.struct()
            # GZIP has a checksum, but the levels of version 2 pages are not compressed.
            covered = _CRC in header or (chunk.codec == _GZIP and header[1] != _DATA_PAGE_V2)
            end = reader.position + header[3]
            yield _Place("page header", start, reader.position)
            yield _Place("page", reader.position, end, covered)
            start = end


def _damaged(original: _Original, rng: Random, others: Sequence[_Original]) -> tuple[bytes, _Place]:
    """Damage one part of a file; its size stays, unless the part is the footer or the file."""
    data, footer = original.data, original.footer
    body, trailer = data[: -TRAILER - len(footer)], data[-TRAILER:]
    mutate = rng.choice(GENTLE if rng.random() < 0.5 else MUTATORS)
    chance = rng.random()
    if chance < 0.04:
        return damage(data, rng, [other.data for other in others], [1]), _Place("file", 0, len(data))
    if chance < 0.08:
        return body + footer + mutate(trailer, rng), _Place("file", 0, len(data))
    if chance < 0.5:
        new = confused(footer, rng) if rng.random() < 0.3 else mutate(footer, rng)
        if rng.random() < 0.1:
            new = damage(new or footer, rng, [other.footer for other in others], [1])
        return body + with_trailer(new), _Place("footer", len(body), len(data))
    kinds = ("column_index", "offset_index") if chance < 0.7 else ("page", "page header")
    place = rng.choice([each for each in original.places if each.what in kinds] or original.places)
    before = data[place.start : place.end]
    after = mutate(before, rng)[: len(before)].ljust(len(before), b"\0")
    return data[: place.start] + after + data[place.end :], place


class _Reading:
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def footer(self, data: bytes) -> Footer:
        """Decode a footer as a harvest and a query do; raise FormatError if it is refused."""
        length = footer_length(Memory(data).get("x", SuffixRange(1 << 16)).body)
        if length + TRAILER > len(data):
            raise BadFooter("the footer is longer than the file")
        raw = data[-TRAILER - length : -TRAILER]
        examine_footer(raw, len(data))
        return decode_footer(raw, len(data))

    def rows(self, data: bytes, footer: Footer, intervals: tuple[KeyInterval, ...], cost: Cost) -> pa.Table:
        """Run a query, by pages where these are cheap."""
        names = tuple(name for name in COLUMNS if name in footer.columns)
        query = ResolvedQuery(Intervals(intervals), ("x",), columns=names, any_order=True)
        # For one query nobody would fetch page indexes of such small files.
        known = cut_indexes(footer, "url_surtkey", data, 0) if cost is _PAGES_ARE_CHEAP else {}
        file = IndexFile("x", CRAWL, "warc")
        source = Memory(data)
        stored = FileMetadata(file, source.stored, footer, known.get)

        plan = plan_reads(query, [stored], cost=cost, considered=len(footer.row_groups))
        for fetch in plan.indexes:
            body = source.get("x", fetch.range, pin=source.stored.version).body
            for ordinal, found in cut_indexes(footer, "url_surtkey", body, fetch.range.start).items():
                known[ordinal] = known.get(ordinal, Indexes()).joined(found)
        if plan.indexes:
            plan = plan_reads(query, [stored], cost=cost, considered=len(footer.row_groups))
        self.warnings += [warning for warning in plan.warnings if "it is read without" in warning]
        batches = read(plan, source, Recording(), ReadEvents(self.warnings.append))
        rows = pa.Table.from_batches(batches, plan.schema).select([*names])
        assert {*source.pins} <= {source.stored.version}
        return rows


def _verdict(reading: _Reading, original: _Original, data: bytes, place: _Place, query: int, cost: Cost) -> str:
    reading.warnings.clear()
    try:
        footer = reading.footer(data)
        found = reading.rows(data, footer, original.queries[query], cost)
    except CatalogueError as error:
        return _refusal(error)
    keys = original.rows.column("url_surtkey").cast(pa.binary())
    inside = [pc.and_(pc.greater_equal(keys, i.start), pc.less(keys, i.end)) for i in original.queries[query]]
    expected = original.rows.filter(reduce(pc.or_, inside))
    if found.equals(expected):
        return "right without an index" if reading.warnings else "right"
    assert not place.covered, f"wrong rows, though a checksum covers the changed {place.what}"
    assert place.what != "offset_index", "an offset index made rows wrong"
    lost = found.schema.equals(expected.schema) and _counted(found) <= _counted(expected)
    assert place.what != "column_index" or lost, "a column index added rows"
    return f"undetectable: {place.what}"


def _refusal(error: CatalogueError) -> str:
    assert str(error)
    assert "\n" not in str(error)
    assert "its parser" not in str(error), "a child process died"
    return "refused" if isinstance(error, FormatError) else "an error"


def _counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.cast(pa.string()).to_pylist() for column in table.columns), strict=True))


def _harvest(folder: Path, files: Sequence[bytes]) -> None:
    """Harvest damaged files with valid footers, and read every report about them."""
    files = list({raw_footer(data): data for data in files}.values())  # equal footers of two files are refused
    for number, data in enumerate(files):
        index_path(folder / "source", number).write_bytes(data)
    write_manifest(folder / "source")
    with catalogue_in(folder, folder / "source", cache_size=0) as cat:
        (outcome,) = cat.harvest(CRAWL)
        assert not outcome.failures, outcome.failures
        assert int(cat.files()["num_rows"].sum()) == sum(read_footer(data).num_rows for data in files)
        cat.row_groups()
        cat.column_chunks(CRAWL)
        cat.coverage()
        plan = cat.captures("*.com").plan
        assert plan.considered >= len(plan.paths)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    rng = Random(f"mutations {seed}")
    files = _originals(mirror_of(folder / "mirror"))
    verdicts, slowest = Counter[str](), 0.0
    accepted: list[bytes] = []
    reading = _Reading()
    peak = _peak_bytes()
    for number in range(count):
        if number == _UNTIL_WARM:
            peak = _peak_bytes()
        original = rng.choice(files[6:] if rng.random() < 0.1 else files[:6])
        data, place = _damaged(original, rng, files)
        query, cost = rng.randrange(3), rng.choice([_PAGES_ARE_CHEAP, _PAGES_ARE_CHEAP, Cost()])
        began = process_time()
        try:
            verdict = _verdict(reading, original, data, place, query, cost)
            took = process_time() - began
            assert took < _SLOWEST, f"it took {took:.1f} s"
            assert _peak_bytes() < peak + _MOST_MEMORY, "it took too much memory"
        except Exception as error:
            (folder / "wrong.parquet").write_bytes(data)
            about = f"input {number} of seed {seed}, {place}, query {query}, {cost}"
            raise AssertionError(f"{about}: {type(error).__name__}: {error} ({len(data)} bytes)") from error
        slowest = max(slowest, took)
        verdicts[verdict] += 1
        if verdict.startswith(("right", "undetectable")) and place.what == "footer" and original in files[:6]:
            accepted.append(data)
        if accepted and (number % 5000 == 4999 or number == count - 1):
            _harvest(folder / f"crawl-{number}", accepted[-40:])
            accepted.clear()
    grown = _peak_bytes() - peak
    return {"verdicts": dict(sorted(verdicts.items())), "slowest": round(slowest, 3), "grown_bytes": grown}
