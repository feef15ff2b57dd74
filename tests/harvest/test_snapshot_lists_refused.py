"""Lists of blocks in snapshots that are damaged, hostile or differ from the source are refused."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster import make_list
from catalogue import Catalogue
from catalogue.cdx.block_file import write_blocks
from catalogue.cdx.cluster import MAX_LIST, list_path, parse_blocks, shards_path
from catalogue.errors import BadCdx, BadSnapshot
from catalogue.harvest.snapshot import CRAWL_LIST, MANIFEST, unpack_snapshot
from tests.support.amounts import in_part
from tests.support.block_lists import write_list
from tests.support.snapshot_lists import (
    CRAWL,
    LINES,
    OTHER,
    OTHERS,
    change_list,
    exported,
    mirror,
    place,
    published,
    settings,
    theirs,
)

__all__ = ["exported", "mirror", "place", "settings", "theirs"]  # fixtures

Fields = dict[str, Any]


def refused(cat: Catalogue, place: Path, message: str, **options: Any) -> None:
    """Pull, which fails and stores nothing."""
    with pytest.raises(BadSnapshot, match=message) as caught:
        cat.pull(str(place), **options)
    assert str(caught.value).endswith("; nothing of it was stored")
    assert cat.session.block_lists.stored == []
    left = [path for path in cat.session.data.rglob("*") if path.parent.name == "blocks" or path.suffix == ".part"]
    assert left == []


# ---- manifests ----


def test_manifests_of_earlier_versions_have_no_lists(place: Path) -> None:
    fields = json.loads((place / MANIFEST).read_bytes())
    del fields["blocks"]
    assert unpack_snapshot(json.dumps(fields).encode()).blocks == ()


def entry(**fields: object) -> Callable[[Fields], object]:
    return lambda manifest: manifest["blocks"][0].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(blocks={}), "not a list"),
        (lambda manifest: manifest["blocks"].append({}), "'name'"),
        (lambda manifest: manifest["blocks"].append(manifest["blocks"][0]), "two lists"),
        (lambda manifest: manifest["files"].append(manifest["blocks"][0]), "file name"),
        (entry(name=f"crawls/{CRAWL}.{'0' * 32}.parquet"), "file name"),
        (entry(name=f"blocks/{CRAWL_LIST}.{'0' * 32}.idx.gz"), "file name"),
        (entry(name=f"blocks/../{CRAWL}.{'0' * 32}.idx.gz"), "file name"),
        (entry(sha256="x"), "sha256"),
        (entry(count=-1), "count"),
        (entry(file_size=0), "file_size"),
        (entry(file_size=MAX_LIST + 1), "file_size"),
        (entry(file_size=True), "bool instead of int"),
        (entry(etag=0), "int instead of str"),
        (entry(last_modified=[]), "list instead of str"),
        (entry(source=None), "NoneType instead of str"),
        (entry(harvested_at=7), "int instead of str"),
    ],
)
def test_refuses_invalid_manifests(place: Path, change: Callable[[Fields], object], message: str) -> None:
    manifest = json.loads((place / MANIFEST).read_bytes())
    change(manifest)
    with pytest.raises(BadSnapshot, match=message):
        unpack_snapshot(json.dumps(manifest).encode())


# ---- files ----


def test_refuses_damaged_files(theirs: Catalogue, place: Path) -> None:
    whole = published(place).read_bytes()
    published(place).write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    refused(theirs, place, "another digest")
    published(place).unlink()
    refused(theirs, place, "was not found")
    published(place).write_bytes(whole)
    assert theirs.pull(str(place)).lists == 1


def flipped(data: bytes) -> bytes:
    return data[:-6] + bytes([data[-6] ^ 1]) + data[-5:]


@in_part(2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-9], "is not the list of blocks of CC-MAIN-2022-33: Compressed file ended"),
        (lambda data: data[: len(data) // 2], "is not the list of blocks of CC-MAIN-2022-33: "),
        (flipped, "CRC check failed"),
        (lambda data: data[:5000] + b"x" * 500 + data[5500:], "is not the list of blocks"),
        (lambda data: data + b"x", "is not the list of blocks"),
        (lambda data: data + gzip.compress(LINES), "the key is less than the key before it"),
        (lambda data: data + gzip.compress(b"x"), "has more lines than the"),
        (lambda _: LINES, "is not the list of blocks of CC-MAIN-2022-33: Not a gzipped file"),
        (lambda _: b"PAR1" * 10, "Not a gzipped file"),
    ],
)
def test_refuses_other_files(theirs: Catalogue, place: Path, change: Callable[[bytes], bytes], message: str) -> None:
    change_list(place, change(published(place).read_bytes()))
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
    lines = change(LINES)
    assert lines != LINES
    change_list(place, gzip.compress(lines), file_size=len(lines))
    for compare in (0, 3):
        refused(theirs, place, message, compare=compare)


def test_refuses_other_sizes_and_counts(theirs: Catalogue, place: Path) -> None:
    change_list(place, file_size=len(LINES) - len(LINES.splitlines(keepends=True)[-1]))
    refused(theirs, place, "has more lines than the", compare=0)
    change_list(place, file_size=len(LINES) + 1)
    refused(theirs, place, "is not the start of a complete line", compare=0)
    change_list(place, file_size=len(LINES), count=8999)
    refused(theirs, place, "has 9,000 blocks; the manifest says 8,999", compare=0)
    change_list(place, count=9000, harvested_at="soon")
    refused(theirs, place, "invalid time, size or text", compare=0)
    change_list(place, harvested_at="2026-01-01T00:00:00+00:00", etag="\x1b[2J")
    refused(theirs, place, "invalid time, size or text", compare=0)


@in_part(2)
@pytest.mark.parametrize("file_size", [len(LINES), MAX_LIST])
def test_stops_early_at_bombs(theirs: Catalogue, place: Path, file_size: int) -> None:
    more = 96 << 20
    packed = BytesIO()
    with gzip.open(packed, "wb", compresslevel=1) as file:
        if file_size == len(LINES):
            file.write(LINES)
        for _ in range(more >> 20):
            file.write(bytes(1 << 20))
    change_list(place, packed.getvalue(), file_size=file_size)
    tracemalloc.start()
    try:
        refused(theirs, place, "more lines than|is not the start of a complete line", compare=0)
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
    (mirror / list_path(CRAWL)).write_bytes(LINES.replace(b" 202208", b" 202207"))
    refused(theirs, place, "has another list of blocks than", compare=1)
    (mirror / list_path(CRAWL)).write_bytes(LINES.replace(b" 202208", b" 202207", 1))
    refused(theirs, place, "has another list of blocks than .* from byte 0 on", compare=1000)
    assert theirs.requests > 3
    before = theirs.requests
    assert theirs.pull(str(place), compare=0).lists == 1
    assert theirs.requests == before


@in_part(3)
@pytest.mark.parametrize("change", ["larger", "smaller", "gone", "no files", "fewer shards"])
def test_refuses_lists_of_other_versions(theirs: Catalogue, mirror: Path, place: Path, change: str) -> None:
    listed, shards = mirror / list_path(CRAWL), mirror / shards_path(CRAWL)
    message = "is a list of blocks that .* does not have, or not in this version"
    match change:
        case "larger":
            listed.write_bytes(LINES + b"x")
        case "smaller":
            listed.write_bytes(LINES[:1000])
        case "gone":
            listed.unlink()
        case "no files":
            shards.unlink()
        case _:
            write_list(mirror, b"".join(LINES.splitlines(keepends=True)[:100]))
            message = "ends with shard 299; the crawl has 4 shards"
    refused(theirs, place, message, compare=1)
    write_list(mirror, LINES)
    assert theirs.pull(str(place), compare=1).lists == 1


def test_refuses_a_list_of_another_crawl(theirs: Catalogue, mirror: Path, place: Path) -> None:
    write_list(mirror, OTHERS, OTHER)
    name = published(place).name.replace(CRAWL, OTHER)
    published(place).rename(place / "blocks" / name)
    change_list(place, name=f"blocks/{name}")
    refused(theirs, place, "ends with shard 299; the crawl has 7 shards")
    write_list(mirror, make_list(9000, seed=3), OTHER)
    refused(theirs, place, "is a list of blocks that .* does not have, or not in this version|has another list of")
