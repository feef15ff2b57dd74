"""What reads bytes of strangers, each as a function that fails if anything is wrong with what it makes of some bytes.

A target takes any bytes and says whether they were accepted. It lets pass nothing but the errors that its parser may
raise, whose messages are of one line, and it checks of what was accepted what always holds of it. ``tests.soak.fuzz``
looks for bytes for which that is not so, guided by what they reach; here they are damaged by chance.
"""

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
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
from starlette.requests import Request

from catalogue.capture import capture_of
from catalogue.cdx import arranged, chosen_of, parse_request, write_lines
from catalogue.cli.listed import captures_in
from catalogue.crawl import SCHEMA, index_file, inflate, parse_collinfo, parse_manifest
from catalogue.demo import write_miniature
from catalogue.errors import FormatError, QueryError, StoreDamaged, WrongRange
from catalogue.examine import file_facts
from catalogue.footer import ColumnChunk, Order, arrow_type, decode_footer, decode_row_groups, kind_of
from catalogue.pages import (
    Indexes,
    decode_column_index,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
    page_header,
    walk,
)
from catalogue.prefix_index import Header, parse_data_block, parse_header, parse_index_block, parse_key_prefix
from catalogue.ranges import ByteRange, content_range, parse_content_range
from catalogue.record import MAX_INFLATED, read_record
from catalogue.server.answers import parameters
from catalogue.server.api import OPERATIONS
from catalogue.server.archived import archived_headers, content_headers, memento_headers
from catalogue.server.form import Form, read
from catalogue.server.parameters import read_parameters
from catalogue.server.records import asked_url
from catalogue.snapshot import is_piece, unpack_snapshot
from catalogue.store import Held
from catalogue.store.held import DIGEST_SIZE, decode, encode
from catalogue.surt import Keys, Match, Pattern, covers, parse_key_pattern, parse_pattern, url_surtkey, url_surtkeys
from catalogue.table import parse_paths, unpack_table
from catalogue.thrift import Reader, ThriftError
from tests.footers import put_together, small_file, take_apart, trimmed
from tests.mirrors import one_of_each_crawl, raw_footer, read_footer
from tests.prefix_indexes import index_bytes, url_key
from tests.soak.mutators import MUTATORS

CRAWL = "CC-MAIN-2022-33"
_FILE_SIZE = 1 << 30
_LONGEST = 2000
"""Characters of a message."""
_OPAQUE = ("dns:", "filedesc:", "warcinfo:")
_SLOWEST = 5.0
"""Seconds of CPU that a few kilobytes may take."""


def mirror_of(folder: Path) -> Path:
    """The mirror of ``CATALOGUE_TEST_MIRROR``, else our own miniature, which is written to a folder."""
    if given := os.environ.get("CATALOGUE_TEST_MIRROR"):
        return Path(given)
    if not folder.exists():
        write_miniature(folder)
    return folder


@dataclass(frozen=True)
class Target:
    """A parser, and bytes to begin with."""

    accepts: Callable[[bytes], bool]
    seeds: Callable[[Path], Sequence[bytes]]
    """Of a mirror."""


def _accepted(parse: Callable[[], object], *errors: type[Exception], shown: bool = True) -> bool:
    """Whether it raises none of these errors, which are told in a line if they are shown as they are."""
    try:
        parse()
    except errors as error:
        _check_message(str(error), shown=shown)
        return False
    return True


def _check_message(message: str, *, shown: bool) -> None:
    assert 0 < len(message) < _LONGEST, message[:300]
    assert not shown or message.isprintable(), message[:300]


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


# ---- Parquet's metadata ----


def thrift(data: bytes) -> bool:
    def parse() -> None:
        reader = Reader(data)
        struct = reader.struct()
        assert 0 < reader.position <= len(data)
        try:
            again = put_together(take_apart(data[: reader.position]))
        except ValueError:  # nothing here writes maps and floating point
            return
        assert Reader(again).struct() == struct

    return _accepted(parse, ThriftError)


def footer(data: bytes) -> bool:
    def parse() -> None:
        found = decode_footer(data, _FILE_SIZE)
        facts = file_facts(found, column_chunks=True)
        json.dumps(asdict(facts))
        assert found.num_rows == sum(group.num_rows for group in found.row_groups) >= 0
        assert not [group for group in found.row_groups if set(group.chunks) != set(found.columns)]
        for column in found.columns.values():
            assert arrow_type(kind_of(column)) is not None
            assert column.plain_integer in {True, False}
        for chunk in (chunk for group in found.row_groups for chunk in group.chunks.values()):
            assert 4 <= chunk.range.start < chunk.range.end <= _FILE_SIZE - 8 - len(data)
            assert not chunk.bounds or chunk.bounds.order in Order
            first, last = chunk.milliseconds or (0, 0)
            assert datetime.fromtimestamp(first / 1000, UTC) <= datetime.fromtimestamp(last / 1000, UTC)
        ranges = sorted(chunk.range for group in found.row_groups for chunk in group.chunks.values())
        assert all(one.end <= other.start for one, other in pairwise(ranges))
        if found.rest is not None:
            offsets = {group.ordinal: group.offset for group in found.row_groups}
            assert decode_row_groups(data, _FILE_SIZE, offsets, found.rest) == found

    return _accepted(parse, FormatError)


@cache
def _chunks() -> tuple[tuple[ColumnChunk, int, bytes], ...]:
    """Column chunks of several pages of keys, the rows in them, and their bytes."""
    found = []
    for options in ({}, {"use_dictionary": False, "compression": "zstd"}, {"data_page_version": "2.0"}):
        data = small_file(row_group_size=4, data_page_size=1, write_batch_size=1, **options)
        group = read_footer(data).row_groups[0]
        for name in ("url_surtkey", "fetch_status"):
            chunk = group.chunks[name]
            found.append((chunk, group.num_rows, data[chunk.range.start : chunk.range.end]))
    return tuple(found)


def offset_index(data: bytes) -> bool:
    chunk, num_rows, _ = _chunks()[data[0] % len(_chunks()) if data else 0]

    def parse() -> None:
        index = decode_offset_index(data[1:], chunk, num_rows)
        assert index.offsets[-1] == chunk.range.end
        assert index.offsets[0] >= chunk.range.start
        assert (index.first_rows[0], index.first_rows[-1]) == (0, num_rows)
        assert all(one < other for ends in (index.offsets, index.first_rows) for one, other in pairwise(ends))
        assert decode_offset_index(encode_offset_index(index), chunk, num_rows) == index

    return _accepted(parse, FormatError)


def column_index(data: bytes) -> bool:
    chunk, num_rows, _ = _chunks()[0]

    def parse() -> None:
        index = decode_column_index(data, chunk, num_rows)
        assert len(index.bounds) == num_rows
        assert all(each is None or each.min <= each.max for each in index.bounds)
        assert index.null_counts is None or sum(index.null_counts) == chunk.null_count
        assert decode_column_index(encode_column_index(index), chunk, num_rows) == index

    return _accepted(parse, FormatError)


def page_headers(data: bytes) -> bool:
    chunk, num_rows, _ = _chunks()[0]

    def parse() -> None:
        header = page_header(data)
        assert header.size > 0 <= header.num_values
        there = replace(chunk, range=ByteRange(4, 4 + len(data)), data_page_offset=4, dictionary_page_offset=None)
        index = walk(data, replace(there, num_values=num_rows))
        assert index.offsets[-1] == 4 + len(data)
        assert index.first_rows[-1] == num_rows

    return _accepted(parse, FormatError)


def held_indexes(data: bytes) -> bool:
    def parse() -> None:
        found = Indexes.unpack(data)
        assert Indexes.unpack(found.pack()) == found

    return _accepted(parse, FormatError)


# ---- URLs ----


def _check_pattern(pattern: Pattern) -> None:
    assert pattern.intervals
    assert all(each.start < each.end for each in pattern.intervals)
    assert all(one.end < other.start for one, other in pairwise(pattern.intervals))


def surt(data: bytes) -> bool:
    url = _text(data)

    def parse() -> None:
        key = url_surtkey(url)
        keys = url_surtkeys(url)
        assert keys[0] == key
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
        if url.strip().startswith(_OPAQUE):  # of what a web archive has beside pages there are no patterns
            return
        assert all(covers(pattern.intervals, key.encode()) for key in url_surtkeys(url.strip()))

    return _accepted(parse, QueryError)


def pattern(data: bytes) -> bool:
    text = _text(data)
    readers: list[Callable[[], Pattern]] = [lambda: parse_pattern(text)]
    readers += [lambda match=match: parse_pattern(text, match) for match in Match]  # type: ignore[misc]
    readers += [lambda keys=keys: parse_key_pattern(text, keys) for keys in (Keys.HOST, Keys.TEXT)]  # type: ignore[misc]
    taken = [_accepted(lambda read=read: _check_pattern(read()), QueryError) for read in readers]  # type: ignore[misc]

    def of_2012() -> None:
        found = parse_key_prefix(text)
        assert found.interval.start < found.interval.end
        assert not found.takes(b"\xff")

    return any([*taken, _accepted(of_2012, QueryError)])


def asked(data: bytes) -> bool:
    """What stands behind the form in the path of a record."""
    rest, _, query = data.partition(b"?")
    url = asked_url(rest, query)
    assert all("!" <= character <= "~" for character in url)
    return bool(url)


# ---- lists ----


def manifest(data: bytes) -> bool:
    packed = data[1:] if data[:1] < b"\x80" else gzip.compress(data[1:], 1, mtime=0)

    def parse() -> None:
        files = parse_manifest(CRAWL, packed)
        assert len(files) == len({*files})
        assert all(index_file(each.path) == each and each.crawl == CRAWL for each in files)
        assert len(inflate(packed)) > 0

    def as_paths() -> None:
        paths = parse_paths(packed, source="https://example.com/")
        assert all(path.isascii() and ".." not in path.split("/") and not path.startswith("/") for path in paths)

    return any([_accepted(parse, FormatError), _accepted(as_paths, FormatError)])


def collinfo(data: bytes) -> bool:
    def parse() -> None:
        crawls = parse_collinfo(data)
        assert crawls
        assert len({each.id for each in crawls}) == len(crawls)
        for each in crawls:
            each.name.encode(errors="replace")
            assert all(time is None or time.tzinfo for time in (each.first_fetch, each.last_fetch))

    return _accepted(parse, FormatError)


def table(data: bytes) -> bool:
    return _accepted(lambda: unpack_table(data), FormatError)


def snapshot(data: bytes) -> bool:
    def parse() -> None:
        found = unpack_snapshot(data)
        assert unpack_snapshot(found.pack()) == found
        assert all(is_piece(each.name) for each in found.pieces)
        assert found.crawls is not None

    return _accepted(parse, FormatError)


def held(data: bytes) -> bool:
    """What stands behind the digest of a value of the store, which whoever means ill makes right."""
    value = b"\x01" + blake2b(data, digest_size=DIGEST_SIZE).digest() + data

    def parse() -> None:
        found = decode(value)
        assert decode(encode(found)) == found

    return _accepted(parse, StoreDamaged)


class _Named(BytesIO):
    name = "listed"


def listed(data: bytes) -> bool:
    """A list of captures in whatever form, each of which is a capture or is not."""

    def parse() -> None:
        for row in captures_in(_Named(data)).to_pylist():
            _accepted(lambda row=row: _check_capture(row), FormatError)  # type: ignore[misc]

    return _accepted(parse, QueryError)


def capture(data: bytes) -> bool:
    try:
        row = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and _accepted(lambda: _check_capture(row), FormatError)


def _check_capture(row: dict[str, Any]) -> None:
    found = capture_of(row)
    assert 0 <= found.range.start < found.range.end
    assert not found.filename.startswith(("/", "."))
    assert not {"", ".", ".."} & {*found.filename.split("/")}
    assert found.time is None or found.time.tzinfo


# ---- the index of 2012 ----


def prefix_index(data: bytes) -> bool:
    """A file of blocks of 64 bytes each, read one by one."""

    def parse() -> None:
        header = parse_header(data[:8], len(data))
        for number in range(min(header.blocks, 40)):
            place = header.place(number, number)
            _accepted(lambda n=number, p=place: _check_block(header, n, data[p.start : p.end]), FormatError)  # type: ignore[misc]

    return _accepted(parse, FormatError)


def _check_block(header: Header, number: int, block: bytes) -> None:
    if number < header.index_blocks:
        found = parse_index_block(header, number, block)
        assert number < found.first <= found.first + len(found.prefixes) < header.blocks
        assert all(one <= other for one, other in pairwise(found.prefixes))
        for key in (b"", b"com", *found.prefixes):
            below, low, high = found.down(key)
            assert found.first <= below <= found.first + len(found.prefixes)
            assert low is None or low <= key
            assert high is None or key <= high
        return
    entries = parse_data_block(number, block)
    assert entries
    for each in entries:
        _accepted(lambda each=each: _check_entry(each.capture().url), FormatError)  # type: ignore[misc]


def _check_entry(url: str | None) -> None:
    assert url
    assert "://" in url


# ---- records ----


def record(data: bytes) -> bool:
    """A record of an archive: gzipped, or to be gzipped."""
    member = data[1:] if data[:1] < b"\x20" else gzip.compress(data[1:], 1, mtime=0)
    where = capture_of({"filename": "crawl-data/x.warc.gz", "offset": 0, "length": max(1, len(member))})

    def parse() -> None:
        found = read_record(where, member)
        assert len(found.http_head) + len(found.body) <= MAX_INFLATED
        assert found.status is None or found.status >= 0
        assert found.mime is None or found.mime == found.mime.lower()
        _accepted(lambda: None if len(found.payload) <= MAX_INFLATED else found.mime.encode(), FormatError)  # type: ignore[union-attr]
        headers = [*archived_headers(found), *content_headers(found), *memento_headers(found)]
        assert all(name.isascii() and name.isprintable() and name for name, _ in headers)
        assert not [name for name, value in headers if {"\r", "\n", "\0"} & {*value}]
        for _, value in headers:
            value.encode("latin-1")

    return _accepted(parse, FormatError)


# ---- requests ----


@cache
def _rows() -> pa.RecordBatch:
    filled: dict[str, Any] = {"url_surtkey": "com,example)/", "url": "https://example.com/é", "fetch_status": 200}
    filled |= {"fetch_time": 1_642_000_000_123, "content_mime_type": 'text/"html', "warc_record_offset": 5}
    columns = [pa.array([None, filled.get(each.name)], each.type) for each in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def cdx_request(data: bytes) -> bool:
    def parse() -> None:
        given = parameters(Request({"type": "http", "query_string": data}))
        found = parse_request(given)
        _check_pattern(found.pattern)
        assert len(found.first) in {0, 14}
        assert len(found.last) in {0, 14}
        assert found.page_size > 0
        assert found.limit is None or found.limit >= 0
        found.none_found.encode(errors="replace")
        assert found.times is not None
        rows = arranged(chosen_of([_rows()], found, process_time), found)
        lines = write_lines(rows, found.output, found.fields)
        assert lines.count(b"\n") == rows.num_rows

    return _accepted(parse, QueryError, shown=False)


def api_request(data: bytes) -> bool:
    """The parameters of every path of the JSON API, and of the page that searches."""

    def searched() -> None:
        form = Form.of(QueryParams(data.decode("latin-1")))
        found = read(form)
        if isinstance(found, Form):
            assert found.errors
            assert all(0 < len(message) < _LONGEST for _, message in found.errors)
            return
        assert parse_qsl(form.address().partition("?")[2])
        parse_request(parse_qsl(form.cdx_address("CC-MAIN-2022-05").partition("?")[2]))

    taken = [
        _accepted(lambda each=each: read_parameters(data, each.parameters), QueryError, shown=False)  # type: ignore[misc]
        for each in OPERATIONS
    ]
    return any([*taken, _accepted(searched)])


def content_ranges(data: bytes) -> bool:
    def parse() -> None:
        given, total = parse_content_range(data.decode("latin-1"))
        assert 0 <= given.start < given.end <= total
        assert parse_content_range(content_range(given, total)) == (given, total)

    return _accepted(parse, WrongRange)


# ---- what to begin with ----


def _footers(mirror: Path) -> list[bytes]:
    small = [small_file(), small_file(version="1.0", write_page_index=False, compression="zstd")]
    columns = ("url_surtkey", "fetch_time", "fetch_status")
    return [
        raw_footer(data) for data in (*small, *(trimmed(p.read_bytes(), columns) for p in one_of_each_crawl(mirror)))
    ]


def _offset_indexes(_: Path) -> list[bytes]:
    indexes = [walk(data, chunk) for chunk, _, data in _chunks()]
    return [bytes([number]) + encode_offset_index(index) for number, index in enumerate(indexes)]


def _column_indexes(_: Path) -> list[bytes]:
    data = small_file(row_group_size=4, data_page_size=1, write_batch_size=1)
    at = read_footer(data).row_groups[0].chunks["url_surtkey"].column_index
    assert at
    return [data[at.start : at.end]]


def _held_indexes(mirror: Path) -> list[bytes]:
    return [
        Indexes(_column_indexes(mirror)[0], {"url_surtkey": _offset_indexes(mirror)[0][1:]}, own=True).pack(),
        b'{"own":true,"column_index":0,"offset_indexes":[],"clusters":{"3":[["a","b"],["c","d"]]}}\n',
    ]


URLS = (
    "https://www.example.com/a/../b//c/?q=1&b=%E9&a#frag",
    "http://user:pw@0177.0.0.1:8080/%2525%41",
    "http://[::1]:80/x.aspx",
    "http://bücher.example/ß?PHPSESSID=0123456789abcdef0123456789abcdef",
    "example.com/(s(abcdefghijklmnopqrstuvwx))/page.aspx?x",
    "dns:example.com",
    "ftp://example.com:21/;x",
    "http://www2.www.com./?cfid=1&cftoken=2",
    "http://3232235777/",
)
_PATTERNS = (
    "*.example.com",
    "*.is/*",
    "*",
    "example.com/di*",
    "example.com/page?a=1&b=2*",
    "com,example*",
    "x.com:8080/*",
)


def _urls(_: Path) -> list[bytes]:
    return [url.encode() for url in (*URLS, *_PATTERNS)]


def _manifests(mirror: Path) -> list[bytes]:
    plain = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-00000-x.c000.gz.parquet\n".encode()
    files = [path.read_bytes()[:2000] for path in sorted(mirror.glob("crawl-data/*/cc-index-table.paths.gz"))]
    return [b"\x80" + plain * 2, b"\x80" + plain + b"\r\ncc-index/\n", b"\0" + gzip.compress(plain, mtime=0)] + [
        b"\0" + each for each in files
    ]


def _collinfo(mirror: Path) -> list[bytes]:
    one = b'[{"id":"CC-MAIN-2022-05","name":"x","from":"2022-01-16T09:32:12","to":null},{"id":"CC-MAIN-2012"}]'
    return [one, (mirror / "collinfo.json").read_bytes()[:3000]]


def _snapshots(_: Path) -> list[bytes]:
    piece = {"crawl": "CC-MAIN-2022-05", "contents": "a" * 32, "size": 5, "sha256": "b" * 64, "files": 2}
    told = {"table": "files", "size": 1, "sha256": "c" * 64, "rows": 3}
    about = {"format": "catalogue snapshot", "version": 1, "made_at": "2026-01-01", "made_by": "1", "missing": ["x"]}
    return [json.dumps({**about, "pieces": [piece], "tables": [told]}).encode()]


_ROW = {
    "url": "https://example.com/",
    "timestamp": "20220116093212",
    "filename": "crawl-data/C/segments/1.2/warc/x.warc.gz",
}


def _rows_of_captures(_: Path) -> list[bytes]:
    rest = {"offset": "12", "length": "345", "digest": "A" * 32, "status": "200"}
    times: list[dict[str, object]] = [
        {"fetch_time": "2022-01-16T09:32:12Z", "warc_record_offset": 3.0},
        {"fetch_time": 1642325532123},
    ]
    return [json.dumps(_ROW | rest | more).encode() for more in ({}, *times)]


def _lists_of_captures(mirror: Path) -> list[bytes]:
    rows = _rows_of_captures(mirror)
    head = b"url,filename,offset,length\nhttps://example.com/,crawl-data/x/y.warc.gz,5,6\n"
    return [b"\n".join(rows), b"com,example)/ 20220116093212 " + rows[0] + b"\n", head]


def _records(_: Path) -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\nContent-Encoding: %s\r\n\r\n"
    found = []
    for coding, body in ((b"gzip", gzip.compress(b"hello", mtime=0)), (b"deflate", b"x"), (b"br", b"<p>")):
        block = head % coding + body
        fields = (
            b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2022-08-15T01:02:03Z\r\nWARC-Target-URI: http://e.com/\r\n"
        )
        found.append(b"\x20" + fields + b"Content-Length: %d\r\n\r\n" % len(block) + block + b"\r\n\r\n")
        found.append(b"\x20http://e.com/ 192.0.2.1 20220815010203 text/html %d\n" % len(block) + block + b"\n")
    revisit = b"WARC/1.0\r\nWARC-Type: revisit\r\nWARC-Target-URI: <http://e.com/>\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
    return [*found, b"\x20" + revisit, b"\0" + gzip.compress(found[0][1:], mtime=0)]


def _requests(_: Path) -> list[bytes]:
    return [
        b"url=*.example.com&output=json&limit=5&filter==status:200&filter=!~mime:te.*&fl=url,status&page=0",
        b"url=http%3A%2F%2Fexample.com%2F%E9&matchType=prefix&from=2022&to=20221231&sort=reverse&output=text",
        b"url=example.com/*&showNumPages=true&pageSize=3&closest=20220101&filter=~url:(a|b)%2B$",
        b"url=example.com&crawl=latest&status=200&mime=text/html&language=eng&columns=url,fetch_time&limit=3&from=2018",
        b"key=*.example.com&after=a/b.parquet:3&crawl=CC-MAIN-2022-05&limit=1&order=newest",
    ]


def _prefix_indexes(_: Path) -> list[bytes]:
    urls = [f"http://h{number}.example.com/{'x' * (number % 20)}" for number in range(6)]
    items = sorted((url_key(url), (1, 2, number, 4 * number, 5)) for number, url in enumerate(urls))
    return [index_bytes(items, 64), index_bytes(items, 70, repeats=False)]


TARGETS: dict[str, Target] = {
    "thrift": Target(thrift, _footers),
    "footer": Target(footer, _footers),
    "offset_index": Target(offset_index, _offset_indexes),
    "column_index": Target(column_index, _column_indexes),
    "page_headers": Target(page_headers, lambda _: [data for _, _, data in _chunks()]),
    "held_indexes": Target(held_indexes, _held_indexes),
    "surt": Target(surt, _urls),
    "pattern": Target(pattern, _urls),
    "asked": Target(asked, _urls),
    "manifest": Target(manifest, _manifests),
    "collinfo": Target(collinfo, _collinfo),
    "table": Target(
        table, lambda _: [b'{"name":"hosts","key":"host","keys":"text","manifest":"x/y.gz","path_columns":["crawl"]}']
    ),
    "snapshot": Target(snapshot, _snapshots),
    "held": Target(held, lambda _: [encode(Held(b"abc", 5, '"e"', None, "http://x/", "2022"))[1 + DIGEST_SIZE :]]),
    "listed": Target(listed, _lists_of_captures),
    "capture": Target(capture, _rows_of_captures),
    "prefix_index": Target(prefix_index, _prefix_indexes),
    "record": Target(record, _records),
    "cdx_request": Target(cdx_request, _requests),
    "api_request": Target(api_request, _requests),
    "content_ranges": Target(content_ranges, lambda _: [b"bytes 0-4/10", b"bytes 5-9/*"]),
}


def damaged(seeds: Sequence[bytes], rng: Random) -> bytes:
    """One of some bytes, damaged once or a few times."""
    data = rng.choice(seeds)
    for _ in range(rng.choice([1, 1, 2, 4])):
        if data:
            data = MUTATORS[rng.choice([*MUTATORS])](data, rng, seeds)
    return data


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Damage what each target begins with so many times in all; see ``tests.soak.__main__``."""
    mirror = mirror_of(folder / "mirror")
    tried, accepted = Counter[str](), Counter[str]()
    slowest = 0.0
    for name, target in TARGETS.items():
        rng = Random(f"{name} {seed}")
        seeds = target.seeds(mirror)
        for data in (*seeds, *(damaged(seeds, rng) for _ in range(-(-count // len(TARGETS))))):
            tried[name] += 1
            began = process_time()
            try:
                accepted[name] += target.accepts(data)
            except Exception as error:
                raise AssertionError(
                    f"{name}: {type(error).__name__}: {error}: bytes.fromhex({data.hex()!r})"
                ) from error
            took = process_time() - began
            slowest = max(slowest, took)
            assert took < _SLOWEST, f"{name} took {took:.1f} s: bytes.fromhex({data.hex()!r})"
    return {"tried": tried.total(), "accepted": dict(accepted), "slowest": round(slowest, 3)}
