"""Bounds of row groups: found by bisection as by comparing each, and never used when damaged."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.errors import DiskFailed
from catalogue.metadata_db.bounds_file import BoundsFile, RowGroupPlace, Rows, write_bounds_file
from catalogue.surt import KeyInterval

KEYS = st.text("ab,)é", max_size=4)
BOUNDS = st.one_of(st.none(), st.tuples(KEYS, KEYS).map(lambda pair: (min(pair), max(pair))))
INTERVALS = st.lists(KEYS, min_size=2, max_size=140, unique=True).map(
    lambda keys: [
        KeyInterval(start.encode(), end.encode())
        for start, end in zip(sorted(keys)[::2], sorted(keys)[1::2], strict=False)
    ]
)


def part_of(rows: Sequence[tuple[tuple[str, str] | None, bool]]) -> tuple[Rows, Rows]:
    """Return rows of files and row groups with these bounds, and whether they are in signed order."""
    ordered = sorted(rows, key=lambda row: (row[0] is not None, row[0] or ("", "")))
    files = [(f"{row}.parquet", b"v%d" % row, None if row % 2 else row, "é" * row, 0) for row in range(len(rows))]
    row_groups = [
        (row, row, 4, row + 1, None, -row, signed, *(bounds or (None, None)))
        for row, (bounds, signed) in enumerate(ordered)
    ]
    return files, row_groups


def written(path: Path, parts: dict[tuple[str, str], tuple[Rows, Rows]]) -> None:
    header = {"meta": {"store": "1"}, "counts": {"files": [["A", "warc", 3]]}, "columns": [], "crawls": {"A": [1, 2]}}
    with path.open("wb") as file:
        write_bounds_file(file, header, [*parts], parts.__getitem__)


@given(st.lists(st.tuples(BOUNDS, st.booleans()), min_size=1, max_size=30), INTERVALS)
def test_finds_what_comparing_each_row_group_finds(
    rows: list[tuple[tuple[str, str] | None, bool]], intervals: list[KeyInterval]
) -> None:
    files, row_groups = part_of(rows)
    ascii_only = all(each.start.isascii() and each.end.isascii() for each in intervals)

    def matches(least: str | None, greatest: str | None, *, signed: bool) -> bool:
        if least is None or greatest is None or (signed and not ascii_only):
            return True
        return any(least.encode() < each.end and greatest.encode() >= each.start for each in intervals)

    expected = [row for row, (*_, signed, least, most) in enumerate(row_groups) if matches(least, most, signed=signed)]
    with TemporaryDirectory() as folder:
        path = Path(folder, "x.bounds")
        written(path, {("A", "warc"): (files, row_groups)})
        bounds = BoundsFile.open(path)
        part = bounds and bounds.part(("A", "warc"))
    assert part
    assert part.matching(intervals) == expected
    assert [*part.places(range(len(rows)))] == [
        RowGroupPlace(*files[file], *others) for file, *others in (group[:6] for group in row_groups)
    ]
    bounded = [(least.encode(), most.encode(), group[3]) for *group, least, most in row_groups if least is not None]
    assert [*part.extents()] == bounded
    assert part.hulls() == [(least, most) for least, most, _ in bounded]
    assert part.unbounded == len(rows) - len(bounded)
    assert part.signed == [row for row, group in enumerate(row_groups) if group[6]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.bounds"
    written(path, {(crawl, "warc"): part_of([(("a", "b"), False)] * size) for crawl, size in (("A", 3), ("B", 40))})
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
    start = content.index(b"0.parquet")  # in the first part
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
    assert silent < 200  # of those that are kept free for the header


@pytest.mark.parametrize("length", [0, 7, 8, 31, 32, 100])
def test_truncated_files_are_missing(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    assert BoundsFile.open(path) is None
