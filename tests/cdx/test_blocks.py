"""Blocks of a CDX index: inflated, checked, and searched for the lines of keys."""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.cdx.blocks import MAX_INFLATED, Block, FoundLines, split_lines
from catalogue.cdx.cluster import BlockList, key_of, list_path, parse_blocks
from catalogue.errors import BadCdx
from catalogue.query.key_intervals import ALL_KEYS, Intervals
from catalogue.surt.interval import END, EVERYTHING, KeyInterval, exact_interval, merge, prefix_interval
from tests.support.cdx_indexes import CdxIndex, find_lines, make_index

CRAWL = "CC-MAIN-2022-33"
LINES = [f"com,{host})/ 202208{day:02}000000 {{}}" for host in "abcd" for day in range(1, 6)]
INDEX = make_index(CRAWL, LINES, lines_a_block=3, blocks_a_shard=2)
"""Seven blocks in four shards; lines of each host continue in the next block or shard."""


def texts(found: list[FoundLines]) -> list[str]:
    return [line.decode() for each in found for line in each.data.splitlines()]


@pytest.mark.parametrize("host", "abcd")
def test_finds_captures_of_a_url_over_borders_of_blocks_and_shards(host: str) -> None:
    found = INDEX.find(INDEX.parsed(), exact_interval(f"com,{host})/".encode()))
    assert texts(found) == [line for line in LINES if line.startswith(f"com,{host})")]
    for each in found:
        place = gzip.decompress(INDEX.files[each.path][each.offset :]).split(b"\n")
        assert each.data.split(b"\n")[0] == place[each.line - 1]


def test_finds_nothing_between_keys_and_around_them() -> None:
    for key in (b"com,a)/0", b"com,bb)/", b"at,a)/", b"net,a)/", b"com,a)"):
        assert INDEX.find(INDEX.parsed(), exact_interval(key)) == []


def intervals(keys: list[bytes]) -> st.SearchStrategy[KeyInterval]:
    ends = st.sampled_from(keys).flatmap(
        lambda key: st.sampled_from([key, key[: len(key) // 2], key + b"\0", key + b"x", key[:-1] + b"\x7f"])
    )
    some = st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: KeyInterval(*sorted(pair)))
    exact = st.sampled_from(keys).map(exact_interval)
    return exact | some | st.sampled_from([EVERYTHING, KeyInterval(keys[-1], END), KeyInterval(b"", keys[0] + b"\0")])


@given(data=st.data())
def test_finds_the_lines_that_a_scan_finds(
    indexes: list[CdxIndex], scanned: dict[str, list[bytes]], data: st.DataObject
) -> None:
    index = data.draw(st.sampled_from(indexes))
    lines = scanned[index.crawl]
    keys = [key_of(line) for line in lines]
    asked = merge(data.draw(st.lists(intervals(keys), min_size=1, max_size=4)))
    max_length = data.draw(st.sampled_from([1, 50_000, 8 << 20]))
    found = index.find(index.parsed(), *asked, max_length=max_length)
    expected = [line for line, key in zip(lines, keys, strict=True) if any(key in interval for interval in asked)]
    assert b"".join(each.data for each in found) == b"".join(expected)


def test_finds_many_intervals_of_any_kind_in_a_block() -> None:
    lines = [f"com,{number:03})/ 20220801000000 {{}}" for number in range(300)]
    data = "".join(f"{line}\n" for line in lines).encode()
    asked = [exact_interval(f"com,{number:03})/".encode()) for number in range(0, 200, 2)]
    asked += [prefix_interval(f"com,{number:02}".encode()) for number in range(21, 29, 2)]
    chosen = {*range(0, 200, 2), *(number for number in range(210, 290) if number // 10 % 2)}
    found = Block("x", 0, data).find(Intervals(asked))
    assert texts(list(found)) == [lines[number] for number in sorted(chosen)]


def change_first(change: Callable[[bytes], bytes]) -> CdxIndex:
    """Return ``INDEX`` with another first block, of which the list has the length."""
    size = INDEX.parsed().extent(0).end
    path = INDEX.shards[0]
    member = change(INDEX.files[path][:size])
    listed = INDEX.cluster.splitlines(keepends=True)
    listed[0] = listed[0].replace(b"\t%d\t1\n" % size, b"\t%d\t1\n" % len(member))
    second = listed[1].split(b"\t")
    listed[1] = b"\t".join([*second[:2], b"%d" % len(member), *second[3:]])
    files = INDEX.files | {path: member + INDEX.files[path][size:], list_path(CRAWL): b"".join(listed)}
    return CdxIndex(CRAWL, files)


def text(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda member: zlib.compress(b"".join(change(gzip.decompress(member).splitlines(keepends=True))), wbits=31)


BLOCK_FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "not gzip": (lambda member: b"<html>" * (len(member) // 6), "not gzip"),
    "truncated": (lambda member: member[:-9], "truncated"),
    "a flipped bit": (lambda member: member[:20] + bytes([member[20] ^ 1]) + member[21:], "not gzip"),
    "trailing bytes": (lambda member: member + b"\0", "data after the end"),
    "two members": (lambda member: member + member, "data after the end"),
    "a wrong size": (lambda member: member[:-4] + b"\0\0\0\1", "not gzip"),
    "a bomb": (lambda _: zlib.compress(b"a" * (MAX_INFLATED + 1), 1, wbits=31), "inflates to more than"),
    "no lines": (text(lambda _: []), "it is empty"),
    "an endless line": (text(lambda lines: [*lines, b"com,a)/ 2022"]), "the last line does not end"),
    "lines of another block": (
        text(lambda lines: [line.replace(b"com,a", b"com,0") for line in lines]),
        "it starts with",
    ),
    "a missing first line": (text(lambda lines: lines[1:]), "it starts with"),
    "lines after the next block": (text(lambda lines: [*lines, b"com,b)/ 20220801000000 {}\n"]), "it ends after"),
    "unsorted lines": (text(lambda lines: [lines[0], lines[2], lines[1]]), "line 3: its key or time is less"),
    "keys that are not text": (text(lambda lines: [*lines, b"\xff 20220801000000 {}\n"]), "a key is not text"),
}


@pytest.mark.parametrize("fault", BLOCK_FAULTS)
def test_rejects_damaged_blocks(fault: str) -> None:
    change, message = BLOCK_FAULTS[fault]
    index = change_first(change)
    with pytest.raises(BadCdx, match=message) as raised:
        index.find(index.parsed(), exact_interval(b"com,a)/"))
    assert f"cc-index/collections/{CRAWL}/indexes/cdx-00000.gz, block at byte 0" in str(raised.value)


def test_rejects_a_list_of_another_crawl() -> None:
    other = make_index(CRAWL, [line.replace("com,", "org,") for line in LINES], lines_a_block=3, blocks_a_shard=2)
    mixed = CdxIndex(CRAWL, INDEX.files | {list_path(CRAWL): other.cluster})
    with pytest.raises(BadCdx):
        mixed.find(mixed.parsed(), prefix_interval(b"org,"))


def test_rejects_shards_of_another_size_than_in_the_list() -> None:
    listed, path = INDEX.parsed(), INDEX.shards[0]
    shard = INDEX.files[path]
    for first, size in ((0, len(shard) - 1), (0, len(shard) + 1), (1, len(shard) + 1), (0, 3)):
        (read,) = listed.reads(range(first, 2))
        with pytest.raises(BadCdx, match="the list has a block that ends at"):
            list(find_lines(listed, read, shard[read.range.start : read.range.end], size, ALL_KEYS))
    (read,) = listed.reads(range(1))  # whose end is not that of the shard
    body = shard[: read.range.end]
    for size in (len(shard) + 1, 0):  # a source may not state it
        assert len(texts(list(find_lines(listed, read, body, size, ALL_KEYS)))) == 3
    with pytest.raises(BadCdx, match="bytes instead of"):
        list(find_lines(listed, read, body[:-1], len(shard), ALL_KEYS))


def test_a_part_of_a_list_does_not_tell_where_a_shard_ends() -> None:
    complete = INDEX.parsed()
    part: BlockList = replace(parse_blocks(CRAWL, INDEX.cluster), columns=complete.columns.slice(0, 2), ends=False)
    (read,) = part.reads(range(2))
    shard = INDEX.files[read.path]
    assert len(texts(list(find_lines(part, read, shard, len(shard) + 100, ALL_KEYS)))) == 6


def test_times_in_order_are_enough() -> None:
    lines = [b"com,a)/ 20220801000000 {2}\n", b"com,a)/ 20220801000000 {1}\n", b"com,b)/ 20220801000000 {}\n"]
    block = Block("cdx-00000.gz", 0, b"".join(lines))
    (found,) = block.find(Intervals([exact_interval(b"com,a)/")]))
    assert found.data == b"".join(lines[:2])


def test_control_characters_hide_no_keys() -> None:
    keys = [b"com,a)/", b"com,a)/\x01", b"com,a)/b"]  # as bytes, the lines of the first two are the other way round
    block = Block("cdx-00000.gz", 0, b"".join(b"%b 20220801000000 {}\n" % key for key in keys))
    assert [each.line for key in keys for each in block.find(Intervals([exact_interval(key)]))] == [1, 2, 3]
    for after in (0, 200_000):
        more = b"com,c)/ 20220801000000 {%b}\n" % (b" " * after)
        with pytest.raises(BadCdx, match="line 2"):
            Block("cdx-00000.gz", 0, b"".join(b"%b 20220801000000 {}\n" % key for key in (keys[1], keys[0])) + more)


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=12), st.integers(0, 20))
def test_finds_where_lines_of_any_length_start(lengths: list[int], control: int) -> None:
    lines = [(b"\x1f" if number == control else b"") + b"x" * length + b"\n" for number, length in enumerate(lengths)]
    starts, array, plain = split_lines(b"".join(lines))
    assert starts.tolist() == [0, *accumulate(map(len, lines))]
    assert array.to_pylist() == lines
    assert plain is (control >= len(lines))


def test_a_line_without_blanks_is_found_by_its_text() -> None:
    block = Block("cdx-00000.gz", 0, b"com,a)/ 20220801000000 {}\ncom,b)/\ncom,c)/ 20220801000000 {}\n")
    (found,) = block.find(Intervals([exact_interval(b"com,b)/")]))
    assert (found.line, found.data) == (2, b"com,b)/\n")


def test_equal_lines_are_not_removed() -> None:
    index = make_index(CRAWL, [LINES[0], LINES[0], LINES[0], LINES[1]], lines_a_block=2)
    assert texts(index.find(index.parsed(), exact_interval(b"com,a)/"))) == [LINES[0]] * 3 + [LINES[1]]
