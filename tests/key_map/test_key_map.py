"""The layout of key maps: for any bounds, and for files of every era."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalogue
from catalogue.commoncrawl.datasets import IndexFile
from catalogue.key_map.key_map import Axis, Extent, FileExtent, Lane, State, file_extents, key_space
from catalogue.plan.crawl_plan import CrawlPlan, PlannedFile, PlannedRowGroup
from catalogue.plan.plan import ReadPlan
from catalogue.plan.requests import Cost
from catalogue.query.key_intervals import Intervals
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.settings import Settings
from catalogue.source.byte_ranges import FileVersion
from catalogue.surt.interval import KeyInterval, exact_interval, prefix_interval
from tests.support.catalogues import catalogue_in
from tests.support.crawls import CRAWL, crawl_of, table

NEARLY = 1e-9


def plan(*intervals: KeyInterval, **read: list[tuple[int, bool]]) -> ReadPlan:
    """Make a plan of intervals; ``read`` gives row groups by file, and whether they have bounds."""
    query = ResolvedQuery(Intervals(intervals), ("pattern",))
    files = tuple(
        PlannedFile(
            IndexFile(name, CRAWL, "warc"),
            FileVersion(1000, None),
            "",
            tuple(PlannedRowGroup(ordinal, 10, b"", (), (), None, None, bounded) for ordinal, bounded in groups),
        )
        for name, groups in read.items()
    )
    return ReadPlan(query, Cost(), (CrawlPlan(CRAWL, "columnar", Cost(), files=files, considered=1),))


def a_file(name: str, *groups: tuple[str, str] | None, subset: str = "warc") -> FileExtent:
    known = [ends for ends in groups if ends]
    least, greatest = min((a for a, _ in known), default=None), max((b for _, b in known), default=None)
    whole = Extent.of(name, least, greatest)
    extents = tuple((at, Extent.of(f"row group {at}", *ends or (None, None))) for at, ends in enumerate(groups))
    return FileExtent(name, subset, whole, len(groups), len(groups) - len(known), extents)


keys = st.text(st.sampled_from("abc,)/é\U0001f600"), max_size=6)
bounds = st.tuples(keys, keys).map(lambda ends: (min(ends), max(ends)))
crawls = st.lists(st.lists(st.none() | bounds, min_size=1, max_size=5), min_size=1, max_size=5)


@given(crawls, st.lists(keys, min_size=1, max_size=3), st.data())
def test_layout_agrees_with_any_bounds_and_plan(
    groups: list[list[tuple[str, str] | None]], requested: list[str], data: st.DataObject
) -> None:
    files = [a_file(f"f{at}", *each, subset="ab"[at % 2]) for at, each in enumerate(groups)]
    read = data.draw(st.sets(st.sampled_from([(f.path, at) for f in files for at, _ in f.groups])), "read")
    chosen = {path: [(at, True) for p, at in sorted(read) if p == path] for path in {path for path, _ in read}}
    intervals = sorted({exact_interval(key.encode()) for key in requested})
    space = key_space(CRAWL, files, plan(*intervals, **chosen))
    for axis in (space.files, *space.groups):
        check_axis(axis)
    drawn = {bar.label for lane in space.files.lanes for bar in lane.bars if bar.state is not State.SKIPPED}
    assert drawn == set(chosen)
    assert {axis.name for axis in space.groups} <= set(chosen)
    for axis in space.groups:
        shown = {bar.label for bar in axis.lanes[0].bars if bar.state is State.READ}
        assert shown == {f"row group {at}" for at, _ in chosen[axis.name]}
    assert space.read_groups == len(read)
    assert space.without_bounds == sum(each is None for known in groups for each in known)
    known = [(file.path, *file.extent.keys) for file in files if file.extent.keys]
    holding = {path for path, a, b in known if any(a <= key <= b for key in requested)}
    for bar in (bar for lane in space.files.lanes for bar in lane.bars if bar.label in holding):
        assert any(low <= bar.end + NEARLY and bar.start <= high + NEARLY for low, high in space.files.marks)


def check_axis(axis: Axis) -> None:
    ends = [end for mark in axis.marks for end in mark]
    assert ends == sorted(ends)
    assert all(0 <= end <= 1 for end in ends)
    for lane in axis.lanes:
        assert all(0 <= bar.start <= bar.end <= 1 for bar in lane.bars)
        assert all(bar.row < lane.depth for bar in lane.bars if bar.bounded)
        assert lane.count(*State) == lane.size
        for row in range(lane.depth):
            bars = sorted((bar.start, bar.end) for bar in lane.bars if bar.row == row and bar.bounded)
            assert all(a[1] <= b[0] + NEARLY for a, b in pairwise(bars))


def only(axis: Axis) -> Lane:
    (lane,) = axis.lanes
    return lane


def test_sorted_files_tile_the_axis_and_bounds_of_signed_order_are_sorted() -> None:
    files = [a_file("x", ("a", "b")), a_file("y", ("c", "d")), a_file("z", ("e", "f"))]
    axis = key_space(CRAWL, files, plan(exact_interval(b"c"), y=[(0, True)])).files
    bars = only(axis).bars
    assert [bar.state for bar in bars] == [State.SKIPPED, State.READ, State.SKIPPED]
    assert [end for bar in bars for end in (bar.start, bar.end)] == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 1])
    assert (axis.low, axis.high, only(axis).depth) == ("a", "f", 1)
    signed = key_space(CRAWL, [a_file("x", ("é", "z"))], plan(exact_interval(b"z"))).files
    assert [(bar.start, bar.end, signed.low, signed.high) for bar in only(signed).bars] == [(0, 1, "z", "é")]
    ((start, end),) = axis.marks
    assert start == pytest.approx(1 / 3)
    assert 1 / 3 <= end < 2 / 3


def test_row_groups_without_bounds_take_the_whole_axis() -> None:
    files = [a_file("x", ("a", "b"), None), a_file("y", None)]
    read = plan(exact_interval(b"q"), x=[(1, False)], y=[(0, False)])
    space = key_space(CRAWL, files, read)
    known, unknown = only(space.files).bars
    assert (known.state, known.bounded) == (State.UNKNOWN, True)
    assert (unknown.state, unknown.bounded, unknown.start, unknown.end) == (State.UNKNOWN, False, 0, 1)
    assert only(space.files).unbounded == 1
    assert (space.without_bounds, space.all_groups) == (2, 3)
    nothing = space.groups[1]
    assert (nothing.low, nothing.high, nothing.marks) == ("", "", ())


def test_marks_requested_keys_outside_of_files_but_not_of_row_groups() -> None:
    files = [a_file("x", ("b", "c"), ("d", "e")), a_file("y", ("f", "g"))]
    requested = (prefix_interval(b"a"), exact_interval(b"d"), prefix_interval(b"z"))
    space = key_space(CRAWL, files, plan(*requested, x=[(1, True)]))
    assert [mark[0] for mark in space.files.marks] == [0, pytest.approx(1 / 2 - 1 / 6), 1]
    assert len(space.groups[0].marks) == 1


@pytest.mark.in_part(4)
@pytest.mark.parametrize("pattern", ["*.example.com", "example.com/*", "*.org", "*"])
def test_layout_agrees_with_the_plan_in_every_era(data: Path, settings: Settings, pattern: str) -> None:
    """Of crawls without page indexes."""
    with catalogue.open(data, settings=settings) as cat:
        for crawl in cat.session.stored_crawls():
            rows, read = cat.row_groups(crawl), cat.captures(pattern, crawls=crawl).plan
            extents = file_extents(cat.session, crawl, read.paths)
            assert {file.path for file in extents} == set(rows["path"])
            assert sum(file.row_groups for file in extents) == len(rows)
            assert {file.path for file in extents if file.groups} == set(read.paths)
            space = key_space(crawl, extents, read)
            assert (space.read_files, space.read_groups) == (len(read.paths), read.row_groups)
            assert space.without_bounds == rows["min_url_surtkey"].isna().sum()
            assert (space.files.low, space.files.high) == (rows["min_url_surtkey"].min(), rows["max_url_surtkey"].max())
            for axis in (space.files, *space.groups, *space.pages):
                check_axis(axis)


def test_shows_pages_of_stored_page_indexes(tmp_path: Path) -> None:
    rows = table([f"com,example)/{number:06}" for number in range(20_000)])
    source = crawl_of(tmp_path / "m", rows, row_group_size=10_000, data_page_size=8192)
    with catalogue_in(tmp_path, source, bandwidth=1e5) as cat:
        cat.harvest(CRAWL, pages=True)
        read = cat.captures("example.com/000777").plan
        space = key_space(CRAWL, file_extents(cat.session, CRAWL, read.paths), read)
        (axis,) = space.pages
        (shown,) = (bar for bar in only(axis).bars if bar.state is State.READ)
        there = cat.pages(CRAWL).query(f"row_group == 0 and page == {shown.label.removeprefix('page ')}").iloc[0]
    assert there["min_url_surtkey"] <= "com,example)/000777" <= there["max_url_surtkey"]
    assert (space.read_pages, only(axis).size > 5) == (1, True)
    assert (axis.low, axis.high) == ("com,example)/000000", "com,example)/009999")
