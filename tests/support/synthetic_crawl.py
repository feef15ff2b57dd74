"""Write a synthetic crawl: the same captures as Parquet files and as a CDX index.

Both have the forms of real ones. Parquet files adjoin each other, and have row groups, pages and page indexes. Their
numbers are not in the order of keys. Shards of the CDX index have blocks of 3,000 lines, but every fourth one has small
blocks, so that the list of blocks is long enough for searches. Files, row groups, pages, blocks and shards start within
the captures of a URL. Lines are not made by the code that is tested.
"""

import json
from base64 import b32encode
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.crawls import crawl_list
from benchmarks.real_size import writing
from benchmarks.zipnum import blocks
from catalogue.cdx.lines import FIELDS
from catalogue.commoncrawl.crawls import COLLINFO, SUBSETS
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.surt import url_surtkey
from catalogue.surt.interval import KeyInterval
from tests.support.cdx_indexes import index_of, replace_index
from tests.support.crawls import write_manifest

CRAWL = "CC-MAIN-2022-33"
FREQUENT_URL = "https://frequent-synthetic.net/status?page=1"
"""A URL with very many captures."""
TRAPS = ("~", "|", "}", '"', "'", "\\", "%ff", "%c3%a9", "%e2%82%ac")
"""Characters and escapes of keys that are rare in real ones."""
_SHARES = (0.76, 0.21, 0.03)
"""Of ``SUBSETS`` among the rows."""
_ROWS_A_SITE, _FREQUENT_SHARE = 40, 100
_UNTYPED_SITES = 50
"""One of so many sites has no detected media types."""
_HEADS, _TAILS = 8_000, 30_000
"""At most so many different beginnings and ends of paths; in small crawls, fewer."""
_BATCH = 50_000
"""Rows that are Python objects at the same time, at least."""
_START = datetime(2022, 8, 7, 12, 0, 0, tzinfo=UTC)
_TLDS = {"com": 52, "org": 14, "net": 8, "de": 10, "co.uk": 6, "is": 1, "museum": 1, "cz": 6, "xn--p1ai": 1, "ee": 1}
_FILES = {"warc": 12, "crawldiagnostics": 5, "robotstxt": 2}
_SHARDS = 8
_GROUPS, _PAGES, _FEWEST_PAGE = 4, 25, 40
"""Row groups of a file, pages of a row group, and the rows of a page of small crawls."""
_ROWS, _LINES, _FEWEST_LINES = 2_000_000, 3_000, 200
"""Rows of a full crawl, lines of its blocks, and lines of the blocks of small crawls."""
_SMALL, _FEWEST_SMALL = 100, 4
"""How many times smaller the blocks of every fourth shard are, and their lines in small crawls."""

_REDIRECTS = {None: 3.0, "https://example.com/": 1.0, "https://example.com/caf\u00e9?a=\u20ac": 0.1, '/x\\"y': 0.1}
_FIELDS: dict[str, tuple[dict[str | None, float], ...]] = {
    "mime": (
        {"text/html": 85, "unk": 5, None: 1, "application/pdf": 6, "image/jpeg": 3},
        {"unk": 60, "text/html": 35, "warc/revisit": 4, None: 1},
        {"text/plain": 70, "text/html": 20, "unk": 10},
    ),
    "mime-detected": (
        {"text/html": 80, "application/xhtml+xml": 10, "application/pdf": 6, "image/jpeg": 3, None: 1},
        {"text/html": 70, "application/octet-stream": 25, None: 5},
        {"text/x-robots": 60, "text/plain": 20, "text/html": 20},
    ),
    "status": (
        {"200": 100},
        {"301": 45, "302": 15, "404": 28, "304": 4, "403": 5, "500": 2, "503": 0.5, None: 0.5},
        {"200": 70, "404": 20, "301": 10},
    ),
    "charset": ({"UTF-8": 88, "ISO-8859-1": 3, None: 9}, {None: 100}, {None: 90, "UTF-8": 10}),
    "languages": ({"eng": 44, "deu": 6, "deu,eng": 2, "rus,eng,ukr": 1, None: 47}, {None: 100}, {None: 100}),
    "truncated": ({None: 97, "length": 2, "disconnect": 1}, {None: 1}, {None: 1}),
    "redirect": ({None: 1}, _REDIRECTS, _REDIRECTS),
}
"""The shares of the values of a field in each of ``SUBSETS``; None for missing values."""
_COLUMNS = {name: column for name, column in FIELDS.items() if name != "recordid"}
"""Columns of the fields before 2026, in the order of lines."""
_PLACE = ("url_surtkey", "url_host_name", "url_protocol", "fetch_time", "warc_segment", "subset")
_SCHEMA = pa.schema(
    [
        (name, pa.int32() if name in {"warc_record_offset", "warc_record_length"} else SCHEMA.field(name).type)
        for name in (*_PLACE, *_COLUMNS.values())
    ]
)
_Row = tuple[str, dict[str, Any]]
"""The line of a capture in the CDX index, without its line feed, and its row."""


@dataclass(frozen=True)
class SyntheticCrawl:
    """A crawl in a folder that is laid out as data.commoncrawl.org."""

    folder: Path
    rows: pa.Table
    """In the order of the lines of the CDX index."""
    blocks: int
    """Of the CDX index."""

    def find(self, intervals: Sequence[KeyInterval], subsets: Sequence[str] = SUBSETS) -> pa.Table:
        """Return the rows with keys of disjoint ascending intervals, in the order of answers."""
        keys = self.rows.column("url_surtkey")
        places = range(len(keys))

        def key(place: int) -> bytes:
            text: str = keys[place].as_py()
            return text.encode()

        found = [self.rows.slice(0, 0)]
        for interval in intervals:
            start = bisect_left(places, interval.start, key=key)
            end = bisect_left(places, interval.end, lo=start, key=key)
            found.append(self.rows.slice(start, end - start))
        matching = pa.concat_tables(found)
        return pa.concat_tables(matching.filter(pc.equal(matching.column("subset"), subset)) for subset in subsets)


def write_synthetic_crawl(folder: Path, rows: int, seed: int) -> SyntheticCrawl:
    """Write a crawl into an empty folder; the same number of rows and seed make the same one."""
    lines: list[str] = []
    batches: list[pa.RecordBatch] = []
    waiting: list[dict[str, Any]] = []
    for site in _sites_of(Random(f"synthetic {seed}"), rows):
        assert not lines or lines[-1] < site[0][0]
        lines += [line for line, _ in site]
        waiting += [row for _, row in site]
        if len(waiting) > _BATCH or len(lines) == rows:
            batches.append(pa.RecordBatch.from_pylist(waiting, schema=_SCHEMA))
            waiting = []
    made = pa.Table.from_batches(batches)
    size = max(_FEWEST_LINES, rows * _LINES // _ROWS)
    sizes = [max(_FEWEST_SMALL, size // _SMALL) if number % 4 == 1 else size for number in range(_SHARDS)]
    cuts = _cuts(made.column("url_surtkey"), _SHARDS)
    with ThreadPoolExecutor() as executor:
        list(executor.map(_write_parquet, *zip(*_parquet_files(folder, made, seed), strict=True)))
        index = index_of(CRAWL, executor.map(lambda cut, size: [*blocks(lines[cut], size)], cuts, sizes))
    replace_index(folder, index)
    write_manifest(folder, CRAWL)
    times = pc.min_max(made.column("fetch_time")).as_py()
    first, last = (f"{times[which]:%Y-%m-%dT%H:%M:%S}" for which in ("min", "max"))
    (folder / COLLINFO).write_bytes(crawl_list([CRAWL], first, last))
    return SyntheticCrawl(folder, made, index.cluster.count(b"\n"))


def _parquet_files(folder: Path, rows: pa.Table, seed: int) -> Iterator[tuple[Path, pa.Table]]:
    job = UUID(int=seed + 1)
    for subset, count in _FILES.items():
        inside = rows.filter(pc.equal(rows.column("subset"), subset)).drop_columns(["subset"])
        folder_of_subset = folder / f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset={subset}"
        folder_of_subset.mkdir(parents=True)
        numbers = np.random.default_rng(seed).permutation(count)
        for number, cut in zip(numbers, _cuts(inside.column("url_surtkey"), count), strict=True):
            yield folder_of_subset / f"part-{number:05}-{job}.c000.gz.parquet", inside[cut]


def _write_parquet(path: Path, rows: pa.Table) -> None:
    group = -(-len(rows) // _GROUPS)
    with writing(path, rows.schema, page_rows=max(_FEWEST_PAGE, -(-group // _PAGES))) as writer:
        writer.write_table(rows, row_group_size=group)


def _cuts(keys: pa.ChunkedArray, count: int) -> list[slice]:
    """Cut rows into parts of about the same size; one cut, and every second one, is between rows with the same key."""
    same = pc.equal(keys[1:], keys[:-1]).combine_chunks()
    repeats: NDArray[np.int64] = 1 + pc.indices_nonzero(same).to_numpy().astype(np.int64)
    frequent = pc.indices_nonzero(pc.equal(keys, url_surtkey(FREQUENT_URL))).to_numpy()
    cuts = np.linspace(0, len(keys), count + 1).astype(np.int64)
    for number in range(1, count):
        if number % 2:
            cuts[number] = repeats[np.searchsorted(repeats, cuts[number])]
    middle = int(frequent[len(frequent) // 2])
    cuts[1 + np.argmin(abs(cuts[1:-1] - middle))] = middle
    return [slice(start, end) for start, end in pairwise(cuts.tolist())]


def _sites_of(random: Random, rows: int) -> Iterator[list[_Row]]:
    """Yield the captures of each site, in the order of their lines; ``rows`` in all."""
    words = ["".join(random.choices("bcdfgklmnprst", k=2)) + random.choice("aeiou") * 2 for _ in range(900)]
    sites = _sites(random, words, rows // _ROWS_A_SITE)
    heads, tails = _heads(random, words, min(_HEADS, rows // 8)), _tails(random, words, min(_TAILS, rows // 4))
    frequent = rows // _FREQUENT_SHARE
    sizes = [*accumulate(min(random.paretovariate(1), 500.0, len(sites) / 20) for _ in sites)]
    ends = [round(size / sizes[-1] * (rows - frequent)) for size in sizes]
    for number, (names, (start, end)) in enumerate(zip(sites.values(), pairwise([0, *ends]), strict=True)):
        found, path = [], "/"
        for at in range(end - start):
            (subset,) = random.choices(range(len(SUBSETS)), _SHARES)
            if SUBSETS[subset] == "robotstxt":
                path = "/robots.txt"
            elif at and (path == "/robots.txt" or random.random() > 0.15):  # few a site, and some again and again
                path = heads[(number * 7 + int(random.random() ** 2 * 12) * 31) % len(heads)]
                path += tails[(number * 13 + int(random.random() ** 3 * 3000) * 17) % len(tails)]
            url = f"{_scheme(random)}{names[random.random() < 0.1]}{path}"
            found.append(_capture(random, url, subset, typed=number % _UNTYPED_SITES > 0))
        if names[0] in FREQUENT_URL:
            found += [_capture(random, FREQUENT_URL, random.choices((0, 1, 2), _SHARES)[0]) for _ in range(frequent)]
        if found:
            yield sorted(found, key=lambda row: row[0])


def _scheme(random: Random) -> str:
    return "http://" if random.random() < 0.2 else "https://"


def _capture(random: Random, url: str, subset: int, *, typed: bool = True) -> _Row:
    values = {name: random.choices([*shares[subset]], shares[subset].values())[0] for name, shares in _FIELDS.items()}  # type: ignore[arg-type]
    time, segment = _START + timedelta(seconds=random.randrange(1_250_000)), random.randrange(100)
    values["digest"] = "F" * 32 if random.random() < 0.1 else b32encode(random.randbytes(20)).decode()
    if values["status"] == "304":  # revisits have neither a digest nor a detected type
        values["digest"] = values["mime-detected"] = None
    if not typed:
        values["mime-detected"] = None
    began = _START + timedelta(seconds=12_000 * segment)
    folder = f"{int(began.timestamp())}{371 + 5 * segment}.{segment}"
    name = f"CC-MAIN-20220807{segment:06}-{random.randrange(20):05}.warc.gz"
    values["filename"] = f"crawl-data/{CRAWL}/segments/{folder}/{SUBSETS[subset]}/{name}"
    values |= {"url": url, "length": str(random.randrange(300, 60_000)), "offset": str(random.randrange(1_200_000_000))}
    fields = {name: value for name in _COLUMNS if (value := values[name]) is not None}
    key = url_surtkey(url)
    line = f"{key} {time:%Y%m%d%H%M%S} {json.dumps(fields, ensure_ascii=random.random() < 0.5)}"
    row: dict[str, Any] = {column: values[name] for name, column in _COLUMNS.items()}
    # In the columnar index, the status -1 stands for a missing one.
    row |= {"fetch_status": int(values["status"] or -1), "fetch_time": time, "url_surtkey": key}
    row |= {each: int(row[each]) for each in ("warc_record_length", "warc_record_offset")}
    protocol, _, netloc = url.split("/")[:3]
    place = {"url_host_name": netloc.partition(":")[0], "url_protocol": protocol[:-1], "warc_segment": folder}
    return line, row | place | {"subset": SUBSETS[subset]}


def _sites(random: Random, words: Sequence[str], count: int) -> dict[str, tuple[str, str]]:
    """Return two spellings of the host of each site, by the beginning of its keys, in the order of keys."""
    host = FREQUENT_URL.split("/")[2]
    found = {url_surtkey(f"http://{host}/"): (host, f"www.{host}")}
    while len(found) < count:
        domain = f"{random.choice(words)}{random.choice(('', '-', '2'))}{random.choice(words)}"
        domain = f"{domain}.{random.choices([*_TLDS], _TLDS.values())[0]}"  # type: ignore[arg-type]
        labels = random.choice((("",), ("",), ("", "shop."), ("", "blog.", "a.b.c.")))
        if random.random() < 0.01:
            domain, labels = ".".join(str(random.randrange(1, 255)) for _ in range(4)), ("",)
        for label in labels:
            port = random.choice((":8080", ":81")) if random.random() < 0.02 else ""
            name = f"{label}{domain}{port}"
            other = name if domain[0].isdigit() else f"www.{name}"
            found.setdefault(url_surtkey(f"http://{name}/"), (name, other))
    return dict(sorted(found.items()))


def _heads(random: Random, words: Sequence[str], count: int) -> list[str]:
    odd: list[Callable[[str], str]] = [
        lambda word: f"/~{word}",
        lambda word: f"/{word}|{random.choice(words)}",
        lambda word: f"/{word}%C3%A9",
        lambda word: f"/{word}\u00e9\u20ac",
        lambda word: f"/%E2%82%AC-{word}",
        lambda word: f"/{word}}}",
        lambda word: f"/{word}\"'\\",
        lambda word: f"/{word}%ff%80",
        lambda word: f"//{word.upper()}//{word}",
        lambda word: f"/{word}/" + "-".join(random.choices(words, k=random.randrange(400, 800))),
    ]
    found = []
    for number in range(count):
        word = random.choice(words)
        usual = "/".join(["", *random.choices(words, k=random.choice((1, 1, 2, 3)))])
        found.append(odd[number // 20 % len(odd)](word) if number % 20 == 0 else usual)
    return found


def _tails(random: Random, words: Sequence[str], count: int) -> list[str]:
    """Return ends of paths, the first of which is empty."""
    kinds: list[Callable[[str, int], str]] = [
        lambda word, number: f"/{word}-{number}.html",
        lambda word, number: f"/{word.title()}/{number}/",
        lambda word, number: f"/{word}?id={number}&a={word}",
        lambda word, number: f"/{word}?q=%E2%82%AC{number}&p=~|",
        lambda _, number: f"/{number}~",
        lambda word, _: f"/{word}/",
        lambda word, number: f"/{word}-{number}",
        lambda _, number: f"/a|{number}",
    ]
    return [
        "",
        *(kinds[number % len(kinds)](random.choice(words), random.randrange(40_000)) for number in range(count)),
    ]
