"""Bounds of row groups: found by bisection as by comparing each, and never used when damaged."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.errors import DiskFailed
from catalogue.metadata_db.bounds_file import BoundsFile, BoundsPart, write_bounds_file
from catalogue.surt import KeyInterval

KEYS = st.text("ab,)é", max_size=4)
BOUNDS = st.one_of(st.none(), st.tuples(KEYS, KEYS).map(lambda pair: (min(pair), max(pair))))
INTERVALS = st.lists(KEYS, min_size=2, max_size=140, unique=True).map(
    lambda keys: [
        KeyInterval(start.encode(), end.encode())
        for start, end in zip(sorted(keys)[::2], sorted(keys)[1::2], strict=False)
    ]
)


def part_of(rows: Sequence[tuple[tuple[str, str] | None, bool]]) -> tuple[pa.Table, pa.Table]:
    """Return tables of files and row groups with these bounds, and whether they are in signed order."""
    ordered = sorted(rows, key=lambda row: row[0] or ("", ""))
    ordered = [row for row in ordered if row[0] is None] + [row for row in ordered if row[0]]
    reached: list[str | None] = []
    for bounds, _ in ordered:
        before = reached[-1] if reached else None
        reached.append(max(filter(None, (before, bounds and bounds[1])), default=bounds and bounds[1]))
    count = len(ordered)
    files = pa.table(
        {
            "path": pa.array([f"{row}.parquet" for row in range(count)], pa.string()),
            "version": pa.array([b"v"] * count, pa.binary()),
            "footer_rest": pa.array([None] * count, pa.int32()),
            "file_least": pa.array([""] * count, pa.string()),
            "columns": pa.array([0] * count, pa.int64()),
        }
    )
    row_groups = pa.table(
        {
            "file": pa.array(range(count), pa.int64()),
            "row_group": pa.array(range(count), pa.int32()),
            "footer_offset": pa.array([4] * count, pa.int32()),
            "num_rows": pa.array([1] * count, pa.int64()),
            "first_fetch": pa.array([None] * count, pa.int64()),
            "last_fetch": pa.array([None] * count, pa.int64()),
            "signed": pa.array([signed for _, signed in ordered], pa.bool_()),
            "min_key": pa.array([bounds and bounds[0] for bounds, _ in ordered], pa.string()),
            "max_key": pa.array([bounds and bounds[1] for bounds, _ in ordered], pa.string()),
        }
    )
    if reached != row_groups["max_key"].to_pylist():
        row_groups = row_groups.append_column("reached", pa.array(reached, pa.string()))
    return files, row_groups


@given(st.lists(st.tuples(BOUNDS, st.booleans()), max_size=30), INTERVALS)
def test_finds_what_comparing_each_row_group_finds(
    rows: list[tuple[tuple[str, str] | None, bool]], intervals: list[KeyInterval]
) -> None:
    files, table = part_of(rows)
    ascii_only = all(each.start.isascii() and each.end.isascii() for each in intervals)

    def matches(least: str | None, greatest: str | None, *, signed: bool) -> bool:
        if least is None or greatest is None or (signed and not ascii_only):
            return True
        return any(least.encode() < each.end and greatest.encode() >= each.start for each in intervals)

    bounds = zip(*(table[name].to_pylist() for name in ("min_key", "max_key", "signed")), strict=True)
    expected = [row for row, (least, most, signed) in enumerate(bounds) if matches(least, most, signed=signed)]
    part = BoundsPart(files, table)
    assert part.matching(intervals) == expected
    assert [(place.path, place.row_group) for place in part.places(expected)] == [
        (f"{row}.parquet", row) for row in expected
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.bounds"
    header = {"meta": {"store": "1"}, "counts": {"files": [["A", "warc", 3]]}, "columns": [], "crawls": {"A": [1, 2]}}
    parts = {(crawl, "warc"): part_of([(("a", "b"), False)] * size) for crawl, size in (("A", 3), ("B", 40))}
    with path.open("wb") as file:
        write_bounds_file(file, header, [*parts], parts.__getitem__)
    return path


def test_roundtrip(path: Path) -> None:
    bounds = BoundsFile.open(path)
    assert bounds
    assert (bounds.meta, bounds.counts("files"), bounds.crawl_times("A")) == (
        {"store": "1"},
        {("A", "warc"): 3},
        (1, 2),
    )
    sizes = {
        crawl: len(part.matching([KeyInterval(b"", b"z")])) for crawl in "AB" if (part := bounds.part((crawl, "warc")))
    }
    assert sizes == {"A": 3, "B": 40}
    assert bounds.part(("C", "warc")) is None
    assert bounds.is_complete()


def test_rejects_damaged_bytes(path: Path) -> None:
    """Each byte of the header, and some of the parts."""
    content = path.read_bytes()
    original = BoundsFile.open(path)
    assert original
    silent = 0
    start = content.index(b"\xff\xff\xff\xff")  # of the first part
    for place in [*range(start), *range(start, len(content), 11)]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        bounds = BoundsFile.open(path)
        if bounds is None:
            continue
        if bounds.is_complete():
            silent += 1
            assert content[place] == 0  # between the parts
        else:
            with pytest.raises(DiskFailed, match=r"run: catalogue check --repair"):
                [bounds.part((crawl, "warc")) for crawl in "AB"]
    assert silent < 3 * 64


@pytest.mark.parametrize("length", [0, 7, 8, 31, 32, 100])
def test_truncated_files_are_missing(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    assert BoundsFile.open(path) is None
