"""Index files of every writer, and what they are when a part of one was damaged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.commoncrawl.columns import SCHEMA
from catalogue.parquet.footer import TRAILER, with_trailer
from catalogue.parquet.thrift import Reader
from catalogue.surt import EVERYTHING, KeyInterval, exact_interval, prefix_interval
from tests.slow.mutators import MUTATORS
from tests.support.footers import confused, trimmed, write
from tests.support.mirrors import one_of_each_crawl, raw_footer, read_footer

COLUMNS = ("url_surtkey", "url", "fetch_time", "fetch_status")

_CRC, _GZIP, _V1 = 4, 2, 0
"""``PageHeader.crc``; of ``CompressionCodec`` and ``PageType``."""


@dataclass(frozen=True)
class Place:
    """Some bytes of a file."""

    what: str
    start: int
    end: int
    covered: bool = False
    """Whether a checksum covers them."""


@dataclass(frozen=True)
class Original:
    """A file as it was."""

    data: bytes
    rows: pa.Table
    """All that a question can find, of ``COLUMNS``."""
    places: tuple[Place, ...]
    questions: tuple[tuple[KeyInterval, ...], ...]

    @cached_property
    def footer(self) -> bytes:
        return raw_footer(self.data)

    @cached_property
    def kinds(self) -> frozenset[str]:
        return frozenset(place.what for place in self.places)


def original(data: bytes) -> Original:
    names = [name for name in COLUMNS if name in read_footer(data).columns]
    found = pq.ParquetFile(BytesIO(data)).read(names)
    columns = [
        found.column(name).cast(pa.timestamp("ms"), safe=False).cast(SCHEMA.field(name).type)
        if name == "fetch_time"
        else found.column(name).cast(SCHEMA.field(name).type)
        for name in names
    ]
    rows = pa.table(columns, names=names)
    keys = [key.encode() for key in rows.column("url_surtkey").to_pylist() if key is not None]
    middle = keys[len(keys) // 2]
    host = middle.partition(b")")[0] + b")"
    some = (exact_interval(middle), exact_interval(keys[-1])) if middle < keys[-1] else (exact_interval(middle),)
    questions = ((EVERYTHING,), (prefix_interval(host),), some)
    return Original(data, rows, tuple(places_of(data, names)), questions)


def places_of(data: bytes, names: Sequence[str]) -> Iterator[Place]:
    """Indexes, page headers and pages of some columns."""
    for group in read_footer(data).row_groups:
        for chunk in (group.chunks[name] for name in names):
            for what in ("column_index", "offset_index"):
                at = getattr(chunk, what)
                if at and (what == "offset_index" or chunk.column.name == "url_surtkey"):
                    yield Place(what, at.start, at.end)
            at = chunk.range.start
            while at < chunk.range.end:
                reader = Reader(data, at)
                header = reader.struct()
                # GZIP has a checksum of its own, but levels of pages of the second version are not compressed.
                covered = _CRC in header or (chunk.codec == _GZIP and header[1] != 3)
                yield Place("page header", at, reader.position)
                yield Place("page", reader.position, reader.position + header[3], covered)
                at = reader.position + header[3]


def small(**options: object) -> bytes:
    """A file of two row groups, one of three pages and one of a single one, unless the options say otherwise."""
    numbers = range(32)
    keys = sorted(f"com,example{number % 7})/{number:03}" for number in numbers)
    table = pa.table(
        {
            "url_surtkey": keys,
            "url": [f"https://example{number % 7}.com/{number:03}" for number in numbers],
            "fetch_time": pa.array(
                [1_642_000_000_000 + 1000 * number for number in numbers], pa.timestamp("ms", "UTC")
            ),
            "fetch_status": pa.array([(200, 404, None)[number % 3] for number in numbers], pa.int16()),
        }
    )
    usual = {"row_group_size": 24, "data_page_size": 1, "write_batch_size": 8}
    return write(table, **(usual | options))


def originals(mirror: Path) -> list[Original]:
    """Of every writer: our own small files first, then one of each crawl of the mirror."""
    own = [
        small(compression="gzip"),
        small(compression="zstd", data_page_version="2.0", use_dictionary=False),
        small(compression="none", row_group_size=32),
        small(compression="snappy", write_page_checksum=False, write_page_index=False),
        small(compression="gzip", write_page_checksum=False, write_page_index=False, version="1.0"),
        small(compression="zstd", write_page_checksum=False, use_dictionary=False, row_group_size=32),
    ]
    eras = [trimmed(path.read_bytes(), COLUMNS) for path in one_of_each_crawl(mirror)]
    return [original(data) for data in (*own, *eras)]


@dataclass(frozen=True)
class Damaged:
    """A file that was damaged."""

    data: bytes
    how: str
    place: Place


def damaged(original: Original, rng: Random, others: Sequence[Original]) -> Damaged:
    """A file with one of its parts damaged; its length stays, unless it is the footer or the file as a whole."""
    data, footer = original.data, original.footer
    # Half of them leave so much as it was that what follows has something to look at.
    how = rng.choice([*MUTATORS] if rng.random() < 0.5 else _GENTLE)
    mutate = MUTATORS[how]
    chance = rng.random()
    whole = Place("file", 0, len(data))
    if chance < 0.04:
        return Damaged(mutate(data, rng, [other.data for other in others]), how, whole)
    if chance < 0.08:
        return Damaged(data[:-TRAILER] + mutate(data[-TRAILER:], rng, [b"PARE"]), how, whole)
    if chance < 0.5:
        if rng.random() < 0.3:
            how, new = "confused", confused(footer, rng)
        else:
            new = mutate(footer, rng, [other.footer for other in others])
            if rng.random() < 0.1:
                new = MUTATORS[rng.choice([*MUTATORS])](new or footer, rng, [footer])
        return Damaged(data[: -TRAILER - len(footer)] + with_trailer(new), how, Place("footer", len(data), len(data)))
    kind = rng.choice([what for what in _ORDER[chance < 0.7] if what in original.kinds] or ["page"])
    place = rng.choice([each for each in original.places if each.what == kind])
    before = data[place.start : place.end]
    after = mutate(before, rng, [footer])[: len(before)].ljust(len(before), b"\0")
    return Damaged(data[: place.start] + after + data[place.end :], how, place)


_GENTLE = ("flip_a_bit", "set_a_byte", "add_to_a_byte")

_ORDER = {True: ("column_index", "offset_index"), False: ("page", "page header")}
