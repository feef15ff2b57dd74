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
from catalogue.harvest.snapshot import PIECE
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
from tests.support.snapshots import Row, change_manifest, read_rows, replace_file, with_stored, write_rows

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
        (lambda rows: rows[:-1], "is not the start of a complete line"),
        (lambda rows: rows[1:], "other than|has another list of blocks"),
        (lambda rows: [*rows[:-2], rows[-1], rows[-2]], "a list of blocks of other than"),
        (lambda rows: [*rows, rows[-1]], "a list of blocks of other than"),
        (lambda rows: [*rows, rows[-1]._replace(table="documents")], "in its list of blocks"),
        (lambda rows: [rows[0], *(row._replace(key="other") for row in rows[1:])], "in its list of blocks"),
        (lambda rows: [rows[0], *map(with_stored(size=7), rows[1:])], "in its list of blocks"),
        (lambda rows: [*map(with_stored(size=MAX_LIST + 1), rows)], "is not a file of CC-MAIN-2022-33, or too large"),
        (lambda rows: [*map(with_stored(size=0), rows)], "is not a file of CC-MAIN-2022-33, or too large"),
    ],
)
def test_refuses_other_values(
    theirs: Catalogue, place: Path, change: Callable[[list[Row]], list[Row]], message: str
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
    refused(theirs, place, f"{message}|has another list of blocks|does not have, or not in this", compare=3)


def test_refuses_other_counts_and_pieces(theirs: Catalogue, place: Path) -> None:
    change_list(place, pieces=PIECE // 2)  # of which smaller parts would be compared
    refused(theirs, place, "a list of blocks of other than", compare=0)
    change_list(place, pieces=1 << 20)
    refused(theirs, place, "a list of blocks of other than", compare=0)
    change_list(place)
    change_manifest(place, CRAWL, blocks=0, footers=1)
    refused(theirs, place, "does not have the footers", compare=0)
    change_manifest(place, CRAWL, blocks=9000, footers=0)
    assert theirs.pull(str(place), compare=0).lists == 1


@in_part(2)
@pytest.mark.parametrize("own_size", [True, False])
def test_stops_early_at_bombs(theirs: Catalogue, place: Path, *, own_size: bool) -> None:
    more = 96 << 20
    size = len(some_lines()) if own_size else MAX_LIST

    def change(path: Path) -> None:
        rows = read_rows(path) if own_size else []
        version = replace((rows or read_rows(path))[0].stored, size=size, data=bytes(PIECE))
        write_rows(path, [*rows, *[Row("blocks", list_path(CRAWL), version)] * (more // PIECE)])

    replace_file(place, change)
    tracemalloc.start()
    try:
        refused(theirs, place, "of other than|is not the start of a complete line", compare=0)
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
    message = "the source does not have, or not in this version"
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
    refused(theirs, place, "ends with shard 299; the crawl has 7 shards|not in this version|has another list of")
    write_list(mirror, make_list(9000, seed=3), OTHER)
    refused(theirs, place, "the source does not have, or not in this version|has another list of")
