"""The list of blocks of a CDX index: parsed, checked, and searched."""

import gzip
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.cdx.cluster import BlockList, BlockRead, count_shards, parse_blocks, parse_pieces
from catalogue.errors import BadCdx
from catalogue.source.byte_ranges import ByteRange
from catalogue.surt.interval import EVERYTHING, KeyInterval, exact_interval, prefix_interval
from tests.support.block_lists import BLOCKS, CRAWL, PATH, served
from tests.support.cdx_indexes import make_index

FOLDER = f"cc-index/collections/{CRAWL}/indexes"
LINES = [
    b"com,a)/ 20220801000000\tcdx-00000.gz\t0\t100\t1\n",
    b"com,b)/ 20220801000000\tcdx-00000.gz\t100\t50\t2\n",
    b"com,b)/ 20220802000000\tcdx-00000.gz\t150\t70\t3\n",
    b"com,b)/ 20220803000000\tcdx-00001.gz\t0\t80\t4\n",
    b"com,c)/ 20220801000000\tcdx-00001.gz\t80\t90\t5\n",
]
A, B, C = (exact_interval(b"com,%b)/" % letter) for letter in (b"a", b"b", b"c"))


def parsed(*lines: bytes) -> BlockList:
    return parse_blocks(CRAWL, b"".join(lines or LINES))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (A, range(1)),
        (B, range(4)),  # captures can end the block of com,a)/ and start each of the next three
        (C, range(3, 5)),
        (exact_interval(b"com,bb)/"), range(3, 4)),
        (exact_interval(b"com,d)/"), range(4, 5)),
        (exact_interval(b"at,a)/"), range(0)),
        (prefix_interval(b"com,"), range(5)),
        (EVERYTHING, range(5)),
    ],
)
def test_blocks_that_may_have_keys_of_an_interval(interval: KeyInterval, expected: "range") -> None:
    assert parsed().blocks_for(interval) == expected


def test_counts_shards_of_lists_with_other_line_ends() -> None:
    paths = [f"{FOLDER}/cdx-0000{number}.gz" for number in (1, 0)]
    listed = gzip.compress("".join(f"{path} \r\n\r\n" for path in [*paths, f"{FOLDER}/cluster.idx"]).encode())
    assert count_shards(CRAWL, listed) == 2


def test_merges_neighbouring_blocks_of_a_shard() -> None:
    found, shards = parsed(), [f"{FOLDER}/cdx-0000{number}.gz" for number in range(2)]
    assert found.reads(range(5)) == [
        BlockRead(shards[0], ByteRange(0, 220), range(3)),
        BlockRead(shards[1], ByteRange(0, 170), range(3, 5)),
    ]
    assert found.reads(range(1, 4), max_length=100) == [
        BlockRead(shards[0], ByteRange(100, 150), range(1, 2)),
        BlockRead(shards[0], ByteRange(150, 220), range(2, 3)),
        BlockRead(shards[1], ByteRange(0, 80), range(3, 4)),
    ]
    assert [read.blocks for read in found.reads(range(5), max_length=1)] == [range(n, n + 1) for n in range(5)]
    assert found.reads(range(0)) == []


@pytest.mark.parametrize("kept", [range(5), range(1, 5), range(4), range(1, 4)])
def test_a_part_of_a_list_has_the_same_blocks_or_is_refused(kept: "range") -> None:
    start = sum(map(len, LINES[: kept.start]))
    part = parse_blocks(CRAWL, b"".join(LINES[kept.start : kept.stop]), start=start, ends=kept.stop == 5)
    for interval in (A, B, C, exact_interval(b"com,bb)/")):
        expected = parsed().blocks_for(interval)
        following = min(expected.stop, 4)  # a part needs a line after the interval to tell that it is complete
        if expected.start < kept.start or (following >= kept.stop and kept.stop < 5):
            with pytest.raises(BadCdx, match="does not have all blocks"):
                part.blocks_for(interval)
        else:
            numbers = [part.number(place) for place in part.blocks_for(interval)]
            assert numbers == [place + 1 for place in expected]
    assert part.ends_shard(len(part) - 1) in {None, True}


FAULTS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "empty": (lambda _: [], "is empty"),
    "cut within a line": (lambda lines: [*lines[:-1], lines[-1][:-1]], "byte 177 (line 5): b'com,c)/ 2"),
    "unsorted": (lambda lines: [lines[0], lines[4], *lines[1:4]], "byte 88 (line 3): the key is less"),
    "times unsorted": (
        lambda lines: [*lines[:2], lines[2].replace(b"0802", b"0731"), *lines[3:]],
        "byte 89 (line 3): the key is less",
    ),
    "a missing line": (lambda lines: [*lines[:2], *lines[3:]], "byte 89 (line 3): the number"),
    "a line twice": (lambda lines: [lines[0], *lines], "byte 44 (line 2): the number"),
    "a gap": (
        lambda lines: [lines[0], lines[1].replace(b"\t100\t", b"\t101\t"), *lines[2:]],
        "the block does not start",
    ),
    "an overlap": (lambda lines: [lines[0], lines[1].replace(b"\t100\t", b"\t99\t"), *lines[2:]], "does not start"),
    "shard not at 0": (lambda lines: [*lines[:3], lines[3].replace(b"\t0\t", b"\t1\t"), lines[4]], "does not start"),
    "a missing shard": (
        lambda lines: [*lines[:3], *(line.replace(b"-00001", b"-00002") for line in lines[3:])],
        "byte 134 (line 4): the shard is not the next one",
    ),
    "starts later": (lambda lines: lines[1:], "does not start with block 1"),
    "no tab": (
        lambda lines: [lines[0].replace(b"\t0", b" 0"), *lines[1:]],
        "byte 0 (line 1): b'com,a)/ 20220801000000",
    ),
    "a sixth field": (lambda lines: [lines[0][:-1] + b"\t1\n", *lines[1:]], "is not a line"),
    "CRLF": (lambda lines: [lines[0][:-1] + b"\r\n", *lines[1:]], "is not a line"),
    "a byte order mark": (lambda lines: [b"\xef\xbb\xbf" + lines[0], *lines[1:]], "is not a line"),
    "a blank line": (lambda lines: [lines[0], b"\n", *lines[1:]], "byte 44 (line 2): b'' is not a line"),
    "a blank in the key": (lambda lines: [lines[0].replace(b"a)", b"a )"), *lines[1:]], "is not a line"),
    "a control character in the key": (lambda lines: [lines[0].replace(b"a)", b"a\1)"), *lines[1:]], "is not a line"),
    "a short time": (lambda lines: [lines[0].replace(b" 20", b" "), *lines[1:]], "is not a line"),
    "a negative length": (lambda lines: [lines[0].replace(b"\t100", b"\t-100"), *lines[1:]], "is not a line"),
    "an empty block": (lambda lines: [*lines[:4], lines[4].replace(b"\t90\t", b"\t0\t")], "is not a line"),
    "a huge block": (lambda lines: [*lines[:4], lines[4].replace(b"\t90\t", b"\t99999999\t")], "more than 16,777,216"),
    "another name": (lambda lines: [lines[0].replace(b"cdx-", b"cdx_"), *lines[1:]], "is not a line"),
    "a path outside": (lambda lines: [lines[0].replace(b"cdx-00000", b"../../etc"), *lines[1:]], "is not a line"),
    "not a list": (lambda _: [b"<html>not found</html>\n"], "is not a line"),
    "a line without end": (lambda _: [b"a" * (2 << 20)], "is not a line"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_rejects_invalid_lists(fault: str) -> None:
    change, message = FAULTS[fault]
    with pytest.raises(BadCdx, match=re.escape(message)) as raised:
        parse_blocks(CRAWL, b"".join(change(LINES)))
    assert f"{FOLDER}/cluster.idx" in str(raised.value)


def test_rejects_a_list_that_ends_early() -> None:
    assert len(parse_blocks(CRAWL, b"".join(LINES), shards=2)) == 5
    with pytest.raises(BadCdx, match="ends with shard 0; the crawl has 2"):
        parse_blocks(CRAWL, b"".join(LINES[:3]), shards=2)


def test_keys_with_other_characters() -> None:
    lines = ["com,a)/é 20220801000000 {}", "com,a)/日本 20220801000000 {}", 'com,b)/"x" 20220801000000 {}']
    found = make_index(CRAWL, lines, lines_a_block=1).parsed()
    assert [found.key(place).decode() for place in range(3)] == ["com,a)/é", "com,a)/日本", 'com,b)/"x"']


def between(line: bytes, cut: int, text: bytes) -> bytes:
    cut %= len(line)
    return line[:cut] + text + line[cut:]


LINE_FAULTS: list[Callable[[bytes, int], bytes]] = [
    *(lambda line, _: b"\xef\xbb\xbf" + line, lambda line, _: line[:-1] + b"\r\n", lambda line, _: b"\n" + line),
    *(lambda line, _: line + line, lambda _, __: b"", lambda line, _: line.decode().encode("utf-16")),
    *(lambda line, _: line.replace(b"\t", b" "), lambda line, _: line.replace(b" ", b"\t")),
    *(lambda line, _: line.upper(), lambda line, at: between(line, at, b"\0")),
    *(lambda line, at: between(line, at, b"\n"), lambda line, at: between(line, at, b"9")),
    *(lambda line, at: between(line, at, b"-"), lambda line, at: between(line, at, b"\xff\xfe")),
    *(lambda line, at: between(line, at, "é".encode()), lambda line, at: between(line, at, b"9" * 40)),
    *(lambda line, at: line[: at % len(line)] + b"\n", lambda line, at: line[: at % len(line)]),
]


@given(st.sampled_from(LINE_FAULTS), st.sampled_from([0, 1, BLOCKS // 2, BLOCKS - 2, BLOCKS - 1]), st.integers(0, 200))
def test_errors_of_a_wrong_line_name_the_file(
    listed: bytes, blocks: BlockList, fault: Callable[[bytes, int], bytes], number: int, at: int
) -> None:
    """A changed key that remains in order cannot be detected."""
    lines = listed.splitlines(keepends=True)
    lines[number] = fault(lines[number], at)
    data = b"".join(lines)
    errors = []
    with served(data) as server:
        for near in (number - 1, number, number + 1):
            try:
                server.search().find(exact_interval(blocks.key(min(max(near, 0), BLOCKS - 1))))
            except BadCdx as error:
                errors.append(str(error))
    try:
        for _ in parse_pieces(CRAWL, [data], len(data), shards=300):
            pass
    except BadCdx as error:
        errors.append(str(error))
    assert all(PATH in error for error in errors)
