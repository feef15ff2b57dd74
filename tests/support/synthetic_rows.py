"""Rows of a synthetic crawl, and the lines of the CDX index that describe the same captures.

Lines are not made by the code that is tested. A column has few different values, or random ones; the key of a URL is
joined from the keys of its parts, of which ``check_keys`` compares samples with the keys of complete URLs.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.surt import url_surtkey

CRAWL = "CC-MAIN-2022-33"
LINE = "line"
"""Column with the line of the CDX index, without its line feed."""
FREQUENT_URL = "https://frequent-synthetic.net/status?page=1"
"""A URL with very many captures."""
TRAPS = ("~", "|", "}", '"', "'", "\\", "%ff", "%c3%a9", "%e2%82%ac")
"""Characters and escapes of keys that are rare in real ones."""
_SHARES = (0.76, 0.21, 0.03)
"""Of ``SUBSETS`` among the rows."""
_ROWS_A_SITE = 40
_UNTYPED_SITES = 50
"""One of so many sites has no detected media types."""
_HEADS, _TAILS, _TIMES = 8_000, 30_000, 100_000
"""At most so many different beginnings and ends of paths, and times; in small crawls, fewer."""
_SEGMENTS, _ARCHIVES = 100, 20
_START = datetime(2022, 8, 7, 12, 0, 0, tzinfo=UTC)
_TLDS = {"com": 52, "org": 14, "net": 8, "de": 10, "co.uk": 6, "is": 1, "museum": 1, "cz": 6, "xn--p1ai": 1, "ee": 1}
_Codes = NDArray[np.int64]


@dataclass(frozen=True)
class _Texts:
    """Different values of a part of URLs: in URLs, in the JSON text of lines, and in keys."""

    url: pa.Array
    json: pa.Array
    key: pa.Array


def _texts(urls: Sequence[str], keys: Sequence[str]) -> _Texts:
    escaped = [json.dumps(url, ensure_ascii=number % 2 == 0)[1:-1] for number, url in enumerate(urls)]
    return _Texts(*(pa.array(values, pa.string()) for values in (urls, escaped, keys)))


@dataclass(frozen=True)
class _Values:
    """Different values of a column, each with its share of the rows and its part of a line."""

    values: pa.Array
    shares: Sequence[float]
    members: pa.Array


def _values(column: str, field: str, shares: dict[str | None, float]) -> _Values:
    """Return the values of a field of lines; None for lines without it."""
    members = ["" if value is None else f', "{field}": {json.dumps(value)}' for value in shares]
    kind = SCHEMA.field(column).type
    # In the columnar index, the status -1 stands for a missing one.
    there = [-1 if value is None else int(value) for value in shares] if pa.types.is_integer(kind) else [*shares]
    weights = np.array([*shares.values()])
    return _Values(pa.array(there, kind), (weights / weights.sum()).tolist(), pa.array(members))


_REDIRECTS = {None: 3.0, "https://example.com/": 1.0, "https://example.com/caf\u00e9?a=\u20ac": 0.1, '/x\\"y': 0.1}
_FIELDS: dict[str, tuple[str, tuple[dict[str | None, float], ...]]] = {
    "content_mime_type": (
        "mime",
        (
            {"text/html": 85, "unk": 5, None: 1, "application/pdf": 6, "image/jpeg": 3},
            {"unk": 60, "text/html": 35, "warc/revisit": 4, None: 1},
            {"text/plain": 70, "text/html": 20, "unk": 10},
        ),
    ),
    "content_mime_detected": (
        "mime-detected",
        (
            {"text/html": 80, "application/xhtml+xml": 10, "application/pdf": 6, "image/jpeg": 3, None: 1},
            {"text/html": 70, "application/octet-stream": 25, None: 5},
            {"text/x-robots": 60, "text/plain": 20, "text/html": 20},
        ),
    ),
    "fetch_status": (
        "status",
        (
            {"200": 100},
            {"301": 45, "302": 15, "404": 28, "304": 4, "403": 5, "500": 2, "503": 0.5, None: 0.5},
            {"200": 70, "404": 20, "301": 10},
        ),
    ),
    "content_charset": ("charset", ({"UTF-8": 88, "ISO-8859-1": 3, None: 9}, {None: 100}, {None: 90, "UTF-8": 10})),
    "content_languages": (
        "languages",
        ({"eng": 44, "deu": 6, "deu,eng": 2, "rus,eng,ukr": 1, None: 47}, {None: 100}, {None: 100}),
    ),
    "content_truncated": ("truncated", ({None: 97, "length": 2, "disconnect": 1}, {None: 1}, {None: 1})),
    "fetch_redirect": ("redirect", ({None: 1}, _REDIRECTS, _REDIRECTS)),
}
"""Of each column: the field of lines, and the shares of values in each of ``SUBSETS``; None for missing values."""
_BEFORE_PLACE = ("content_mime_type", "content_mime_detected", "fetch_status")
"""Columns whose fields stand before digest, length and offset in a line."""


class SyntheticRows:
    """Makes rows in parts of neighbouring sites, in the order of their keys."""

    def __init__(self, rows: int, frequent: int, seed: int) -> None:
        """Choose sites and the parts of URLs; ``frequent`` rows are captures of ``FREQUENT_URL``."""
        random, numbers = Random(f"synthetic {seed}"), np.random.default_rng(seed)
        self._seed = seed
        self._frequent = frequent
        words = ["".join(random.choices("bcdfgklmnprst", k=2)) + random.choice("aeiou") * 2 for _ in range(900)]
        sites = _sites(random, words, rows // _ROWS_A_SITE)
        self._sites = [*sites.items()]
        sizes = np.minimum(numbers.pareto(1.0, len(sites)) + 0.05, min(500.0, len(sites) / 20))
        ends = np.rint(np.cumsum(sizes) / sizes.sum() * (rows - frequent)).astype(np.int64)
        self._counts = np.diff(ends, prepend=0)
        heads, tails = _heads(random, words, min(_HEADS, rows // 8)), _tails(random, words, min(_TAILS, rows // 4))
        self._heads = _parts(heads, "http://x.example", "example,x)")
        self._tails = _parts(tails, "http://x.example/h", "example,x)/h")
        self._robots = len(self._heads.url) - 2
        times = [
            _START + timedelta(seconds=each) for each in sorted(random.sample(range(1_250_000), min(_TIMES, rows)))
        ]
        self._times = pa.array(times, SCHEMA.field("fetch_time").type)
        self._stamps = pa.array([f"{time:%Y%m%d%H%M%S}" for time in times])
        self._fields = {
            name: [_values(name, field, shares) for shares in by_subset] for name, (field, by_subset) in _FIELDS.items()
        }

    def part(self, number: int, of: int) -> pa.Table:
        """Make a part, sorted as the CDX index."""
        bounds = np.searchsorted(np.cumsum(self._counts), np.linspace(0, self._counts.sum(), of + 1)[1:-1])
        first, *_, last = np.concatenate([[0], bounds, [len(self._sites)]])[number : number + 2].tolist()
        sites = self._sites[first:last]
        rng = np.random.default_rng([self._seed, number])
        site = np.repeat(np.arange(len(sites)), self._counts[first:last])
        names = [name for name, _ in sites]
        if _FREQUENT_SITE in names:
            site = np.concatenate([site, np.full(self._frequent, names.index(_FREQUENT_SITE))])
        subset = rng.choice(len(SUBSETS), len(site), p=_SHARES)
        head, tail = self._paths(rng, site + first, subset)
        if _FREQUENT_SITE in names:
            head[-self._frequent :] = len(self._heads.url) - 1
            tail[-self._frequent :] = len(self._tails.url) - 1
        return self._table(rng, sites, site, subset, head, tail, (site + first) % _UNTYPED_SITES == 0)

    def _paths(self, rng: np.random.Generator, site: _Codes, subset: _Codes) -> tuple[_Codes, _Codes]:
        """Choose beginnings and ends of paths: few a site, and some URLs again and again."""
        count = len(site)
        head = 1 + (site * 7 + (rng.random(count) ** 2 * 12).astype(np.int64) * 31) % (self._robots - 1)
        tail = (site * 13 + (rng.random(count) ** 3 * 3000).astype(np.int64) * 17) % (len(self._tails.url) - 1)
        again = np.flatnonzero((rng.random(count) < 0.15) & (site == np.roll(site, 1)))
        for values in (head, tail):
            values[again] = values[again - 1]
        root = site != np.roll(site, 1)
        robots = subset == SUBSETS.index("robotstxt")
        head[root], head[robots] = 0, self._robots
        tail[root | robots] = 0
        return head, tail

    def _table(
        self,
        rng: np.random.Generator,
        sites: Sequence[tuple[str, tuple[str, str]]],
        site: _Codes,
        subset: _Codes,
        head: _Codes,
        tail: _Codes,
        untyped: NDArray[np.bool_],
    ) -> pa.Table:
        count = len(site)
        start = _pick(pa.array(["https://", "http://"]), (rng.random(count) < 0.2).astype(np.int64))
        netlocs = pa.array([name for _, names in sites for name in names])
        netloc = _pick(netlocs, site * 2 + (rng.random(count) < 0.1))
        segment, archive = rng.integers(_SEGMENTS, size=count), rng.integers(_ARCHIVES, size=count)
        times = rng.integers(len(self._times), size=count)
        offset, length = rng.integers(1_200_000_000, size=count), rng.integers(300, 60_000, size=count)
        digest = _digests(rng, count)
        columns = {
            "url_surtkey": _joined(
                _pick(pa.array([key for key, _ in sites]), site),
                _pick(self._heads.key, head),
                _pick(self._tails.key, tail),
            ),
            "url": _joined(start, netloc, _pick(self._heads.url, head), _pick(self._tails.url, tail)),
            "url_host_name": pc.replace_substring_regex(netloc, ":[0-9]+$", ""),
            "url_protocol": pc.replace_substring(start, "://", ""),
            "fetch_time": _pick(self._times, times),
            "content_digest": digest,
            "warc_filename": _pick(pa.array(_archives()), (subset * _SEGMENTS + segment) * _ARCHIVES + archive),
            "warc_record_offset": pa.array(offset, pa.int32()),
            "warc_record_length": pa.array(length, pa.int32()),
            "warc_segment": _pick(pa.array([_segment(number) for number in range(_SEGMENTS)]), segment),
            "subset": _pick(pa.array(SUBSETS), subset),
        }
        members = {}
        for name, by_subset in self._fields.items():
            codes, at = np.zeros(count, np.int64), 0
            for place, each in enumerate(by_subset):
                inside = np.flatnonzero(subset == place)
                codes[inside] = at + rng.choice(len(each.values), len(inside), p=each.shares)
                at += len(each.values)
            columns[name] = _pick(pa.concat_arrays([each.values for each in by_subset]), codes)
            members[name] = _pick(pa.concat_arrays([each.members for each in by_subset]), codes)
        # Revisits have neither a digest nor a detected type.
        revisit = pc.fill_null(pc.equal(columns["fetch_status"], 304), fill_value=False)
        columns["content_digest"] = pc.if_else(revisit, None, digest)
        untyped_rows = pc.or_(revisit, pa.array(untyped))
        columns["content_mime_detected"] = pc.if_else(untyped_rows, None, columns["content_mime_detected"])
        members["content_mime_detected"] = pc.if_else(untyped_rows, "", members["content_mime_detected"])
        digests = pc.if_else(revisit, "", _joined(', "digest": "', digest, '"'))
        text = _joined(
            *('{"url": "', start, netloc, _pick(self._heads.json, head), _pick(self._tails.json, tail), '"'),
            *(members[name] for name in _BEFORE_PLACE),
            *(digests, ', "length": "', columns["warc_record_length"].cast(pa.string())),
            *('", "offset": "', columns["warc_record_offset"].cast(pa.string())),
            *('", "filename": "', columns["warc_filename"], '"'),
            *(members[name] for name in members if name not in _BEFORE_PLACE),
            "}",
        )
        stamp = _pick(self._stamps, times)
        place = pa.table({"key": columns["url_surtkey"], "stamp": stamp, "text": text})
        order = pc.sort_indices(place, [(name, "ascending") for name in place.column_names])
        lines = pc.binary_join_element_wise(columns["url_surtkey"], stamp, text, " ")
        return pa.table(columns | {LINE: lines}).take(order)


def check_keys(rows: pa.Table, count: int, seed: int) -> None:
    """Compare keys of some rows with those of their URLs."""
    places = np.random.default_rng(seed).integers(len(rows), size=count)
    some = rows.select(["url", "url_surtkey"]).take(pa.array(places))
    for url, key in zip(*(column.to_pylist() for column in some.columns), strict=True):
        assert url_surtkey(url) == key, url


_FREQUENT_SITE = url_surtkey(FREQUENT_URL).partition("/")[0]


def _sites(random: Random, words: Sequence[str], count: int) -> dict[str, tuple[str, str]]:
    """Return two spellings of the host of each site, by the beginning of its keys, in the order of keys."""
    found: dict[str, tuple[str, str]] = {}
    tlds, weights = [*_TLDS], [*_TLDS.values()]
    found[_FREQUENT_SITE] = ("frequent-synthetic.net", "www.frequent-synthetic.net")
    while len(found) < count:
        domain = f"{random.choice(words)}{random.choice(('', '-', '2'))}{random.choice(words)}"
        domain = f"{domain}.{random.choices(tlds, weights)[0]}"
        labels = random.choice((("",), ("",), ("", "shop."), ("", "blog.", "a.b.c.")))
        if random.random() < 0.01:
            domain, labels = ".".join(str(random.randrange(1, 255)) for _ in range(4)), ("",)
        for label in labels:
            port = random.choice((":8080", ":81")) if random.random() < 0.02 else ""
            name = f"{label}{domain}{port}"
            other = name if domain[0].isdigit() else f"www.{name}"
            found.setdefault(url_surtkey(f"http://{name}/").removesuffix("/"), (name, other))
    return dict(sorted(found.items()))


def _heads(random: Random, words: Sequence[str], count: int) -> list[str]:
    """Return beginnings of paths: the root first, then many, ``robots.txt``, and that of ``FREQUENT_URL``."""
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
    found = ["/"]
    for number in range(count):
        word = random.choice(words)
        usual = "/".join(["", *random.choices(words, k=random.choice((1, 1, 2, 3)))])
        found.append(odd[number // 20 % len(odd)](word) if number % 20 == 0 else usual)
    return [*found, "/robots.txt", "/status"]


def _tails(random: Random, words: Sequence[str], count: int) -> list[str]:
    """Return ends of paths: nothing first, then many, and that of ``FREQUENT_URL``."""
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
    made = (kinds[number % len(kinds)](random.choice(words), random.randrange(40_000)) for number in range(count))
    return ["", *made, "?page=1"]


def _parts(urls: Sequence[str], before: str, key_before: str) -> _Texts:
    keys = [url_surtkey(f"{before}{url}") for url in urls]
    assert all(key.startswith(key_before) for key in keys)
    return _texts(urls, [key.removeprefix(key_before) for key in keys])


def _pick(values: pa.Array, places: _Codes) -> pa.Array:
    return values.take(pa.array(places))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _digests(rng: np.random.Generator, count: int) -> pa.Array:
    """Return random SHA-1 digests in base32; a tenth are one."""
    alphabet = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", np.uint8)
    letters = alphabet[rng.integers(32, size=(count, 32), dtype=np.uint8)]
    letters[rng.random(count) < 0.1] = alphabet[5]
    ends = np.arange(0, 32 * count + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(letters.tobytes()))


def _segment(number: int) -> str:
    start = _START + timedelta(seconds=12_000 * number)
    return f"{int(start.timestamp())}{371 + 5 * number}.{number}"


def _archives() -> list[str]:
    return [
        f"crawl-data/{CRAWL}/segments/{_segment(segment)}/{subset}/CC-MAIN-20220807{segment:06}-{archive:05}.warc.gz"
        for subset in SUBSETS
        for segment in range(_SEGMENTS)
        for archive in range(_ARCHIVES)
    ]


def joined_parts(parts: Iterable[pa.Table]) -> pa.Table:
    """Join parts, and check that lines are in the order of their bytes and occur once."""
    rows = pa.concat_tables(parts)
    before: str | None = None
    for chunk in rows.column(LINE).chunks:
        lines = chunk.cast(pa.binary())
        assert pc.all(pc.less(lines[:-1], lines[1:]), min_count=0).as_py()
        assert before is None or before < chunk[0].as_py()
        before = chunk[-1].as_py()
    return rows
