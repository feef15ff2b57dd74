"""Parsers of untrusted text and records, each as a function that fails if a parser does anything wrong with some bytes.

Each function takes bytes and returns whether they were accepted. It accepts no exceptions but the parser's own errors,
with messages of one line, and checks what always holds of an accepted value. ``run`` damages valid bytes at random.
Footers, page indexes and pages are damaged by ``tests.slow.mutations``.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, wraps
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

from catalogue.cdx.lines import lines_of, write_lines
from catalogue.cdx.url_index_2012 import (
    Header,
    capture_at,
    parse_data_block,
    parse_header,
    parse_index_block,
    parse_key_prefix,
)
from catalogue.cli.input_files import captures_in
from catalogue.commoncrawl.capture import capture_of
from catalogue.commoncrawl.datasets import dataset_from_json
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.errors import FormatError, QueryError, StoreDamaged, WrongRange
from catalogue.records.record import MAX_INFLATED, read_record
from catalogue.server.archived_pages import archived_headers, content_headers, memento_headers
from catalogue.server.cdx_request import parse_query, parse_request
from catalogue.server.cdx_search import select_lines
from catalogue.server.search import Form, parse_form
from catalogue.source.byte_ranges import content_range, parse_content_range
from catalogue.store.layout import DIGEST_SIZE, StoredFile, decode, encode
from catalogue.surt import url_surtkey
from catalogue.surt.interval import covers
from catalogue.surt.key import url_surtkeys
from catalogue.surt.pattern import Keys, Match, Pattern, parse_key_pattern, parse_pattern
from tests.support.mutators import damage
from tests.support.prefix_indexes import index_bytes, url_key

_SLOWEST = 5.0
"""Seconds of CPU for a few kilobytes."""
_LONGEST = 2000
"""Characters of a message."""
Parser = Callable[[bytes], bool]
"""Whether bytes are accepted."""
_OPAQUE = ("dns:", "filedesc:", "warcinfo:")


def accepted(parse: Callable[[], object], *errors: type[Exception], printable: bool = True) -> bool:
    try:
        parse()
    except errors as error:
        message = str(error)
        assert 0 < len(message) < _LONGEST, message[:300]
        assert not printable or message.isprintable(), message[:300]
        return False
    return True


def parser(*errors: type[Exception], printable: bool = True) -> Callable[[Callable[[bytes], None]], Parser]:
    """Make a function that returns whether it accepts bytes of one that raises errors."""

    def decorate(parse: Callable[[bytes], None]) -> Parser:
        return wraps(parse)(lambda data: accepted(lambda: parse(data), *errors, printable=printable))

    return decorate


# ---- URLs ----


def _check_pattern(pattern: Pattern) -> None:
    assert pattern.intervals
    assert all(each.start < each.end for each in pattern.intervals)
    assert all(one.end < other.start for one, other in pairwise(pattern.intervals))


@parser(QueryError)
def surt(data: bytes) -> None:
    url = data.decode(errors="surrogateescape")
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


# ---- stored values and lists ----


@parser(FormatError)
def dataset(data: bytes) -> None:
    dataset_from_json(data)


@parser(StoreDamaged)
def stored_value(data: bytes) -> None:
    """Parse what follows the digest of a stored value; an attacker can compute the digest."""
    value = b"\x01" + blake2b(data, digest_size=DIGEST_SIZE).digest() + data
    found = decode(value)
    assert decode(encode(found)) == found


class _Named(BytesIO):
    name = "listed"


@parser(QueryError)
def capture_list(data: bytes) -> None:
    for row in captures_in(_Named(data)).to_pylist():
        accepted(lambda row=row: _check_capture(row), FormatError)  # type: ignore[misc]


def _check_capture(row: dict[str, Any]) -> None:
    found = capture_of(row)
    assert 0 <= found.range.start < found.range.end
    assert not found.filename.startswith(("/", "."))
    assert not {"", ".", ".."} & {*found.filename.split("/")}
    assert found.time is None or found.time.tzinfo


@parser(FormatError)
def url_index_2012(data: bytes) -> None:
    """Parse a file of blocks of 64 bytes, one by one."""
    header = parse_header(data[:8], len(data))
    for number in range(min(header.blocks, 40)):
        place = header.place(number, number)
        accepted(lambda n=number, p=place: _check_block(header, n, data[p.start : p.end]), FormatError)  # type: ignore[misc]


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
        accepted(lambda each=each: _check_url(capture_at(*each).url), FormatError)  # type: ignore[misc]


def _check_url(url: str | None) -> None:
    assert url
    assert "://" in url


# ---- records and requests ----


@parser(FormatError)
def record(data: bytes) -> None:
    """Parse a record: gzipped, or to be gzipped."""
    member = data[1:] if data[:1] < b"\x20" else gzip.compress(data[1:], 1, mtime=0)
    where = capture_of({"filename": "crawl-data/x.warc.gz", "offset": 0, "length": max(1, len(member))})
    found = read_record(where, member)
    assert len(found.http_head) + len(found.body) <= MAX_INFLATED
    assert found.status is None or found.status >= 0
    assert found.mime is None or found.mime == found.mime.lower()
    assert not accepted(lambda: found.payload, FormatError) or len(found.payload) <= MAX_INFLATED
    headers = [*archived_headers(found), *content_headers(found), *memento_headers(found)]
    for name, value in headers:
        assert name
        assert all("!" <= c <= "~" and c != ":" for c in name)
        assert all(" " <= c <= "~" for c in value)
    assert sum(len(name) + len(value) for name, value in headers) < 20_000


@cache
def _rows() -> pa.RecordBatch:
    filled: dict[str, Any] = {"url_surtkey": "com,example)/", "url": "https://example.com/é", "fetch_status": 200}
    filled |= {"fetch_time": 1_642_000_000_123, "content_mime_type": 'text/"html', "warc_record_offset": 5}
    columns = [pa.array([None, filled.get(each.name)], each.type) for each in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@parser(QueryError, printable=False)
def cdx_request(data: bytes) -> None:
    found = parse_request(parse_query(data))
    _check_pattern(found.pattern)
    assert {len(found.first), len(found.last)} <= {0, 14}
    assert found.page_size > 0 <= (found.limit or 0)
    lines = select_lines(sorted(lines_of(_rows())), found)
    assert write_lines(lines, found.output, found.fields).count(b"\n") == len(lines)


@parser()
def search_form(data: bytes) -> None:
    form = Form.of(QueryParams(data.decode("latin-1")))
    found = parse_form(form)
    if isinstance(found, Form):
        assert found.errors
        assert all(0 < len(message) < _LONGEST for message in found.errors.values())
        return
    assert parse_qsl(form.address().partition("?")[2])


@parser(WrongRange)
def content_ranges(data: bytes) -> None:
    given, total = parse_content_range(data.decode("latin-1"))
    assert 0 <= given.start < given.end
    if total:
        assert given.end <= total
        assert parse_content_range(content_range(given, total)) == (given, total)


# ---- valid bytes ----


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
_REQUESTS = [
    b"url=*.example.com&output=json&limit=5&filter==status:200&filter=!~mime:te.*&fl=url,status&page=0",
    b"url=http%3A%2F%2Fexample.com%2F%E9&matchType=prefix&from=2022&to=20221231&sort=reverse&output=text",
    b"url=example.com/*&showNumPages=true&pageSize=3&closest=20220101&filter=~url:(a|b)%2B$",
    b"url=example.com&crawl=latest&status=200&mime=text/html&lang=eng&columns=url,fetch_time&limit=3&from=2018",
]


def _captures() -> list[bytes]:
    row = {"url": "https://example.com/", "timestamp": "20220116093212", "digest": "A" * 32, "status": "200"}
    row |= {"filename": "crawl-data/C/segments/1.2/warc/x.warc.gz", "offset": "12", "length": "345"}
    lines = [json.dumps(row | more).encode() for more in ({}, {"fetch_time": "2022-01-16T09:32:12Z"})]
    head = b"url,filename,offset,length\nhttps://example.com/,crawl-data/x/y.warc.gz,5,6\n"
    return [b"\n".join(lines), b"com,example)/ 20220116093212 " + lines[0], head]


def _records() -> list[bytes]:
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\nContent-Encoding: %s\r\n\r\n"
    fields = b"WARC/1.0\r\nWARC-Type: %s\r\nWARC-Date: 2022-08-15T01:02:03Z\r\nWARC-Target-URI: http://e.com/\r\n"
    found = []
    zipped = gzip.compress(b"hello", mtime=0)
    zstandard = bytes.fromhex("28b52ffd200529000068656c6c6f")
    bodies = {b"gzip": zipped, b"deflate": b"x", b"br": b"\x0b\x02\x80hello\x03", b"gzip, zstd": zstandard}
    for coding, body in (*bodies.items(), (b"br", b"<p>")):
        block = http % coding + body
        found.append(b" " + fields % b"response" + b"Content-Length: %d\r\n\r\n" % len(block) + block + b"\r\n\r\n")
        found.append(b" http://e.com/ 192.0.2.1 20220815010203 text/html %d\n" % len(block) + block + b"\n")
    revisit = b" " + fields % b"revisit" + b"Content-Length: 0\r\n\r\n\r\n\r\n"
    return [*found, revisit, b"\0" + gzip.compress(found[0][1:], mtime=0)]


def _index_2012() -> list[bytes]:
    links = sorted((url_key(f"http://h{n}.example.com/{'x' * n}"), (1, 2, n, 4 * n, 5)) for n in range(6))
    return [index_bytes(links, 64), index_bytes(links, 70, repeats=False)]


SEEDS: dict[Parser, Sequence[bytes]] = {
    surt: _URLS,
    pattern: _URLS,
    dataset: [b'{"name":"h","key":"h","keys":"text","manifest":"x/y.gz","path_columns":["c"]}'],
    stored_value: [encode(StoredFile(b"abc", 5, '"e"', None, "http://x/", "2022"))[1 + DIGEST_SIZE :]],
    capture_list: _captures(),
    url_index_2012: _index_2012(),
    record: _records(),
    cdx_request: _REQUESTS,
    search_form: _REQUESTS,
    content_ranges: [b"bytes 0-4/10", b"bytes 5-9/*"],
}
"""Parsers, and bytes that they accept."""


def run(count: int, seed: int, _: Path) -> dict[str, object]:
    """Damage valid bytes ``count`` times, the same number for each parser."""
    counts = Counter[str]()
    slowest = 0.0
    for parse, seeds in SEEDS.items():
        name = parse.__name__
        rng = Random(f"{name} {seed}")
        for number in range(-(-count // len(SEEDS))):
            data = seeds[number] if number < len(seeds) else damage(rng.choice(seeds), rng, seeds)
            began = process_time()
            try:
                counts[name] += parse(data)
                took = process_time() - began
                assert took < _SLOWEST, f"it took {took:.1f} s"
            except Exception as error:
                about = f"{name}: {type(error).__name__}: {error}: bytes.fromhex({data.hex()!r})"
                raise AssertionError(about) from error
            slowest = max(slowest, took)
    return {"accepted": dict(counts), "slowest": round(slowest, 3)}
