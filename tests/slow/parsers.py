"""What reads bytes of strangers, each as a function that fails if anything is wrong with what it makes of some bytes.

A target takes any bytes and says whether they were accepted. It lets pass nothing but the errors that its parser may
raise, whose messages are of one line, and it checks of what was accepted what always holds of it. ``tests.slow.fuzz``
looks for bytes for which that is not so, guided by what they reach; here they are damaged by chance.
"""

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
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

from catalogue.cdx.lines import write_lines
from catalogue.cli.capture_input import captures_in
from catalogue.commoncrawl.capture import capture_of
from catalogue.commoncrawl.columns import SCHEMA
from catalogue.commoncrawl.datasets import dataset_from_json, parse_path_list
from catalogue.commoncrawl.manifests import index_file, inflate, parse_collinfo, parse_manifest
from catalogue.demo import write_miniature
from catalogue.errors import FormatError, QueryError, StoreDamaged, WrongRange
from catalogue.harvest.snapshot import is_piece, unpack_snapshot
from catalogue.records.record import MAX_INFLATED, read_record
from catalogue.server.archived_pages import parse_url
from catalogue.server.cdx_request import parse_request
from catalogue.server.cdx_search import filter_rows, sort_captures
from catalogue.server.responses import parameters
from catalogue.server.search_form import Form, parse_form
from catalogue.server.untrusted_headers import archived_headers, content_headers, memento_headers
from catalogue.source.byte_ranges import content_range, parse_content_range
from catalogue.store.stored_file import DIGEST_SIZE, StoredFile, decode, encode
from catalogue.surt import Keys, Match, Pattern, covers, parse_key_pattern, parse_pattern, url_surtkey, url_surtkeys
from catalogue.url_index_2012.blocks import Header, parse_data_block, parse_header, parse_index_block
from catalogue.url_index_2012.keys import parse_key_prefix
from tests.slow.accepting import _LONGEST, CRAWL, Target, as_text, chunks_of_pages, is_accepted
from tests.slow.mutators import MUTATORS
from tests.slow.parquet_parsers import column_index, footer, held_indexes, offset_index, page_headers, thrift
from tests.slow.seeds import (
    collinfos,
    column_indexes,
    footers,
    indexes_held,
    lists_of_captures,
    manifests,
    offset_indexes,
    prefix_indexes,
    records,
    requests,
    rows_of_captures,
    snapshots,
    urls,
)

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


# ---- URLs ----


def _check_pattern(pattern: Pattern) -> None:
    assert pattern.intervals
    assert all(each.start < each.end for each in pattern.intervals)
    assert all(one.end < other.start for one, other in pairwise(pattern.intervals))


def surt(data: bytes) -> bool:
    url = as_text(data)

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

    return is_accepted(parse, QueryError)


def pattern(data: bytes) -> bool:
    text = as_text(data)
    readers: list[Callable[[], Pattern]] = [lambda: parse_pattern(text)]
    readers += [lambda match=match: parse_pattern(text, match) for match in Match]  # type: ignore[misc]
    readers += [lambda keys=keys: parse_key_pattern(text, keys) for keys in (Keys.HOST, Keys.TEXT)]  # type: ignore[misc]
    taken = [is_accepted(lambda read=read: _check_pattern(read()), QueryError) for read in readers]  # type: ignore[misc]

    def of_2012() -> None:
        found = parse_key_prefix(text)
        assert found.interval.start < found.interval.end
        assert not found.takes(b"\xff")

    return any([*taken, is_accepted(of_2012, QueryError)])


def asked(data: bytes) -> bool:
    """What stands behind the form in the path of a record."""
    rest, _, query = data.partition(b"?")
    url = parse_url(rest, query)
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
        paths = parse_path_list(packed, source="https://example.com/")
        assert all(path.isascii() and ".." not in path.split("/") and not path.startswith("/") for path in paths)

    return any([is_accepted(parse, FormatError), is_accepted(as_paths, FormatError)])


def collinfo(data: bytes) -> bool:
    def parse() -> None:
        crawls = parse_collinfo(data)
        assert crawls
        assert len({each.id for each in crawls}) == len(crawls)
        for each in crawls:
            each.name.encode(errors="replace")
            assert all(time is None or time.tzinfo for time in (each.first_fetch, each.last_fetch))

    return is_accepted(parse, FormatError)


def table(data: bytes) -> bool:
    return is_accepted(lambda: dataset_from_json(data), FormatError)


def snapshot(data: bytes) -> bool:
    def parse() -> None:
        found = unpack_snapshot(data)
        assert unpack_snapshot(found.pack()) == found
        assert all(is_piece(each.name) for each in found.pieces)
        assert found.crawls is not None

    return is_accepted(parse, FormatError)


def held(data: bytes) -> bool:
    """What stands behind the digest of a value of the store, which whoever means ill makes right."""
    value = b"\x01" + blake2b(data, digest_size=DIGEST_SIZE).digest() + data

    def parse() -> None:
        found = decode(value)
        assert decode(encode(found)) == found

    return is_accepted(parse, StoreDamaged)


class _Named(BytesIO):
    name = "listed"


def listed(data: bytes) -> bool:
    """A list of captures in whatever form, each of which is a capture or is not."""

    def parse() -> None:
        for row in captures_in(_Named(data)).to_pylist():
            is_accepted(lambda row=row: _check_capture(row), FormatError)  # type: ignore[misc]

    return is_accepted(parse, QueryError)


def capture(data: bytes) -> bool:
    try:
        row = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and is_accepted(lambda: _check_capture(row), FormatError)


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
            is_accepted(lambda n=number, p=place: _check_block(header, n, data[p.start : p.end]), FormatError)  # type: ignore[misc]

    return is_accepted(parse, FormatError)


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
        is_accepted(lambda each=each: _check_entry(each.capture().url), FormatError)  # type: ignore[misc]


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
        is_accepted(lambda: None if len(found.payload) <= MAX_INFLATED else found.mime.encode(), FormatError)  # type: ignore[union-attr]
        headers = [*archived_headers(found), *content_headers(found), *memento_headers(found)]
        assert all(name.isascii() and name.isprintable() and name for name, _ in headers)
        assert not [name for name, value in headers if {"\r", "\n", "\0"} & {*value}]
        for _, value in headers:
            value.encode("latin-1")

    return is_accepted(parse, FormatError)


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
        found.not_found.encode(errors="replace")
        assert found.times is not None
        rows = sort_captures(filter_rows([_rows()], found, process_time), found)
        lines = write_lines(rows, found.output, found.fields)
        assert lines.count(b"\n") == rows.num_rows

    return is_accepted(parse, QueryError, shown=False)


def api_request(data: bytes) -> bool:
    """The parameters of every path of the JSON API, and of the page that searches."""

    def searched() -> None:
        form = Form.of(QueryParams(data.decode("latin-1")))
        found = parse_form(form)
        if isinstance(found, Form):
            assert found.errors
            assert all(0 < len(message) < _LONGEST for message in found.errors.values())
            return
        assert parse_qsl(form.address().partition("?")[2])
        parse_request(parse_qsl(form.cdx_address("CC-MAIN-2022-05").partition("?")[2]))

    return is_accepted(searched)


def content_ranges(data: bytes) -> bool:
    def parse() -> None:
        given, total = parse_content_range(data.decode("latin-1"))
        assert 0 <= given.start < given.end <= total
        assert parse_content_range(content_range(given, total)) == (given, total)

    return is_accepted(parse, WrongRange)


# ---- what to begin with ----


TARGETS: dict[str, Target] = {
    "thrift": Target(thrift, footers),
    "footer": Target(footer, footers),
    "offset_index": Target(offset_index, offset_indexes),
    "column_index": Target(column_index, column_indexes),
    "page_headers": Target(page_headers, lambda _: [data for _, _, data in chunks_of_pages()]),
    "held_indexes": Target(held_indexes, indexes_held),
    "surt": Target(surt, urls),
    "pattern": Target(pattern, urls),
    "asked": Target(asked, urls),
    "manifest": Target(manifest, manifests),
    "collinfo": Target(collinfo, collinfos),
    "table": Target(
        table, lambda _: [b'{"name":"hosts","key":"host","keys":"text","manifest":"x/y.gz","path_columns":["crawl"]}']
    ),
    "snapshot": Target(snapshot, snapshots),
    "held": Target(
        held, lambda _: [encode(StoredFile(b"abc", 5, '"e"', None, "http://x/", "2022"))[1 + DIGEST_SIZE :]]
    ),
    "listed": Target(listed, lists_of_captures),
    "capture": Target(capture, rows_of_captures),
    "prefix_index": Target(prefix_index, prefix_indexes),
    "record": Target(record, records),
    "cdx_request": Target(cdx_request, requests),
    "api_request": Target(api_request, requests),
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
    """Damage what each target begins with so many times in all; see ``tests.slow.__main__``."""
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
