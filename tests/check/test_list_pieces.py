"""The intervals of the pieces of a list of blocks have each key once."""

import gzip
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import catalogue
from benchmarks.cluster import make_list
from catalogue.cdx.cluster import index_folder, list_path, parse_blocks, shards_path
from catalogue.cdx.list_search import Predictor
from catalogue.check.list_pieces import MARGIN, PIECE, ListPieces
from catalogue.errors import BadCdx, FileChanged
from catalogue.plan.block_lists import BlockLists
from catalogue.settings import Settings
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.retry import PoliteSource
from catalogue.store.database import Store
from catalogue.surt import END, KeyInterval, exact_interval

CRAWL = "CC-MAIN-2022-33"


@cache
def listed() -> bytes:
    return make_list(20_000)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    write(tmp_path / "mirror", listed())
    return tmp_path / "mirror"


def without_store(source: PoliteSource) -> BlockLists:
    def create() -> Store:
        raise AssertionError("nothing is to be stored")

    return BlockLists(lambda: source, lambda: None, create, lambda _: {}, lambda _: None)


def pieces_of(source: PoliteSource) -> ListPieces:
    return ListPieces(source, CRAWL, without_store(source))


def write(folder: Path, lines: bytes) -> None:
    shards = 1 + parse_blocks(CRAWL, lines).shard(lines.count(b"\n") - 1)
    names = "".join(f"{index_folder(CRAWL)}/cdx-{number:05}.gz\n" for number in range(shards))
    for path, data in {list_path(CRAWL): lines, shards_path(CRAWL): gzip.compress(names.encode())}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def opened(mirror: Path) -> PoliteSource:
    return catalogue.open(mirror.parent / "data", settings=Settings(source=str(mirror))).session.source


def first_keys(lines: bytes) -> list[bytes]:
    """The key at which each piece starts."""
    starts = [line.split(b" ")[0] for line in lines.splitlines()]
    ends = [0]
    for line in lines.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    firsts, at = [], 0
    for offset in range(0, len(lines), PIECE):
        while at < len(starts) and ends[at] < offset:
            at += 1
        firsts.append(starts[at] if at < len(starts) else END)
    return [b"", *firsts[1:]]


def test_pieces_have_each_key_once(mirror: Path) -> None:
    pieces = pieces_of(opened(mirror))
    numbers = [*range(len(pieces))]
    Random(1).shuffle(numbers)
    found = {number: pieces.interval(number) for number in numbers}
    expected = [*first_keys(listed()), END]
    assert len(pieces) == len(expected) - 1 > 1000
    for number, (start, end) in enumerate(pairwise(expected)):
        assert found[number] == (KeyInterval(start, end) if start < end else None)


def test_key_in_many_blocks_is_in_one_piece(mirror: Path) -> None:
    lines = listed().splitlines(keepends=True)
    key = lines[500].split(b" ")[0]
    lines[500:900] = [key + line[line.index(b" ") :] for line in lines[500:900]]
    lines[500:900] = [b"%b %014d%b" % (key, n, line[line.index(b"\t") :]) for n, line in enumerate(lines[500:900])]
    write(mirror, b"".join(lines))
    pieces = pieces_of(opened(mirror))
    intervals = [pieces.interval(number) for number in range(len(pieces))]
    assert sum(interval is not None and key in interval for interval in intervals) == 1
    assert intervals.count(None) > 10


def test_piece_takes_one_request(mirror: Path) -> None:
    source = opened(mirror)
    lists = without_store(source)
    pieces = ListPieces(source, CRAWL, lists)
    assert source.requests == 2
    before = source.bytes
    pieces.interval(len(pieces) // 2)
    assert source.requests == 3
    assert source.bytes - before == PIECE + 2 * MARGIN
    pieces.interval(len(pieces) // 2)
    ListPieces(source, CRAWL, lists).interval(len(pieces) // 2)
    assert source.requests == 3


def test_lists_without_their_last_shards_are_errors_after_searches_of_other_parts(mirror: Path) -> None:
    cut = listed()[: listed().index(b"\tcdx-00200.gz")]
    for lines in (listed(), cut[: cut.rindex(b"\n") + 1], listed()[:-1]):
        (mirror / list_path(CRAWL)).write_bytes(lines)
        source = opened(mirror)
        lists = without_store(source)
        search = lists.search(CRAWL)
        search.predict = Predictor(lambda _: 0.5, len(listed()))
        search.find(exact_interval(parse_blocks(CRAWL, listed()).key(10_000)))
        assert search.known.missing(ByteRange(len(lines) - 1, len(lines)))
        if lines == listed():
            assert len(ListPieces(source, CRAWL, lists)) == len(listed()) // PIECE + 1
            assert source.requests <= 5
        else:
            with pytest.raises(BadCdx, match=r"ends with shard 199; the crawl has 299|is not the end of a line$"):
                ListPieces(source, CRAWL, lists)


def test_long_lines_take_more_requests(mirror: Path) -> None:
    lines = listed().splitlines(keepends=True)
    place = lines[9000].index(b" ")
    lines[9000] = lines[9000][:place] + b"," + b"z" * 50_000 + lines[9000][place:]
    lines[9001:] = [line for line in lines[9001:] if line.split(b" ")[0] > lines[9000].split(b" ")[0]]
    data = renumbered(lines)
    write(mirror, data)
    pieces = pieces_of(opened(mirror))
    inside = data.index(b"zz") // PIECE + 20
    assert pieces.interval(inside) is None
    keys = first_keys(data)
    for number in (inside - 30, inside + 28, inside + 60):
        start, end = keys[number : number + 2]
        assert pieces.interval(number) == (KeyInterval(start, end) if start < end else None)


def renumbered(lines: list[bytes]) -> bytes:
    """Give lines consecutive places."""
    return b"".join(
        b"%b\tcdx-00000.gz\t%d\t10\t%d\n" % (line[: line.index(b"\t")], 10 * number, number + 1)
        for number, line in enumerate(lines)
    )


def test_changed_or_damaged_list_is_an_error(mirror: Path) -> None:
    pieces = pieces_of(opened(mirror))
    path = mirror / list_path(CRAWL)
    data = bytearray(listed())
    data[len(data) // 2] = 0
    path.write_bytes(data)
    with pytest.raises((BadCdx, FileChanged)):
        pieces.interval(len(pieces) // 2)
    path.write_bytes(listed()[: listed().rindex(b"\n", 0, -1) + 1])
    with pytest.raises(FileChanged):
        pieces.interval(len(pieces) // 3)
