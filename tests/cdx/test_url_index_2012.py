"""The URL index of 2012: what a scan of all its URLs finds, in three requests, or a named error."""

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import catalogue
from catalogue.cdx.url_index_2012 import (
    HEADER_SIZE,
    PATH,
    Header,
    OldIndex,
    parse_index_block,
    parse_key_prefix,
    url_of,
)
from catalogue.commoncrawl.capture import MAX_RECORD, Capture
from catalogue.demo import LoopbackServer
from catalogue.errors import BadCdx, NotFound, QueryError
from catalogue.settings import Settings
from tests.support.amounts import EXAMPLES, in_part
from tests.support.answers import Memory
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Kind, Request
from tests.support.prefix_indexes import Item, blocks_of, data_blocks, index_bytes, prefix, url_key, write_index

WHERE = (1346876860782, 1346908921144, 4245, 1850172, 7702)
NAME = "parse-output/segment/1346876860782/1346908921144_4245.arc.gz"

HOSTS = ["example.com", "www.example.com", "a.b.example.com", "example2.com", "exampl.com", "example-shop.com"]
HOSTS += ["example.com:8080", "www.example.com:81", "example.is", "is", "com.is", "com", "1.2.3.4"]
PATHS = ["/", "/blog", "/blog/", "/blog/a", "/blog/b?c=d:e", "/Blog/", "/blo", "/blog2", "/a b"]
PATHS += ["/~x.:http", "/blog:http"]
SCHEMES = ["http", "https"]

ACROSS_BLOCKS = ["http://example.com/a"] * 2 + ["http://example.com/b"] * 30 + ["http://example.com/c"] * 2

urls = st.builds("{}://{}{}{}".format, *map(st.sampled_from, (SCHEMES, HOSTS, PATHS, ["", "", "1", "?q", "/é"])))
patterns = st.one_of(
    urls,
    st.builds("{}{}".format, st.sampled_from(HOSTS), st.sampled_from(PATHS)),
    st.builds("{}{}{}*".format, st.sampled_from(["", "http://", "https://"]), *map(st.sampled_from, (HOSTS, PATHS))),
    st.builds("{}*.{}".format, st.sampled_from(["", "https://"]), st.sampled_from([*HOSTS[:6], *HOSTS[8:]])),
    st.just("*"),
)


def matches(pattern: str, url: str) -> bool:
    """Match a URL in its usual spelling."""
    scheme, _, rest = pattern.rpartition("://")
    if scheme and not url.startswith(f"{scheme}://"):
        return False
    without = url.partition("://")[2]
    if rest == "*":
        return True
    if rest.startswith("*."):
        return f".{urlsplit(url).hostname}".endswith(rest[1:])
    return without.startswith(rest[:-1]) if rest.endswith("*") else without == rest


def items_of(some: list[str]) -> list[Item]:
    return sorted((url_key(url), (*WHERE[:3], number, 1 + number)) for number, url in enumerate(some))


def found_in(index: OldIndex, pattern: str) -> list[Capture]:
    return list(index.captures(index.find(pattern)))


def scanned(items: list[Item], pattern: str) -> list[Capture]:
    captures = (Capture(NAME, at[3], at[4], url_of(key)) for key, at in items)
    return [each for each in captures if matches(pattern, each.url or "")]


@settings(max_examples=5 * EXAMPLES)
@example(some=["http://example.com/blog"], pattern="example.com/blog:http*", limit=0, size=144, repeats=True)
@example(some=ACROSS_BLOCKS, pattern="example.com/b", limit=3, size=144, repeats=True)
@example(some=ACROSS_BLOCKS, pattern="example.com/b", limit=3, size=144, repeats=False)
@given(
    st.lists(urls, min_size=1, max_size=120),
    patterns,
    st.integers(0, 5),
    st.sampled_from([144, 200, 256, 1000]),
    st.sampled_from([True, False]),
)
def test_equals_a_full_scan(
    some: list[str],
    pattern: str,
    limit: int,
    size: int,
    repeats: bool,  # noqa: FBT001 - drawn
) -> None:
    items = items_of(some)
    data = index_bytes(items, size, repeats=repeats)
    source = Memory(data)
    extent = (index := OldIndex(source, "x")).find(pattern)
    assert list(index.captures(extent)) == scanned(items, pattern)
    assert len(source.log) <= 5  # the header, the root and three more
    assert [pin is None for pin in source.pins] == [True] + [False] * (len(source.log) - 1)
    interval = parse_key_prefix(pattern).interval
    blocks = data_blocks(items, size)
    needed = [n for n, block in enumerate(blocks) if any(key in interval for key, _ in block)]
    read = blocks_of(data)(source.log[-1])
    start = len(data) // size - len(blocks)
    assert {start + n for n in needed} <= {*read}
    # Others end where the result might begin, or begin where it might end.
    ends = [block[-1][0] for block in blocks], [block[0][0] for block in blocks]
    for number in {*read} - {start + n for n in needed}:
        at = number - start
        assert at == 0 or prefix(ends[0][at - 1], ends[1][at]) < interval.end
        assert at + 1 == len(blocks) or prefix(ends[0][at], ends[1][at + 1]) >= interval.start
    assert list(index.captures(extent, limit=limit)) == scanned(items, pattern)[:limit]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Item], LoopbackServer]]:
    """An index of which the top of the tree is the smaller part, with blocks of 256 bytes."""
    folder = tmp_path_factory.mktemp("many")
    some = [f"http://h{n % 300}.example{n % 7}.com/{n}/{'x' * 100}" for n in range(30_000)]
    items = items_of(some)
    write_index(folder / PATH, items, 256)
    with LoopbackServer(folder) as server:
        yield items, server


@in_part(3)
@pytest.mark.parametrize(("pattern", "count"), [("h7.example0.com/*", 1), ("*.h7.example6.com", 2), ("none.is/*", 2)])
def test_takes_three_requests_after_the_root(
    many: tuple[list[Item], LoopbackServer], tmp_path: Path, pattern: str, count: int
) -> None:
    items, server = many
    settings = Settings(source=server.url, cache=tmp_path)
    server.log.clear()
    with catalogue.open(tmp_path, settings=settings) as cat:
        index = cat.old_index()
        assert repr(index) == "<OldIndex in projects/url-index/url-index.1356128792>"
        extent = index.find(pattern)
        between = [item for item in items if item[0] in extent.pattern.interval]
        assert list(index.captures(extent)) == scanned(between, pattern)
        requested = [exchange.range or "" for exchange in server.log]
        assert requested[0] == "bytes=0-7"
        assert requested[1] == f"bytes=8-{HEADER_SIZE + (512 << 10) - 1}"  # the root, and what is next to it
        assert len(requested[2:]) == count  # a block of the lowest level, unless it is there too, and the result
        assert requested[-1] == f"bytes={extent.range.start}-{extent.range.end - 1}"
        assert len(extent.range) <= 256 * (len(between) + 3)  # each of these entries fills more than half a block
        assert sum(exchange.sent_bytes for exchange in server.log[2:-1]) <= 1 << 14
        server.log.clear()
        found_in(index, "h9.example5.com/*")
        assert 1 <= len(server.log) <= 2  # the top of the tree is read once
    with catalogue.open(tmp_path, settings=settings) as cat:
        server.log.clear()
        found_in(cat.old_index(), pattern)
        assert [exchange.range for exchange in server.log] == ["bytes=0-7"]  # the rest is in the cache


def test_searches_work_again_after_a_damaged_response(tmp_path: Path) -> None:
    items = items_of([f"http://example.com/{n}" for n in range(3000)])
    write_index(tmp_path / PATH, items, 256)

    def script(request: Request) -> Fault | None:
        start, _, end = request.headers["range"].removeprefix("bytes=").partition("-")
        half = (int(end) - int(start) + 1) // 2
        return Fault(Kind.FLIPPED_BIT, variant=-half) if request.number == 1 else None  # the first byte of the root

    with FaultServer(tmp_path, script=script) as server:
        settings = Settings(source=server.url, cache=tmp_path)
        with catalogue.open(tmp_path, settings=settings) as cat:
            with pytest.raises(BadCdx):
                found_in(cat.old_index(), "example.com/*")
            assert found_in(cat.old_index(), "example.com/*") == scanned(items, "*")


def test_reads_large_results_in_parts() -> None:
    items = items_of([f"http://example.com/{n}/{'x' * 4000}" for n in range(5000)])
    source = Memory(index_bytes(items, 1 << 16))
    index = OldIndex(source, "x")
    extent = index.find("example.com/*")
    assert index.cost(extent) == (2, len(extent.range)) == (2, len(source.data) - source.log[1].end)
    assert list(index.captures(extent)) == scanned(items, "*")
    pieces = source.log[-2:]
    assert (pieces[0].start, pieces[0].end, pieces[1].end) == (extent.range.start, pieces[1].start, extent.range.end)
    assert max(map(len, pieces)) <= 16 << 20
    source.log = source.log[:1]
    assert list(index.captures(extent, limit=3)) == scanned(items, "*")[:3]
    assert sum(map(len, source.log[1:])) <= 2 << 16
    assert index.cost(extent, limit=3) == (1, (2 << 16) + 3 * 128)
    assert index.cost(extent, limit=10**9) == index.cost(extent)
    assert list(index.captures(extent, limit=0)) == []
    assert len(source.log) == 2


@pytest.mark.parametrize(
    ("key", "url"),
    [
        (
            "com.metafilter.projects/3012/You-are-listening-to-Los-Angeles:http",
            "http://projects.metafilter.com/3012/You-are-listening-to-Los-Angeles",
        ),
        ("com.google.www/:http", "http://www.google.com/"),
        ("com.example.www/cse?cx=1:-w&q=%22a+b%22:https", "https://www.example.com/cse?cx=1:-w&q=%22a+b%22"),
        ("com.example:8080/a:b:http", "http://example.com:8080/a:b"),
        ("com.example:http", "http://example.com"),
        ("com.example/a", "http://example.com/a"),
        ("4.3.2.1/:http", "http://1.2.3.4/"),
        ("com.example/café:http", "http://example.com/café"),
        ("com.example/caf\udce9:http", "http://example.com/caf\xe9"),  # not UTF-8
    ],
)
def test_converts_keys_to_urls(key: str, url: str) -> None:
    assert url_of(key.encode(errors="surrogateescape")) == url


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        *(("EXAMPLE.com/blog/*", "example.com/blog/*"), (" *.example.com/* ", "*.example.com")),
        *(("*.example.com/", "*.example.com"), ("HTTPS://example.com", "https://example.com/")),
        *(("example.com?q", "example.com/?q"), ("*.Exämple.com.", "*.xn--exmple-cua.com")),
    ],
)
def test_accepts_spellings_of_a_pattern(pattern: str, same: str) -> None:
    one, other = parse_key_prefix(pattern), parse_key_prefix(same)
    assert (one.interval, one.form) == (other.interval, other.form)


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "/", "http://", "exam*", "*.example.com/blog/*", "*.example.com:80", "*.", "a*b.com/", "example.com/*/a"),
        *("ftp://example.com/", "example.com/#a", "example.com/a\0b", "u:p@example.com/", "[::1]/", "a.is/\ud800"),
    ],
)
def test_rejects_invalid_patterns(pattern: str) -> None:
    with pytest.raises(QueryError, match="patterns look like"):
        parse_key_prefix(pattern)


SIZE = 200
ITEMS = items_of([f"http://h{n}.example.com/" for n in range(80)])
WHOLE = index_bytes(ITEMS, SIZE)
INDEX_BLOCKS = struct.unpack_from("<I", WHOLE, 4)[0]


def changed(*changes: tuple[int, int, bytes]) -> bytes:
    """Return the file with changed blocks: number, offset within it, bytes."""
    data = bytearray(WHOLE)
    for number, at, new in changes:
        start = HEADER_SIZE + number * SIZE + at
        data[start : start + len(new)] = new
    return bytes(data)


def number(value: int) -> bytes:
    return struct.pack("<I", value)


def index_block(place: int, *parts: bytes) -> bytes:
    return changed((place, 0, b"".join(parts).ljust(SIZE, b"\0")))


BLOCKS = data_blocks(ITEMS, SIZE)
ENTRY = len(ITEMS[0][0]) + 33
LAST_ENTRY = sum(len(key) + 33 for key, _ in BLOCKS[0][:-1])
HOSTILE = {
    "no header": (WHOLE[:8], "*", "a file of 0 blocks cannot have"),
    "blocks of nothing": (struct.pack("<II", 0, INDEX_BLOCKS) + WHOLE[8:], "*", "invalid size of blocks"),
    "blocks of gigabytes": (struct.pack("<II", 1 << 31, INDEX_BLOCKS) + WHOLE[8:], "*", "invalid size of blocks"),
    "no index blocks": (struct.pack("<II", SIZE, 0) + WHOLE[8:], "*", "cannot have 0 index blocks"),
    "index blocks alone": (struct.pack("<II", SIZE, 1 << 20) + WHOLE[8:], "*", "cannot have 1,048,576"),
    "another file": (b"PAR1" + WHOLE[4:], "*", "invalid size of blocks"),
    "a root of itself": (index_block(0, number(0)), "*", "block 0 .* is not after it"),
    "a leaf that points up": (index_block(1, number(1)), "*", "block 1 .* is not after it"),
    "a block that is not there": (index_block(0, number(1 << 30)), "*", "which does not exist"),
    "blocks with gaps": (changed((0, 0, number(0))), "*", "do not follow each other"),
    "blocks of two kinds": (
        index_block(0, number(INDEX_BLOCKS - 1), b"com.ex\0", number(INDEX_BLOCKS)),
        "*",
        "and at data",
    ),
    "prefixes out of order": (index_block(0, number(1), b"d\0", number(2), b"c\0", number(3)), "*", "is not in order"),
    "a prefix without end": (changed((0, 4, b"x" * (SIZE - 4))), "*", "block 0 .* ends within an entry"),
    "a number cut off": (changed((0, 4, b"x" * (SIZE - 7) + b"\0aa")), "*", "block 0 .* ends within an entry"),
    "data after the end": (changed((0, SIZE - 1, b"x")), "*", "block 0 .* has data after its end"),
    "prefixes that those above contradict": (
        index_block(0, number(1), b"com.example.h8\0", number(2)),
        "h9.example.com/",
        "block 2 of the index contradicts the blocks above it",
    ),
    "an empty data block": (changed((INDEX_BLOCKS, 0, bytes(SIZE))), "*", "is empty"),
    "a URL without end": (changed((INDEX_BLOCKS, 0, b"x" * SIZE)), "*", "ends within an entry"),
    "a location cut off": (changed((INDEX_BLOCKS, 0, b"a" * (SIZE - 20) + b"\0")), "*", "ends within an entry"),
    "URLs out of order": (changed((INDEX_BLOCKS, 0, b"zz")), "*", "is not in order"),
    "data blocks out of order": (
        changed((INDEX_BLOCKS + 1, 0, b"com.example.a")),
        "*",
        f"block {INDEX_BLOCKS + 1} of the index contradicts the blocks above it, or before it",
    ),
    "data that the index contradicts": (
        changed((INDEX_BLOCKS, LAST_ENTRY, b"con")),
        "h0.example.com/",
        f"block {INDEX_BLOCKS} of the index contradicts the blocks above it",
    ),
    "no record": (changed((INDEX_BLOCKS, ENTRY - 4, number(0))), "*", "'http://h0.example.com/': 0 bytes at 0"),
    "a record too large": (changed((INDEX_BLOCKS, ENTRY - 4, number(MAX_RECORD + 1))), "*", "invalid place"),
    "an offset too large": (changed((INDEX_BLOCKS, ENTRY - 12, b"\xff" * 8)), "*", "invalid place"),
    "a last block cut short": (WHOLE[: 70 - SIZE], "*", "ends within an entry"),
    "a last block that is missing": (WHOLE[:-SIZE], "*", "which does not exist"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_invalid_files_are_named_errors(what: str) -> None:
    data, pattern, why = HOSTILE[what]
    with pytest.raises(BadCdx, match=why):
        found_in(OldIndex(Memory(data), "x"), pattern)


def test_bounds_memory_of_claimed_blocks() -> None:
    block = (number(1) + b"a\0" + number(30_000_000)).ljust(64, b"\0")
    tracemalloc.start()
    with pytest.raises(BadCdx, match="names blocks that do not follow each other"):
        parse_index_block(Header(64, 40_000_000, 1 << 40), 0, block)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


def test_reads_branches_of_different_depths() -> None:
    root, leaf = (number(n) + b"b\0" + number(n + 1) for n in (1, 4))
    data = [key + b"\0" + bytes(28) + number(1) for key in (b"a", b"b", b"c")]
    blocks = [root, number(3), number(4), leaf, *data]
    file = struct.pack("<II", 64, 4) + b"".join(block.ljust(64, b"\0") for block in blocks)
    with pytest.raises(BadCdx, match="branches of different lengths"):
        OldIndex(Memory(file), "x").find("*")


def test_asks_before_large_reads_and_reports_a_missing_index(tmp_path: Path) -> None:
    write_index(tmp_path / PATH, ITEMS, SIZE)
    for limit in ([], ["--limit", "100"]):
        ran = Command(tmp_path / "data", str(tmp_path), tmp_path)("old-index", "*.com", "--max-bytes", "10", *limit)
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "narrow the query, or add --yes" in ran.err
    ran = Command(tmp_path / "data", str(tmp_path), tmp_path)("old-index", "*.com", "--limit", "1")
    assert ran.err == "1 capture; there may be more, beyond --limit\n"
    says = "does not exist; Common Crawl has the URL index of 2012"
    with catalogue.open(tmp_path, source=str(tmp_path)) as cat, pytest.raises(NotFound, match=says):
        cat.old_index("none").find("*")
