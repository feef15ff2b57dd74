"""Lists of blocks in snapshots that are damaged, hostile or differ from the source are refused."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster import make_list
from catalogue import Catalogue
from catalogue.cdx.block_file import write_blocks
from catalogue.cdx.cluster import MAX_LIST, list_path, parse_blocks, shards_path
from catalogue.errors import BadCdx, BadSnapshot
from catalogue.harvest.snapshot import Entry
from tests.support.amounts import in_part
from tests.support.block_lists import write_list
from tests.support.snapshot_lists import (
    CRAWL,
    OTHER,
    change_list,
    exported,
    mirror,
    other_lines,
    place,
    published,
    settings,
    some_lines,
    theirs,
)
from tests.support.snapshots import change_manifest, read_rows, replace_file, with_stored, write_rows

__all__ = ["exported", "mirror", "place", "settings", "theirs"]  # fixtures


def refused(cat: Catalogue, place: Path, message: str, **options: Any) -> None:
    """Pull, which fails and stores nothing."""
    with pytest.raises(BadSnapshot, match=message) as caught:
        cat.pull(str(place), **options)
    assert str(caught.value).endswith("; nothing of it was stored")
    assert cat.session.block_lists.stored == []
    left = [path for path in cat.session.data.rglob("*") if path.parent.name == "blocks" or path.suffix == ".part"]
    assert left == []


# ---- files ----


@in_part(2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], "is not the start of a complete line|has another list of blocks"),
        (lambda rows: rows[1:], "is not a line|does not start with block 1|has another list of blocks"),
        (lambda rows: [*rows[:-2], rows[-1], rows[-2]], "is less than the key before it|has another list of blocks"),
        (lambda rows: [*rows, rows[-1]], "has more than|is less than the key before it"),
        (lambda rows: [*map(with_stored(size=MAX_LIST + 1), rows)], "no list of blocks, or a list that is too large"),
        (lambda rows: [*map(with_stored(size=0), rows)], "no list of blocks, or a list that is too large"),
        (lambda rows: [row._replace(table="documents") for row in rows], "is not a file of"),
        (lambda rows: rows[:0], "no list of blocks"),
    ],
)
def test_refuses_other_values(
    theirs: Catalogue, place: Path, change: Callable[[list[Entry]], list[Entry]], message: str
) -> None:
    replace_file(place, lambda path: write_rows(path, change(read_rows(path))))
    for compare in (0, 3):
        refused(theirs, place, message, compare=compare)


def swapped(lines: bytes) -> bytes:
    first, second, rest = lines.split(b"\n", 2)
    one, other = (line.partition(b" ") for line in (first, second))
    return b"\n".join((b"".join((other[0], *one[1:])), b"".join((one[0], *other[1:])), rest))


@in_part(2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swapped, "the key is less than the key before it"),
        (lambda lines: lines[:-1], "is not the start of a complete line"),
        (lambda lines: lines.replace(b"\tcdx-00002.gz\t0\t", b"\tcdx-00002.gz\t1\t"), "does not start at the end"),
        (lambda lines: lines.replace(b"\t5000\n", b"\t5001\n"), "the number of the block is not the next one"),
        (lambda lines: lines.replace(b"com,", b"com\xff", 1), "is not a line of a list"),
        (lambda lines: lines.replace(b"com,", b"com\xfe", 1), "key that is not UTF-8|is less than the key"),
        (lambda _: b"\n" * 1000, "is not a line of a list"),
    ],
    ids=["order", "no line feed", "gap", "number", "byte", "not UTF-8", "empty lines"],
)
def test_refuses_invalid_lines(theirs: Catalogue, place: Path, change: Callable[[bytes], bytes], message: str) -> None:
    lines = change(some_lines())
    assert lines != some_lines()
    change_list(place, lines)
    refused(theirs, place, message, compare=0)
    refused(theirs, place, f"{message}|has another list of blocks|that the source does not have", compare=3)


@pytest.mark.parametrize("pieces", [5_000, 1 << 20])
def test_accepts_other_pieces(theirs: Catalogue, place: Path, pieces: int) -> None:
    """Compared parts of a list do not depend on how a snapshot divides it."""
    change_list(place, some_lines()[:100] + some_lines()[100:].replace(b" 202208", b" 202207", 1), pieces=pieces)
    refused(theirs, place, "has another list of blocks", compare=1000)
    change_list(place, some_lines(), pieces=pieces)
    assert theirs.pull(str(place)).lists == 1


@in_part(2)
@pytest.mark.parametrize("own_size", [True, False])
def test_stops_early_at_bombs(theirs: Catalogue, place: Path, *, own_size: bool) -> None:
    more = 96 << 20
    size = len(some_lines()) if own_size else MAX_LIST

    def change(path: Path) -> None:
        rows = read_rows(path) if own_size else []
        version = replace((rows or read_rows(path))[0].stored, size=size, data=bytes(64 << 10))
        write_rows(path, [*rows, *[Entry("blocks", list_path(CRAWL), version)] * (more // (64 << 10))])

    replace_file(place, change)
    tracemalloc.start()
    try:
        refused(theirs, place, "has more than|is not the start of a complete line", compare=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < more / 3


def test_long_keys_are_refused() -> None:
    def line(number: int) -> bytes:
        key = b"com,%05d" % number + b"a" * 900_000
        return key + b" 20220807000000\tcdx-00000.gz\t%d\t100\t%d\n" % (100 * (number - 1), number)

    parts = (parse_blocks(CRAWL, line(number), start=number - 1, ends=False) for number in range(1, 100))
    with pytest.raises(BadCdx, match="has keys that are too long"):
        write_blocks(BytesIO(), CRAWL, parts)


# ---- compared with the source ----


def test_refuses_lists_that_differ_from_the_source(theirs: Catalogue, mirror: Path, place: Path) -> None:
    """In every part, and in one: the time of the first line."""
    (mirror / list_path(CRAWL)).write_bytes(some_lines().replace(b" 202208", b" 202207"))
    refused(theirs, place, "has another list of blocks than", compare=1)
    (mirror / list_path(CRAWL)).write_bytes(some_lines().replace(b" 202208", b" 202207", 1))
    refused(theirs, place, "has another list of blocks than .* from byte 0 on", compare=1000)
    assert theirs.requests > 3
    before = theirs.requests
    assert theirs.pull(str(place), compare=0).lists == 1
    assert theirs.requests == before


@in_part(3)
@pytest.mark.parametrize("change", ["larger", "smaller", "gone", "no files", "fewer shards"])
def test_refuses_lists_of_other_versions(theirs: Catalogue, mirror: Path, place: Path, change: str) -> None:
    listed, shards = mirror / list_path(CRAWL), mirror / shards_path(CRAWL)
    message = "that the source does not have as it is"
    match change:
        case "larger":
            listed.write_bytes(some_lines() + b"x")
        case "smaller":
            listed.write_bytes(some_lines()[:1000])
        case "gone":
            listed.unlink()
        case "no files":
            shards.unlink()
        case _:
            write_list(mirror, b"".join(some_lines().splitlines(keepends=True)[:100]))
            message += "|ends with shard 299; the crawl has 4 shards"
    refused(theirs, place, message, compare=1)
    write_list(mirror, some_lines())
    assert theirs.pull(str(place), compare=1).lists == 1


def test_refuses_a_list_of_another_crawl(theirs: Catalogue, mirror: Path, place: Path) -> None:
    write_list(mirror, other_lines(), OTHER)
    published(place).rename(published(place).with_name(f"{OTHER}.values"))
    change_manifest(place, CRAWL, crawl=OTHER)
    replace_file(
        place, lambda path: write_rows(path, [row._replace(key=list_path(OTHER)) for row in read_rows(path)]), OTHER
    )
    refused(theirs, place, "ends with shard 299; the crawl has 7|that the source does not have|has another list of")
    write_list(mirror, make_list(9000, seed=3), OTHER)
    refused(theirs, place, "that the source does not have as it is|has another list of")
