"""Parsers of untrusted bytes, each as a function that fails if a parser does anything wrong with some bytes.

Each function takes bytes and returns whether they were accepted. It accepts no exceptions but the parser's own errors,
with messages of one line, and checks what always holds of an accepted value. ``run`` damages valid bytes at random;
``python -m tests.slow.fuzz`` searches for bytes with coverage feedback.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from random import Random
from time import process_time
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
from starlette.datastructures import QueryParams

from catalogue.cdx.lines import cdx_table, write_lines
from catalogue.cli.input_files import captures_in
from catalogue.commoncrawl.capture import capture_of
from catalogue.commoncrawl.columns import SCHEMA
from catalogue.commoncrawl.datasets import dataset_from_json, parse_path_list
from catalogue.commoncrawl.manifests import index_file, inflate, parse_collinfo, parse_manifest
from catalogue.errors import FormatError, QueryError, StoreDamaged, WrongRange
from catalogue.harvest.snapshot import crawl_of, unpack_snapshot
from catalogue.parquet.page_headers import walk
from catalogue.parquet.page_index import (
    encode_offset_index,
)
from catalogue.parquet.stored_indexes import Indexes
from catalogue.records.record import MAX_INFLATED, read_record
from catalogue.server.archived_pages import archived_headers, content_headers, memento_headers, parse_url
from catalogue.server.cdx_request import parse_query, parse_request
from catalogue.server.cdx_search import filter_tables, sort_captures
from catalogue.server.search import Form, parse_form
from catalogue.source.byte_ranges import content_range, parse_content_range
from catalogue.store.stored_file import DIGEST_SIZE, StoredFile, decode, encode
from catalogue.surt import Keys, Match, Pattern, covers, parse_key_pattern, parse_pattern, url_surtkey, url_surtkeys
from catalogue.url_index_2012.lookup import Header, parse_data_block, parse_header, parse_index_block
from catalogue.url_index_2012.url_keys import parse_key_prefix
from tests.slow.mutations import mirror_of
from tests.slow.mutators import damage
from tests.slow.parquet_parsers import (
    LONGEST,
    accepted,
    chunks,
    column_index,
    footer,
    offset_index,
    page_headers,
    stored_indexes,
    thrift,
)
from tests.support.crawls import CRAWL
from tests.support.footers import small_file, trimmed
from tests.support.mirrors import one_of_each_crawl, raw_footer, read_footer
from tests.support.prefix_indexes import index_bytes, url_key

_SLOWEST = 5.0
"""Seconds of CPU for a few kilobytes."""
_OPAQUE = ("dns:", "filedesc:", "warcinfo:")


@dataclass(frozen=True)
class Target:
    """A parser, and valid bytes."""

    accepts: Callable[[bytes], bool]
    seeds: Sequence[bytes]


# ---- URLs ----


def _check_pattern(pattern: Pattern) -> None:
    assert pattern.intervals
    assert all(each.start < each.end for each in pattern.intervals)
    assert all(one.end < other.start for one, other in pairwise(pattern.intervals))


def surt(data: bytes) -> bool:
    url = data.decode(errors="surrogateescape")

    def parse() -> None:
        keys = url_surtkeys(url)
        assert keys[0] == url_surtkey(url)
        assert len(keys) == len({*keys})
        for each in keys:
            each.encode()
            # A character of a host may become eighteen, and each of these three escapes of three characters.
            assert len(each) <= 170 * len(url) + 40
            assert url.startswith(_OPAQUE) or (each.isascii() and each == each.lower())
        try:
            pattern = parse_pattern(url, Match.EXACT)
        except QueryError:
            return
        assert url.strip().startswith(_OPAQUE) or all(
            covers(pattern.intervals, key.encode()) for key in url_surtkeys(url.strip())
        )

    return accepted(parse, QueryError)


def pattern(data: bytes) -> bool:
    text = data.decode(errors="surrogateescape")
    parsers: list[Callable[[], Pattern]] = [lambda: parse_pattern(text)]
    parsers += [lambda match=match: parse_pattern(text, match) for match in Match]  # type: ignore[misc]
    parsers += [lambda keys=keys: parse_key_pattern(text, keys) for keys in (Keys.HOST, Keys.TEXT)]  # type: ignore[misc]
    found = [accepted(lambda parse=parse: _check_pattern(parse()), QueryError) for parse in parsers]  # type: ignore[misc]

    def of_2012() -> None:
        found = parse_key_prefix(text)
        assert found.interval.start < found.interval.end

    return any([*found, accepted(of_2012, QueryError)])


def archived_url(data: bytes) -> bool:
    rest, _, query = data.partition(b"?")
    url = parse_url(rest, query)
    assert all("!" <= character <= "~" for character in url)
    return bool(url)


# ---- lists and stored values ----


def manifest(data: bytes) -> bool:
    packed = data[1:] if data[:1] < b"\x80" else gzip.compress(data[1:], 1, mtime=0)

    def parse() -> None:
        files = parse_manifest(CRAWL, packed)
        assert len(files) == len({*files})
        assert all(index_file(each.path) == each and each.crawl == CRAWL for each in files)
        assert len(inflate(packed)) > 0

    def parse_paths() -> None:
        paths = parse_path_list(packed, source="https://example.com/")
        assert all(path.isascii() and ".." not in path.split("/") and not path.startswith("/") for path in paths)

    return any([accepted(parse, FormatError), accepted(parse_paths, FormatError)])


def collinfo(data: bytes) -> bool:
    def parse() -> None:
        crawls = parse_collinfo(data)
        assert crawls
        assert len({each.id for each in crawls}) == len(crawls)
        assert all(time is None or time.tzinfo for each in crawls for time in (each.first_fetch, each.last_fetch))

    return accepted(parse, FormatError)


def dataset(data: bytes) -> bool:
    return accepted(lambda: dataset_from_json(data), FormatError)


def snapshot(data: bytes) -> bool:
    def parse() -> None:
        found = unpack_snapshot(data)
        assert unpack_snapshot(found.pack()) == found
        assert all(crawl_of(each.name) for each in found.files)

    return accepted(parse, FormatError)


def stored_value(data: bytes) -> bool:
    """Parse what follows the digest of a stored value; an attacker can compute the digest."""
    value = b"\x01" + blake2b(data, digest_size=DIGEST_SIZE).digest() + data

    def parse() -> None:
        found = decode(value)
        assert decode(encode(found)) == found

    return accepted(parse, StoreDamaged)


class _Named(BytesIO):
    name = "listed"


def capture_list(data: bytes) -> bool:
    def parse() -> None:
        for row in captures_in(_Named(data)).to_pylist():
            accepted(lambda row=row: _check_capture(row), FormatError)  # type: ignore[misc]

    return accepted(parse, QueryError)


def capture(data: bytes) -> bool:
    try:
        row = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and accepted(lambda: _check_capture(row), FormatError)


def _check_capture(row: dict[str, Any]) -> None:
    found = capture_of(row)
    assert 0 <= found.range.start < found.range.end
    assert not found.filename.startswith(("/", "."))
    assert not {"", ".", ".."} & {*found.filename.split("/")}
    assert found.time is None or found.time.tzinfo


def url_index_2012(data: bytes) -> bool:
    """Parse a file of blocks of 64 bytes, one by one."""

    def parse() -> None:
        header = parse_header(data[:8], len(data))
        for number in range(min(header.blocks, 40)):
            place = header.place(number, number)
            accepted(lambda n=number, p=place: _check_block(header, n, data[p.start : p.end]), FormatError)  # type: ignore[misc]

    return accepted(parse, FormatError)


def _check_block(header: Header, number: int, block: bytes) -> None:
    if number < header.index_blocks:
        found = parse_index_block(header, number, block)
        assert number < found.first <= found.first + len(found.prefixes) < header.blocks
        assert all(one <= other for one, other in pairwise(found.prefixes))
        for key in (b"", b"com", *found.prefixes):
            below, low, high = found.down(key)
            assert found.first <= below <= found.first + len(found.prefixes)
            assert (low or b"") <= key
            assert high is None or key <= high
        return
    for each in parse_data_block(number, block):
        accepted(lambda each=each: _check_url(each.capture().url), FormatError)  # type: ignore[misc]


def _check_url(url: str | None) -> None:
    assert url
    assert "://" in url


# ---- records and requests ----


def record(data: bytes) -> bool:
    """Parse a record: gzipped, or to be gzipped."""
    member = data[1:] if data[:1] < b"\x20" else gzip.compress(data[1:], 1, mtime=0)
    where = capture_of({"filename": "crawl-data/x.warc.gz", "offset": 0, "length": max(1, len(member))})

    def parse() -> None:
        found = read_record(where, member)
        assert len(found.http_head) + len(found.body) <= MAX_INFLATED
        assert found.status is None or found.status >= 0
        assert found.mime is None or found.mime == found.mime.lower()
        assert not accepted(lambda: found.payload, FormatError) or len(found.payload) <= MAX_INFLATED
        headers = [*archived_headers(found), *content_headers(found), *memento_headers(found)]
        assert all(name.isascii() and name.isprintable() and name for name, _ in headers)
        assert not [name for name, value in headers if {"\r", "\n", "\0"} & {*value}]
        for _, value in headers:
            value.encode("latin-1")

    return accepted(parse, FormatError)


@cache
def _rows() -> pa.RecordBatch:
    filled: dict[str, Any] = {"url_surtkey": "com,example)/", "url": "https://example.com/é", "fetch_status": 200}
    filled |= {"fetch_time": 1_642_000_000_123, "content_mime_type": 'text/"html', "warc_record_offset": 5}
    columns = [pa.array([None, filled.get(each.name)], each.type) for each in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def cdx_request(data: bytes) -> bool:
    def parse() -> None:
        found = parse_request(parse_query(data))
        _check_pattern(found.pattern)
        assert {len(found.first), len(found.last)} <= {0, 14}
        assert found.page_size > 0 <= (found.limit or 0)
        rows = sort_captures(filter_tables([cdx_table(_rows())], found, process_time), found)
        assert write_lines(rows, found.output, found.fields).count(b"\n") == rows.num_rows

    return accepted(parse, QueryError, printable=False)


def search_form(data: bytes) -> bool:
    def parse() -> None:
        form = Form.of(QueryParams(data.decode("latin-1")))
        found = parse_form(form)
        if isinstance(found, Form):
            assert found.errors
            assert all(0 < len(message) < LONGEST for message in found.errors.values())
            return
        assert parse_qsl(form.address().partition("?")[2])
        parse_request(parse_qsl(form.cdx_address("CC-MAIN-2022-05").partition("?")[2]))

    return accepted(parse)


def content_ranges(data: bytes) -> bool:
    def parse() -> None:
        given, total = parse_content_range(data.decode("latin-1"))
        assert 0 <= given.start < given.end <= total
        assert parse_content_range(content_range(given, total)) == (given, total)

    return accepted(parse, WrongRange)


# ---- targets ----


def targets(mirror: Path) -> dict[str, Target]:
    """Return every parser with valid bytes; footers are of every era of a mirror."""
    files = [small_file(), small_file(version="1.0", write_page_index=False, compression="zstd")]
    files += [trimmed(p.read_bytes(), ("url_surtkey", "fetch_time", "fetch_status")) for p in one_of_each_crawl(mirror)]
    footers = [raw_footer(data) for data in files]
    offsets = [encode_offset_index(walk(data, chunk)) for chunk, _, data in chunks()]
    data = small_file(row_group_size=4, data_page_size=1, write_batch_size=1)
    at = read_footer(data).row_groups[0].chunks["url_surtkey"].column_index
    assert at
    keys = data[at.start : at.end]
    path = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-00000-x.c000.gz.parquet\n".encode()
    one = b'[{"id":"CC-MAIN-2022-05","name":"x","from":"2022-01-16T09:32:12","to":null},{"id":"CC-MAIN-2012"}]'
    row = {"url": "https://example.com/", "timestamp": "20220116093212", "digest": "A" * 32, "status": "200"}
    row |= {"filename": "crawl-data/C/segments/1.2/warc/x.warc.gz", "offset": "12", "length": "345"}
    times: list[dict[str, Any]] = [{}, {"fetch_time": "2022-01-16T09:32:12Z"}, {"fetch_time": 1642325532123}]
    rows = [json.dumps(row | time).encode() for time in times]
    head = b"url,filename,offset,length\nhttps://example.com/,crawl-data/x/y.warc.gz,5,6\n"
    links = sorted((url_key(f"http://h{n}.example.com/{'x' * n}"), (1, 2, n, 4 * n, 5)) for n in range(6))
    stored = encode(StoredFile(b"abc", 5, '"e"', None, "http://x/", "2022"))[1 + DIGEST_SIZE :]
    return {
        "thrift": Target(thrift, footers),
        "footer": Target(footer, footers),
        "offset_index": Target(offset_index, [bytes([number]) + index for number, index in enumerate(offsets)]),
        "column_index": Target(column_index, [keys]),
        "page_headers": Target(page_headers, [data for _, _, data in chunks()]),
        "stored_indexes": Target(stored_indexes, [Indexes(keys, {"url_surtkey": offsets[0]}, own=True).pack()]),
        "surt": Target(surt, _URLS),
        "pattern": Target(pattern, _URLS),
        "archived_url": Target(archived_url, _URLS),
        "manifest": Target(manifest, [b"\x80" + path * 2, b"\0" + gzip.compress(path, mtime=0)]),
        "collinfo": Target(collinfo, [one, (mirror / "collinfo.json").read_bytes()[:3000]]),
        "dataset": Target(dataset, [b'{"name":"h","key":"h","keys":"text","manifest":"x/y.gz","path_columns":["c"]}']),
        "snapshot": Target(snapshot, [_SNAPSHOT]),
        "stored_value": Target(stored_value, [stored]),
        "capture_list": Target(capture_list, [b"\n".join(rows), b"com,example)/ 20220116093212 " + rows[0], head]),
        "capture": Target(capture, rows),
        "url_index_2012": Target(url_index_2012, [index_bytes(links, 64), index_bytes(links, 70, repeats=False)]),
        "record": Target(record, _records()),
        "cdx_request": Target(cdx_request, _REQUESTS),
        "search_form": Target(search_form, _REQUESTS),
        "content_ranges": Target(content_ranges, [b"bytes 0-4/10", b"bytes 5-9/*"]),
    }


_URLS = [
    b"https://www.example.com/a/../b//c/?q=1&b=%E9&a#frag",
    b"http://user:pw@0177.0.0.1:8080/%2525%41",
    b"http://[::1]:80/x.aspx",
    "http://bücher.example/ß?PHPSESSID=0123456789abcdef0123456789abcdef".encode(),
    b"example.com/(s(abcdefghijklmnopqrstuvwx))/page.aspx?x",
    b"dns:example.com",
    b"http://www2.www.com./?cfid=1&cftoken=2",
    b"*.example.com",
    b"*.is/*",
    b"example.com/page?a=1&b=2*",
    b"com,example*",
]

_FILE = {"name": f"crawls/{CRAWL}.{'a' * 32}.parquet", "size": 5, "sha256": "b" * 64, "count": 2}
_TABLE = {"name": "tables/files.parquet", "size": 1, "sha256": "c" * 64, "count": 3}
_ABOUT = {"format": "catalogue snapshot", "version": 2, "made_at": "2026-01-01", "made_by": "1", "missing": ["x"]}
_SNAPSHOT = json.dumps({**_ABOUT, "files": [_FILE], "tables": [_TABLE]}).encode()

_REQUESTS = [
    b"url=*.example.com&output=json&limit=5&filter==status:200&filter=!~mime:te.*&fl=url,status&page=0",
    b"url=http%3A%2F%2Fexample.com%2F%E9&matchType=prefix&from=2022&to=20221231&sort=reverse&output=text",
    b"url=example.com/*&showNumPages=true&pageSize=3&closest=20220101&filter=~url:(a|b)%2B$",
    b"url=example.com&crawl=latest&status=200&mime=text/html&language=eng&columns=url,fetch_time&limit=3&from=2018",
]


def _records() -> list[bytes]:
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\nContent-Encoding: %s\r\n\r\n"
    fields = b"WARC/1.0\r\nWARC-Type: %s\r\nWARC-Date: 2022-08-15T01:02:03Z\r\nWARC-Target-URI: http://e.com/\r\n"
    found = []
    for coding, body in ((b"gzip", gzip.compress(b"hello", mtime=0)), (b"deflate", b"x"), (b"br", b"<p>")):
        block = http % coding + body
        found.append(b" " + fields % b"response" + b"Content-Length: %d\r\n\r\n" % len(block) + block + b"\r\n\r\n")
        found.append(b" http://e.com/ 192.0.2.1 20220815010203 text/html %d\n" % len(block) + block + b"\n")
    revisit = b" " + fields % b"revisit" + b"Content-Length: 0\r\n\r\n\r\n\r\n"
    return [*found, revisit, b"\0" + gzip.compress(found[0][1:], mtime=0)]


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Damage valid bytes ``count`` times, the same number for each parser."""
    counts = Counter[str]()
    slowest = 0.0
    found = targets(mirror_of(folder / "mirror"))
    for name, target in found.items():
        rng = Random(f"{name} {seed}")
        damaged = (damage(rng.choice(target.seeds), rng, target.seeds) for _ in range(-(-count // len(found))))
        for data in (*target.seeds, *damaged):
            began = process_time()
            try:
                counts[name] += target.accepts(data)
            except Exception as error:
                raise AssertionError(
                    f"{name}: {type(error).__name__}: {error}: bytes.fromhex({data.hex()!r})"
                ) from error
            took = process_time() - began
            slowest = max(slowest, took)
            assert took < _SLOWEST, f"{name} took {took:.1f} s: bytes.fromhex({data.hex()!r})"
    return {"accepted": dict(counts), "slowest": round(slowest, 3)}
