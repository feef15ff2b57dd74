"""An index file of the size of Common Crawl's: row groups of 1.5 million rows, pages of 20,000 rows or 1 MiB.

Its columns, their types and encodings are those that Spark wrote in 2022, and as in those files a row takes 80 to 90
bytes: about 15 of its key, 16 of its URL and 23 of its digest. What the columns say is made up, but it agrees: keys are
those of the URLs, and the parts of a host are those of its name.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.crawls import path_of, write_lists
from catalogue.commoncrawl.crawls import PATH_COLUMNS
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.surt import url_surtkey

CRAWL = "CC-MAIN-2022-33"
ROW_GROUPS = 3
FULL, SMALL = 1_500_000, 60_000
"""Rows of a row group."""

INDEX_FILE = path_of(CRAWL, 0)

QUERIES = {
    "exact URL": ("com,saffron-madeup)/", "com,saffron-madeup)/!"),
    "host": ("com,saffron-madeup)", "com,saffron-madeup*"),
    "domain": ("com,saffron-madeup)", "com,saffron-madeup-"),
    "TLD": ("coop,", "coop-"),
}
"""From which key, to which that is not meant any more. A URL's key is followed by nothing less than ``!``; a host's
ends with ``)`` and a domain's with that or ``,``, as long as there is no port, and only ``*`` and ``+`` are between."""

_Codes = NDArray[np.int64]

_NOT_THERE = ("warc_record_id", *PATH_COLUMNS)
_INT32 = ("warc_record_offset", "warc_record_length")
_PLAIN = ("url_surtkey", "url", "url_path", "url_query", "fetch_time", "content_digest", *_INT32)
"""Spark gives up the dictionaries of these on their first page."""
_START = datetime(2022, 8, 7, 12, 0, 0, tzinfo=UTC)

_TLDS = {"com": 54.0, "coop": 1.0, "cr": 2.0, "cu": 1.0, "cv": 0.3, "cy": 2.0, "cz": 39.7}
"""Neighbours in order of keys, as one file has them, and how many in a hundred hosts each has."""
_FORCED = (("saffron-madeup.com", 60), ("blog.saffron-madeup.com", 40), ("en.shop.saffron-madeup.com", 120))
"""Hosts that questions ask for, and their rows."""
_ROWS_A_HOST = 60
_SEGMENTS, _WARCS = 100, 720
"""Parts of a crawl, and files of each."""


@dataclass(frozen=True, slots=True)
class _Host:
    """A host and port; what its pages have in common."""

    name: str
    port: int | None
    style: int
    """Any number, from which follows how its URLs look."""

    @property
    def key(self) -> str:
        """How keys begin that are its own."""
        port = f":{self.port}" if self.port else ""
        return f"{','.join(self.name.removeprefix('www.').split('.')[::-1])}{port})"

    @property
    def netloc(self) -> str:
        """Name and port as in a URL."""
        return f"{self.name}:{self.port}" if self.port else self.name

    def columns(self) -> dict[str, str | int | None]:
        """What all its rows say of it."""
        parts = self.name.split(".")[::-1]
        second, third, fourth, fifth = (*parts[1:], None, None, None)[:4]
        domain = ".".join(parts[1::-1])
        native = {"cz": "ces", "cr": "spa", "cu": "spa", "cv": "por", "cy": "ell"}.get(parts[0], "eng")
        return {
            "url_host_name": self.name,
            "url_host_tld": parts[0],
            "url_host_2nd_last_part": second,
            "url_host_3rd_last_part": third,
            "url_host_4th_last_part": fourth,
            "url_host_5th_last_part": fifth,
            "url_host_registry_suffix": parts[0],
            "url_host_registered_domain": domain,
            "url_host_private_suffix": parts[0],
            "url_host_private_domain": domain,
            "url_host_name_reversed": ".".join(parts),
            "url_port": self.port,
            "content_mime_type": "unk" if self.style % 5 == 0 else "text/html",
            "content_charset": ("UTF-8", "UTF-8", "UTF-8", "UTF-8", "ISO-8859-1", "windows-1250")[self.style % 6],
            "content_languages": (native, native, native, f"{native},eng", "deu", f"eng,{native}")[self.style // 7 % 6],
        }


def real_size(cache: Path, *, rows: int) -> Path:
    """The folder to serve, with the list of crawls, the manifest and the file; made unless the cache has it.

    Args:
        cache: a folder.
        rows: of each row group; ``FULL`` or ``SMALL``.
    """
    folder = cache / f"crawl-{ROW_GROUPS}-times-{rows}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(prefix="crawl-", dir=cache))
        try:
            write_lists(made, CRAWL, 1)
            (made / INDEX_FILE).parent.mkdir(parents=True)
            _write(made / INDEX_FILE, rows)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def _write(path: Path, rows: int) -> None:
    rng = np.random.default_rng(2022)
    words = _Words(Random(33))
    groups = _hosts(words, rng, rows)
    schema = _schema()
    with writing(path, schema, page_rows=20_000) as writer:
        for hosts, counts in groups:
            table = _row_group(words, rng, hosts, counts)
            _check(table, rng)
            writer.write_table(table.select(schema.names), row_group_size=rows)


def writing(path: Path, schema: pa.Schema, *, page_rows: int) -> pq.ParquetWriter:
    """What writes such a file."""
    return pq.ParquetWriter(
        path,
        schema,
        version="1.0",
        store_schema=False,
        compression="gzip",
        compression_level=6,
        data_page_size=1 << 20,
        max_rows_per_page=page_rows,
        write_batch_size=min(page_rows, 1024),
        use_dictionary=[name for name in schema.names if name not in _PLAIN],
        write_page_index=True,
        write_page_checksum=True,
    )


def _schema() -> pa.Schema:
    columns = [column for column in SCHEMA if column.name not in _NOT_THERE]
    fields = [pa.field(one.name, pa.int32() if one.name in _INT32 else one.type) for one in columns]
    # Spark writes the schema a second time, as JSON.
    described = [{"name": field.name, "type": "string", "nullable": True, "metadata": {}} for field in fields]
    row = json.dumps({"type": "struct", "fields": described})
    spark = {"org.apache.spark.version": "3.2.1", "org.apache.spark.sql.parquet.row.metadata": row}
    return pa.schema(fields, metadata=spark)


class _Words:
    """What hosts and paths are made of."""

    def __init__(self, rng: Random) -> None:
        syllables = ["".join(pair) for pair in product("bcdfghjklmnprstvwz", "aeiou")]
        names = {"".join(rng.choices(syllables, k=rng.choice((2, 2, 3, 3, 4)))) for _ in range(6000)}
        self.lower = sorted(names)
        rng.shuffle(self.lower)
        escaped = [f"{word}%C3%A9" if number % 50 == 7 else word for number, word in enumerate(self.lower)]
        titles = [word[0].upper() + word[1:] for word in escaped]
        self.in_paths = pa.array([*(f"-{word}" for word in escaped), *(f"-{word}" for word in titles), ""])
        """In lower case, as titles, and nothing."""
        folders = ("blog", "product", "category/home", "en/shop", "wiki", "tag", "2021/05", "forum/thread", "node", "u")
        self.heads = pa.array(
            [*(f"/{one}/" for one in folders), *(f"/{one}/{two}/" for one in folders for two in names)]
        )
        self.numbers = pa.array([*(f"-{number}" for number in range(200_000)), ""])
        self.endings = pa.array(["", "/", ".html", "", "/", ".php"])
        self.endings_in_keys = pa.array(["", "", ".html", "", "", ".php"])
        # Arguments as keys have them, in order, and as these URLs do.
        numbers = range(5000)
        self.queries = pa.array([*(f"id={n}&page={n % 9}" for n in numbers), *(f"p={n}" for n in numbers), None])
        self.queries_in_urls = pa.array(
            [*(f"page={n % 9}&id={n}" for n in numbers), *(f"p={n}" for n in numbers), None]
        )


# ---- hosts ----


def _hosts(words: _Words, numbers: np.random.Generator, rows: int) -> list[tuple[list[_Host], _Codes]]:
    """The hosts of each row group, in order of keys, and how many rows each has."""
    rng = Random(7)
    named: dict[str, _Host] = {}
    enough = ROW_GROUPS * rows // _ROWS_A_HOST
    while len(named) < enough:
        for host in _domain(words, rng):
            named.setdefault(host.key, host)
    forced = dict(_FORCED)
    named |= {host.key: host for host in (_Host(name, None, 1) for name in forced)}
    hosts = [named[key] for key in sorted(named)]
    # Few are large and most are small. A tenth more than is needed, for the forced ones and those that are cut off.
    weights = np.minimum(numbers.pareto(0.9, len(hosts)) + 0.02, 400.0)
    sizes = np.maximum(1, weights / weights.sum() * ROW_GROUPS * rows * 1.1).astype(np.int64)
    counts = [forced.get(host.name, int(size)) for host, size in zip(hosts, sizes, strict=True)]
    groups, start = [], 0
    for _ in range(ROW_GROUPS):
        sums = np.cumsum(counts[start:])
        end = start + int(np.searchsorted(sums, rows)) + 1
        held = np.array(counts[start:end], np.int64)
        held[-1] -= sums[end - start - 1] - rows
        groups.append((hosts[start:end], held))
        start = end
    return groups


def _domain(words: _Words, rng: Random) -> list[_Host]:
    """The hosts of one domain."""
    tld = rng.choices([*_TLDS], [*_TLDS.values()])[0]
    name = f"{rng.choice(words.lower)}{rng.choice((*words.lower[:300], ''))}-madeup.{tld}"
    labels = rng.choices(
        (("www.",), ("",), ("", "blog."), ("www.", "shop.", "static.cdn."), ("en.shop.cdn.", "m."), ("",)),
        (45, 30, 12, 8, 4, 1),
    )[0]
    port = 8080 if rng.random() < 0.01 else None
    return [_Host(label + name, port, rng.randrange(1 << 30)) for label in labels]


# ---- rows ----


def _row_group(words: _Words, rng: np.random.Generator, hosts: Sequence[_Host], counts: _Codes) -> pa.Table:
    """The rows of these hosts, in order of keys."""
    codes = _urls(words, rng, hosts, counts)
    count = len(codes["host"])
    keys = _keys(words, hosts, codes)
    order = pc.sort_indices(keys)
    codes = {name: values[order.to_numpy()] for name, values in codes.items()}
    paths = _paths(words, codes, in_keys=False)
    queries = _pick(words.queries_in_urls, codes["query"])
    protocols = np.where(rng.random(count) < 0.05, 1 - codes["protocol"], codes["protocol"])
    starts = pa.array(["http://", "https://"])
    netlocs = _pick(pa.array([host.netloc for host in hosts]), codes["host"])
    suffixes = pc.fill_null(pc.binary_join_element_wise("?", queries, ""), "")
    segments = rng.integers(_SEGMENTS, size=count)
    seconds = segments * 12_000 + rng.integers(3 * 3600, size=count)
    warcs = rng.integers(_WARCS, size=count)
    columns = {
        "url_surtkey": keys.take(order),
        "url": pc.binary_join_element_wise(_pick(starts, protocols), netlocs, paths, suffixes, ""),
        "url_protocol": _pick(pa.array(["http", "https"]), protocols),
        "url_path": paths,
        "url_query": queries,
        "fetch_time": pa.array(1000 * (int(_START.timestamp()) + seconds)).cast(pa.timestamp("ms", "UTC")),
        "fetch_status": pa.array(np.full(count, 200, np.int16)),
        "fetch_redirect": pa.nulls(count, pa.string()),
        "content_digest": _digests(rng, count),
        "content_mime_detected": _rarely(rng, count, "text/html", "application/xhtml+xml", "application/pdf"),
        "content_truncated": _rarely(rng, count, None, "length", "disconnect"),
        "warc_filename": _pick(pa.array(_warc_names()), segments * _WARCS + warcs),
        "warc_record_offset": pa.array(rng.integers(1_200_000_000, size=count, dtype=np.int32)),
        "warc_record_length": pa.array((rng.lognormal(9.6, 0.9, count) + 400).astype(np.int32)),
        "warc_segment": _pick(pa.array([_segment(number) for number in range(_SEGMENTS)]), segments),
    }
    described = [host.columns() for host in hosts]
    for name in described[0]:
        values = pa.array([each[name] for each in described], SCHEMA.field(name).type)
        columns[name] = _pick(values, codes["host"])
    return pa.table(columns)


def _urls(words: _Words, rng: np.random.Generator, hosts: Sequence[_Host], counts: _Codes) -> dict[str, _Codes]:
    """What the URLs are put together of, by its places among the words; not in order."""
    host = np.repeat(np.arange(len(hosts)), counts)
    count = len(host)
    styles = np.array([each.style for each in hosts])[host]
    vocabulary, nothing = len(words.lower), len(words.in_paths) - 1
    title = np.where(styles % 10 == 0, vocabulary, 0)
    codes = {"host": host, "ending": styles % len(words.endings), "protocol": (styles // 11 % 4 > 0).astype(np.int64)}
    # Few folders a site, and a vocabulary of its own of which some words are frequent.
    codes["head"] = (styles // 13 + (rng.random(count) ** 2 * 12).astype(np.int64) * 31) % len(words.heads)
    for place, share in enumerate((1.0, 0.9, 0.7, 0.45, 0.25)):
        word = (styles // 17 + (rng.random(count) ** 3 * 1500).astype(np.int64)) % vocabulary + title
        codes[f"word{place}"] = np.where(rng.random(count) < share, word, nothing)
    codes["number"] = np.where(rng.random(count) < 0.3, rng.integers(200_000, size=count), 200_000)
    codes["query"] = np.where(rng.random(count) < 0.1, rng.integers(10_000, size=count), 10_000)
    # Some pages are fetched twice.
    again = np.flatnonzero((rng.random(count) < 0.03) & (host == np.roll(host, 1)))
    for values in codes.values():
        values[again] = values[again - 1]
    # The first row of each host is its root.
    codes["root"] = (host != np.roll(host, 1)).astype(np.int64)
    codes["query"][codes["root"] == 1] = 10_000
    return codes


def _keys(words: _Words, hosts: Sequence[_Host], codes: dict[str, _Codes]) -> pa.Array:
    starts = _pick(pa.array([host.key for host in hosts]), codes["host"])
    queries = pc.fill_null(pc.binary_join_element_wise("?", _pick(words.queries, codes["query"]), ""), "")
    paths = pc.ascii_lower(_paths(words, codes, in_keys=True))
    return pc.binary_join_element_wise(starts, paths, queries, "")


def _paths(words: _Words, codes: dict[str, _Codes], *, in_keys: bool) -> pa.Array:
    endings = words.endings_in_keys if in_keys else words.endings
    slugs = [_pick(words.in_paths, codes[f"word{place}"]) for place in range(5)]
    slug = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*slugs, _pick(words.numbers, codes["number"]), ""), 1)
    paths = pc.binary_join_element_wise(_pick(words.heads, codes["head"]), slug, _pick(endings, codes["ending"]), "")
    return pc.if_else(pa.array(codes["root"] == 1), "/", paths)


def _pick(values: pa.Array, places: _Codes) -> pa.Array:
    return values.take(pa.array(places))


def _rarely(rng: np.random.Generator, count: int, usual: str | None, *others: str) -> pa.Array:
    """A value that few rows have another than."""
    rare = np.where(rng.random(count) < 0.02, rng.integers(len(others), size=count) + 1, 0)
    return _pick(pa.array([usual, *others]), rare)


def _digests(rng: np.random.Generator, count: int) -> pa.Array:
    """SHA-1 in base32: as many random bits."""
    alphabet = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", np.uint8)
    letters = alphabet[rng.integers(32, size=32 * count, dtype=np.uint8)]
    ends = np.arange(0, 32 * count + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(letters))


def _segment(number: int) -> str:
    start = _START + timedelta(seconds=12_000 * number)
    return f"{int(start.timestamp())}{371 + 5 * number}.{number}"


def _warc_names() -> list[str]:
    names = []
    for number in range(_SEGMENTS):
        start = _START + timedelta(seconds=12_000 * number)
        times = f"{start:%Y%m%d%H%M%S}-{start + timedelta(hours=3):%Y%m%d%H%M%S}"
        folder = f"crawl-data/{CRAWL}/segments/{_segment(number)}/warc"
        names += [f"{folder}/CC-MAIN-{times}-{warc:05}.warc.gz" for warc in range(_WARCS)]
    return names


def _check(table: pa.Table, rng: np.random.Generator) -> None:
    """Raise unless keys are those of the URLs, and in order."""
    sample: list[dict[str, Any]] = (
        table.select(["url_surtkey", "url"]).take(pa.array(rng.integers(len(table), size=2000))).to_pylist()
    )
    wrong = [row for row in sample if url_surtkey(row["url"]) != row["url_surtkey"]]
    keys = table["url_surtkey"].combine_chunks()
    if wrong or not pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        message = f"not the keys of their URLs: {wrong[:3]}" if wrong else "the keys are not in order"
        raise AssertionError(message)
