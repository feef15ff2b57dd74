"""What a mirror holds, read whole and by others than the project, for ``tests.slow.traffic`` to compare with."""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from warcio import ArchiveIterator

from catalogue import Catalogue
from catalogue.commoncrawl.capture import Capture
from catalogue.commoncrawl.columns import SCHEMA
from catalogue.surt import parse_pattern
from tests.read.test_answers import CONDITIONS, IDENTITY, Scan, in_order, random_patterns
from tests.support.mirrors import crawl_of, index_paths, whole_table
from tests.support.prefix_indexes import index_bytes
from tests.url_index_2012.test_url_index_2012 import HOSTS, PATHS, SCHEMES, items_of, scanned

_RECORD = ["url", "fetch_time", "fetch_status", "content_digest", "warc_filename"]
_RECORD += ["warc_record_offset", "warc_record_length"]


_OLD_URLS = [
    f"{scheme}://{host}{path}{more}" for scheme in SCHEMES for host in HOSTS for path in PATHS for more in "12?"
]
_OLD_ITEMS = items_of(_OLD_URLS)


def old_index() -> bytes:
    """A URL index as that of 2012."""
    return index_bytes(_OLD_ITEMS, 1000)


@dataclass(frozen=True)
class Asked:
    """A question, and its answer."""

    crawl: str
    """``all`` for every one."""
    texts: tuple[str, ...]
    where: str | None
    times: tuple[str | None, str | None]
    columns: tuple[str, ...]
    limit: int | None
    right: pa.Table = field(repr=False)
    """All rows, in order; with a limit, those of which so many may come."""

    def check(self, cat: Catalogue) -> None:
        """Ask it."""
        first, last = self.times
        found = cat.captures(
            self.texts,
            crawls=self.crawl,
            columns=self.columns,
            where=self.where,
            from_=first,
            to=last,
            limit=self.limit,
        ).to_arrow()
        if self.limit is None:
            assert in_order(found, self.right.schema.names).equals(self.right)
        else:
            rows = [
                set(zip(*table.select(IDENTITY).to_pydict().values(), strict=True)) for table in (found, self.right)
            ]
            assert found.num_rows == min(self.limit, self.right.num_rows)
            assert rows[0] <= rows[1]


@dataclass(frozen=True)
class Archived:
    """A capture, and its record."""

    row: dict[str, Any]
    member: bytes = field(repr=False)
    """As it lies in the archive."""
    ident: str
    url: str
    content: bytes = field(repr=False)
    """Of the answer, as it was archived."""
    payload: bytes = field(repr=False)
    """The same without codings."""

    @property
    def place(self) -> tuple[str, int]:
        return self.row["warc_filename"], self.row["warc_record_offset"]


class Truth:
    """What is in a mirror."""

    def __init__(self, mirror: Path) -> None:
        self.mirror = mirror
        self.everything = whole_table(mirror)
        self._scan = Scan(self.everything)
        self.crawls = sorted({crawl_of(path) for path in index_paths(mirror)})
        archives = {str(path.relative_to(mirror)) for path in mirror.rglob("*.warc.gz")}
        there = pa.array([name in archives for name in self.everything.column("warc_filename").to_pylist()])
        self._archived = self.everything.select(_RECORD).filter(there)

    def close(self) -> None:
        self._scan.connection.close()

    def files(self, crawl: str) -> dict[str, Path]:
        """The index files of a crawl, by their paths at the source."""
        return {
            str(path.relative_to(self.mirror)): path
            for path in index_paths(self.mirror)
            if crawl in {crawl_of(path), "all"}
        }

    def footers(self, crawl: str) -> dict[str, tuple[bytes, int, str]]:
        """Of each index file the footer, cut out by hand, the file's size, and the ETag that the server gives it."""
        found = {}
        for name, path in self.files(crawl).items():
            data = path.read_bytes()
            length = int.from_bytes(data[-8:-4], "little")
            etag = f'"{hashlib.blake2b(data, digest_size=16).hexdigest()}"'
            found[name] = data[-8 - length : -8], len(data), etag
        return found

    def questions(self, count: int, chance: random.Random) -> list[Asked]:
        """Questions of every kind."""
        made = []
        for _ in range(count):
            crawl = chance.choice(["all", "all", *self.crawls])
            mine = self._of(crawl)
            texts = tuple(random_patterns(mine, chance.choice([1, 1, 1, 11]), chance.getrandbits(32)))
            dice = chance.random()
            where = chance.choice(CONDITIONS) if dice < 0.2 else None
            span: tuple[str | None, str | None] = (None, None)
            if 0.2 <= dice < 0.35:
                times: list[datetime] = mine.column("fetch_time").to_pylist()
                first, last = sorted(chance.sample(times, 2))
                span = f"{first:%Y%m%d%H%M%S}", f"{last:%Y%m%d%H%M%S}"
            limit = chance.randrange(1, 50) if dice > 0.9 else None
            more = chance.sample(sorted(set(SCHEMA.names) - set(IDENTITY)), chance.choice([0, 2, 6, 20]))
            right = self._rows(crawl, texts, where, span, [*IDENTITY, *more])
            made.append(Asked(crawl, texts, where, span, (*IDENTITY, *more), limit, right))
        return made

    def urls(self, crawl: str, count: int, chance: random.Random) -> list[Asked]:
        """Questions with one pattern each and nothing else, of one crawl."""
        texts = random_patterns(self._of(crawl), count, chance.getrandbits(32))
        none = (None, None)
        return [
            Asked(crawl, (text,), None, none, tuple(IDENTITY), None, self._rows(crawl, [text], None, none, IDENTITY))
            for text in texts
        ]

    def whole(self, crawl: str) -> Asked:
        """The question for everything."""
        right = in_order(self._of(crawl), IDENTITY)
        return Asked(crawl, ("*",), None, (None, None), tuple(IDENTITY), None, right)

    def _of(self, crawl: str) -> pa.Table:
        if crawl == "all":
            return self.everything
        return self.everything.filter(pa.compute.equal(self.everything.column("crawl"), crawl))

    def _rows(
        self,
        crawl: str,
        texts: Sequence[str],
        where: str | None,
        span: tuple[str | None, str | None],
        columns: Sequence[str],
    ) -> pa.Table:
        condition = f"{crawl == 'all'} OR crawl = '{crawl}'"
        condition = f"({condition}) AND ({where or 'true'})"
        if all(span):
            at = "strftime(fetch_time, '%Y%m%d%H%M%S')"
            condition += f" AND {at} >= '{span[0]}' AND {at} <= '{span[1]}'"
        return in_order(self._scan([parse_pattern(text) for text in texts], condition), list(columns))

    def archived(self, count: int, chance: random.Random) -> list[Archived]:
        """Captures whose archives are there."""
        rows = self._archived.take(sorted(chance.sample(range(self._archived.num_rows), count))).to_pylist()
        # What is fetched twice is one record.
        places = {(row["warc_filename"], row["warc_record_offset"]): row for row in rows}
        return [self._record(row) for row in places.values()]

    def old_captures(self, count: int, chance: random.Random) -> dict[str, list[Capture]]:
        """What patterns find in ``old_index``, by each of its URLs."""
        some: list[Callable[[], str]] = [
            lambda: chance.choice(_OLD_URLS),
            lambda: chance.choice(HOSTS) + chance.choice(PATHS) + "*",
            lambda: "*." + chance.choice(HOSTS[:6]),
        ]
        patterns = [chance.choice(some)() for _ in range(count)]
        return {pattern: scanned(_OLD_ITEMS, pattern) for pattern in patterns}

    def _record(self, row: dict[str, Any]) -> Archived:
        with (self.mirror / row["warc_filename"]).open("rb") as file:
            file.seek(row["warc_record_offset"])
            member = file.read(row["warc_record_length"])
        (first,) = (
            (
                each.rec_headers.get_header("WARC-Record-ID"),
                each.rec_headers.get_header("WARC-Target-URI"),
                each.raw_stream.read(),
            )
            for each in ArchiveIterator(BytesIO(member), check_digests="raise")
        )
        (payload,) = (each.content_stream().read() for each in ArchiveIterator(BytesIO(member)))
        return Archived(row, member, *first, payload)
