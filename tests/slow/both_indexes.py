"""Random queries of a synthetic crawl, answered by the columnar index and by the CDX index through an HTTP server.

Both must return the same rows in the same order. Without conditions these are the rows that were written. Sessions are
closed after some queries, so searches start with nothing, or with what earlier queries read. Half of the queries of the
CDX index are run without stored row groups, which predict where keys are in its list of blocks.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import catalogue
from catalogue import Catalogue
from catalogue.cdx.lines import COLUMNS
from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.demo.loopback import LoopbackServer
from catalogue.errors import QueryError
from catalogue.settings import Settings
from catalogue.surt.interval import merge
from catalogue.surt.pattern import parse_pattern
from tests.support.synthetic_crawl import CRAWL, FREQUENT_URL, TRAPS, SyntheticCrawl, write_synthetic_crawl

ROWS = 2_000_000
_COLUMNS = [name for name in COLUMNS if name != "warc_record_id"]
"""Columns of both indexes of a crawl before 2026-30, as the synthetic one is."""
_READ = [*_COLUMNS, "crawl", "subset"]
_SESSION = 25
"""Queries of a session."""
_LARGE_SHARE = 40
"""Results with more than one of so many rows are only read with a limit."""
_WHERE = [
    "warc_record_length < 900 AND fetch_status >= 300",
    "fetch_redirect IS NOT NULL OR content_digest IS NULL",
    "content_languages LIKE '%eng%' AND content_charset <> 'UTF-8'",
    "content_mime_type <> content_mime_detected",
    "content_mime_detected IS NULL",
    "url_surtkey > 'de,' OR fetch_status = -1",
    "starts_with(url, 'http://') AND warc_segment LIKE '%.1_'",
    "content_truncated IN ('length', 'disconnect')",
    "content_digest < 'C'",
    "fetch_time >= TIMESTAMPTZ '2022-08-15 00:00:00+00' AND subset <> 'warc'",
]
_CONDITIONS: list[Callable[[Random], dict[str, Any]]] = [
    lambda random: {"status": random.choice(["2xx", "404", "301,302", "5xx", "3xx"])},
    lambda random: {"mime": random.choice(["text/html", "application/*", "unk", "text/*", "image/jpeg"])},
    lambda random: {"mime": random.choice(["text/html", "application/pdf"])},
    lambda random: {"lang": random.choice(["deu", "eng", "ukr", "fra"])},
    lambda random: {"from_": f"202208{random.randrange(7, 22):02}", "to": f"202208{random.randrange(22, 30)}"},
    lambda random: {"from_": f"202208{random.randrange(7, 22):02}1{random.randrange(10)}"},
    lambda random: {"subsets": random.sample(SUBSETS, random.choice([1, 1, 2, 3]))},
    lambda random: {"where": random.choice(_WHERE)},
    lambda random: {"limit": random.choice([0, 1, 2, 10, 100, 1000, 5000])},
    lambda _: {"ordered": True},
    lambda random: {"unique": random.choice(["url", "digest"])},
    lambda _: {"latest": True},
    lambda random: {"columns": random.sample(_COLUMNS, random.choice([1, 3]))},
]
_DECIDING = {"status", "mime", "lang", "from_", "where", "ordered", "unique", "latest", "exact_url"}
"""Arguments with which the result depends on more than patterns and subsets."""


class RandomQueries:
    def __init__(self, crawl: SyntheticCrawl, random: Random) -> None:
        self._crawl, self._random = crawl, random
        self._urls, self._hosts = (crawl.rows.column(name) for name in ("url", "url_host_name"))
        keys = crawl.rows.column("url_surtkey")
        self._odd = [
            row
            for row in random.sample(range(len(keys)), min(len(keys), 20_000))
            if len(key := keys[row].as_py()) > 1000 or any(each in key for each in TRAPS)
        ]
        types = crawl.rows.column("content_mime_detected")
        self._untyped = pc.indices_nonzero(pc.is_null(types)).to_pylist()
        self._kinds: list[Callable[[], str]] = [
            self._url,
            lambda: self._url().partition("://")[2],
            lambda: self._url() + random.choice("x/~|") + "y",
            lambda: self._url().rpartition("/")[0] + "/*",
            lambda: self._url()[: random.randint(20, 60)] + "*",
            self._odd_url,
            lambda: self._odd_url()[: random.choice([30, 100, 1000, 3000])] + "*",
            lambda: self._host() + "/*",
            lambda: "*." + self._host(),
            lambda: self._hosts[random.choice(self._untyped)].as_py() + "/*",
            lambda: "*." + ".".join(self._host().split(".")[-2:]),
            lambda: "*." + random.choice(["is", "museum", "xn--p1ai", "ee", "co.uk", "com"]),
            lambda: f"no-such-{random.randrange(10**6)}.example.{random.choice(['com', 'aero', 'zw'])}/*",
            lambda: random.choice([FREQUENT_URL, FREQUENT_URL.partition("?")[0] + "*", "*.frequent-synthetic.net"]),
            lambda: random.choice(["*", "http://a.aa/", "http://zz.zz/"]),
        ]

    def _url(self) -> str:
        url: str = self._urls[self._random.randrange(len(self._urls))].as_py()
        return url

    def _odd_url(self) -> str:
        url: str = self._urls[self._random.choice(self._odd)].as_py()
        return url

    def _host(self) -> str:
        host: str = self._hosts[self._random.randrange(len(self._hosts))].as_py()
        return host

    def _pattern(self) -> str:
        while True:
            text = self._random.choice(self._kinds)()
            try:
                parse_pattern(text)
            except QueryError:  # such as a prefix that ends within an escape
                continue
            return text

    def choose(self) -> "RandomQuery":
        """Return the arguments of a query, except for the index."""
        random = self._random
        words: dict[str, Any] = {
            "patterns": [self._pattern() for _ in range(random.choices([1, 3, 40], [12, 3, 1])[0])]
        }
        words["columns"] = _READ
        for choose in random.sample(_CONDITIONS, random.choice([0, 0, 1, 1, 2, 3])):
            words |= choose(random)
        if random.random() < 0.1 and "*" not in "".join(words["patterns"]):
            words["exact_url"] = all(pattern.startswith("http") for pattern in words["patterns"])
        intervals = merge(interval for text in words["patterns"] for interval in parse_pattern(text).intervals)
        rows = self._crawl.find(intervals, [each for each in SUBSETS if each in words.get("subsets", SUBSETS)])
        if len(rows) > len(self._urls) // _LARGE_SHARE:
            few = {name: words[name] for name in ("patterns", "columns", "subsets") if name in words}
            words = few | {"limit": random.choice([1, 500, 20_000])}
        return RandomQuery(words, rows, random.random() < 0.5, random.random() < 0.2)


@dataclass(frozen=True)
class RandomQuery:
    """A query, and the rows that match its patterns and subsets."""

    words: dict[str, Any]
    """Arguments of ``Catalogue.captures``."""
    rows: pa.Table = field(repr=False)
    by_empty: bool
    """Whether nothing is stored of the crawl when the CDX index answers."""
    counted: bool
    """Whether the rows are counted, too."""

    @property
    def expected(self) -> pa.Table | None:
        """The result; None if it depends on more than patterns, subsets and limit."""
        if any(self.words.get(name) for name in _DECIDING):
            return None
        names = [name for name in dict.fromkeys([*self.words["columns"], "subset"]) if name != "crawl"]
        others = [name for name in names if name not in {"subset", "url_surtkey"}]
        others.sort(key=lambda name: name != "fetch_time")
        order = [(name, "ascending") for name in ("url_surtkey", *others)]
        rows = _known(self.rows)
        found = pa.concat_tables(rows.filter(pc.equal(rows["subset"], each)).sort_by(order) for each in SUBSETS)
        return found.select(names).slice(0, self.words.get("limit"))


def _known(rows: pa.Table) -> pa.Table:
    """Replace the values that the index has for unknown ones by null."""
    for name, unknown in (("fetch_status", -1), ("content_mime_type", "unk")):
        if (at := rows.schema.get_field_index(name)) >= 0:
            known = pc.if_else(pc.equal(rows.column(at), unknown), None, rows.column(at))
            rows = rows.set_column(at, rows.schema.field(at), known)
    return rows


class Sessions:
    """Opens two catalogues: one has harvested the crawl, the other has an empty data folder."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder, self._settings = folder, settings
        with catalogue.open(folder / "harvested", settings=settings) as cat:
            assert not [outcome for outcome in cat.harvest(CRAWL, subsets="all") if outcome.failures]

    @contextmanager
    def opened(self) -> Iterator[tuple[Catalogue, Catalogue]]:
        with (
            catalogue.open(self._folder / "harvested", settings=self._settings) as harvested,
            catalogue.open(self._folder / "empty", settings=self._settings) as empty,
        ):
            yield harvested, empty


def compare(query: RandomQuery, harvested: Catalogue, empty: Catalogue) -> pa.Table:
    """Compare the answers to a query; return the rows."""
    words = {"subsets": "all", **query.words}
    one = harvested.captures(crawls=CRAWL, **words)
    rows = one.to_arrow()
    if (expected := query.expected) is not None:
        check_same(expected, rows.drop_columns(["crawl"]), f"rows that were written, and the columnar index: {query}")
    cat = empty if query.by_empty else harvested
    other = cat.captures(crawls=CRAWL, index="cdx", **words)
    assert other.schema == one.schema, query
    if query.counted:
        assert other.count() == one.count() == len(rows), query
    check_same(rows, other.to_arrow(), f"columnar index, and CDX index of {cat.session.data.name}: {query}")
    return rows


def check_same(one: pa.Table, other: pa.Table, what: str) -> None:
    """Raise AssertionError with the first different row."""
    if one.select(other.column_names).cast(other.schema).equals(other):
        return
    pairs = zip(one.to_pylist(), other.to_pylist(), strict=False)
    place, pair = next(
        ((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1]), (min(len(one), len(other)), ())
    )
    message = f"{len(one):,} and {len(other):,} rows; the first difference is at row {place:,}: {pair}; {what}"
    raise AssertionError(message)


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    began = time.monotonic()
    crawl = write_synthetic_crawl(folder / "mirror", ROWS, seed)
    written = time.monotonic() - began
    compared = compare_queries(count, seed, folder, crawl)
    return {"rows": ROWS, "blocks": crawl.blocks, "seconds to write": round(written, 1), "compared": dict(compared)}


def compare_queries(count: int, seed: int, folder: Path, crawl: SyntheticCrawl) -> Counter[str]:
    random, found = Random(f"both indexes {seed}"), Counter[str]()
    queries = RandomQueries(crawl, random)
    with LoopbackServer(crawl.folder) as server:
        sessions = Sessions(folder, Settings(source=server.url, cache=folder / "cache"))
        for start in range(0, count, _SESSION):
            with sessions.opened() as (harvested, empty):
                for query in islice(iter(queries.choose, None), min(_SESSION, count - start)):
                    found["rows"] += len(table := compare(query, harvested, empty))
                    found["empty"] += not len(table)
                    found["known"] += query.expected is not None
    return found
