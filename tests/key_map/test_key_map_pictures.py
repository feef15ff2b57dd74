"""Pictures of a key space: what is in them is what is so, and can be read."""

import re
import sys
from collections.abc import Iterator
from itertools import combinations, cycle, pairwise
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb

import catalogue
from catalogue.catalogue import Catalogue
from catalogue.errors import QueryError, UnknownCrawl
from catalogue.formatting import plural
from catalogue.key_map.colours import DARK, LIGHT
from catalogue.key_map.key_map import Extent, FileExtent, State, crawl_axis
from catalogue.key_map.maps import draw_crawl
from catalogue.settings import Settings, install_command
from catalogue.surt import Keys
from tests.support.crawls import CRAWL, crawl_of, table

mpl.use("agg")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def written(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def bars(axes: Axes, style: str) -> int:
    """How many are drawn so."""
    found = (each for each in axes.collections if isinstance(each, PolyCollection) and each.get_label() == style)
    return sum(len(each.get_paths()) for each in found)


def check_legible(axes: Axes) -> None:
    """Nothing is written over anything else, or beside the picture."""
    figure = axes.get_figure(root=True)
    assert figure
    figure.draw_without_rendering()  # so that everything has its place
    legend = axes.get_legend()
    every = [*axes.texts, *(legend.get_texts() if legend else ())]
    boxes = [(text.get_text(), text.get_window_extent()) for text in every if text.get_text()]
    assert boxes
    for (one, here), (other, there) in combinations(boxes, 2):
        across = min(here.x1, there.x1) - max(here.x0, there.x0)
        along = min(here.y1, there.y1) - max(here.y0, there.y0)
        assert across <= 0 or along <= 2, f"{one!r} is written over {other!r}"  # a descender may touch
    frame = figure.bbox
    assert all(frame.x0 - 1 <= box.x0 and box.x1 <= frame.x1 + 1 for _, box in boxes)
    assert all(frame.y0 - 1 <= box.y0 and box.y1 <= frame.y1 + 1 for _, box in boxes)


def a_crawl(count: int, *, zipped: bool) -> list[FileExtent]:
    """Files of eleven row groups, which lie one behind the other or over each other."""

    def key(number: int) -> str:
        return f"com,a-site-with-a-long-name-{number:06})/page"

    files = []
    for first in range(0, 22 * count, 22):
        ends = [(first + n, first + 11 + n) if zipped else (first + 2 * n, first + 2 * n + 1) for n in range(11)]
        name = f"part-{first // 22:05}-0.c000.gz.parquet"
        whole = Extent(name, ((key(ends[0][0]), key(ends[-1][1])),))
        groups = tuple((n, Extent(f"row group {n}", ((key(a), key(b)),))) for n, (a, b) in enumerate(ends))
        files.append(FileExtent(f"x/{name}", "warc", whole, 11, 0, groups))
    return files


@pytest.mark.parametrize("width", [3.3, 6.4])
@pytest.mark.parametrize(("count", "zipped"), [(1, False), (7, True), (300, True)])
def test_crawls_of_any_size_can_be_read(count: int, width: float, *, zipped: bool) -> None:
    with plt.rc_context({"figure.figsize": (width, 1)}):
        axes = draw_crawl("CC-MAIN-2020-24", crawl_axis(a_crawl(count, zipped=zipped)), Keys.URL)
    check_legible(axes)
    deep = ", a key may be in up to 11 of them" if zipped else ""
    assert f"{11 * count:,}{deep}" in " ".join(written(axes))
    assert "…" in "".join(written(axes)) or "a-site-with-a-long-name-000000.com" in written(axes)
    if count < 300:
        assert bars(axes, "left alone") == 12 * count
    else:
        assert bars(axes, "left alone") < 30  # not thousands of edges on each other


def test_every_era_is_drawn_as_it_is_planned(harvested: Catalogue) -> None:
    for crawl, pattern in zip(harvested.held(), cycle(["*.example.com", "*"]), strict=False):
        found = harvested.captures(pattern, crawls=crawl)
        before = harvested.requests
        axes = found.plot()
        assert harvested.requests == before
        space = found.space()
        every = (space.files, *space.groups, *space.pages)
        read = sum(
            bar.state is State.READ and bar.bounded for axis in every for lane in axis.lanes for bar in lane.bars
        )
        assert 0 < bars(axes, "read") <= read  # those that are narrow are joined
        files = f"{len(found.plan.paths):,} of {plural(len(harvested.files(crawl)), 'file')}, "
        assert any(text.startswith(files) for text in written(axes))
        assert found.plan.price in written(axes)
        check_legible(axes)
    check_legible(harvested.plot(crawl))


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """Three files of four row groups of ten pages, read page by page since bytes are dear."""
    folder = tmp_path_factory.mktemp("paged")
    rows = [table([f"com,example{file})/{number:06}" for number in range(8000)]) for file in range(3)]
    source = str(crawl_of(folder / "m", *rows, row_group_size=2000, data_page_size=2048, write_batch_size=100))
    with catalogue.open(folder / "data", settings=Settings(source=source, bandwidth=5e3, cache=folder / "c")) as cat:
        cat.harvest(CRAWL, pages=True)
        yield cat


def test_the_way_to_one_page(paged: Catalogue) -> None:
    found = paged.captures("example1.com/000777")
    axes = found.plot()
    check_legible(axes)
    assert written(axes)[:2] == [
        f"example1.com/000777 in {CRAWL}",
        f"1 of 3 files, 1 of 12 row groups, {found.space().read_pages} page of keys",
    ]
    assert bars(axes, "read") == 3
    assert {"1 of 3 files read", "1 of 4 row groups read"} <= {*written(axes)}
    assert "example2.com/007999" in written(axes)


def test_what_a_limit_spares_is_told_apart(paged: Catalogue) -> None:
    axes = paged.captures("example1.com/*", columns=["url"], limit=3).plot()
    assert bars(axes, "lies there too, need not be read") > 3
    assert bars(axes, "read") == 3
    check_legible(axes)


def test_thousands_of_pages_and_places(paged: Catalogue) -> None:
    urls = [f"example{file}.com/{number:06}" for file in range(3) for number in range(0, 8000, 9)]
    axes = paged.captures(urls).plot()
    check_legible(axes)
    assert f"{urls[0]} and {len(urls) - 1:,} more in {CRAWL}" in written(axes)
    assert any(text.startswith("and 8 more row groups that are read") for text in written(axes))
    assert len(axes.lines) < 2000


def test_it_is_drawn_where_it_is_told_to_be(paged: Catalogue) -> None:
    figure, (one, other) = plt.subplots(2, figsize=(6, 8))
    assert paged.captures("example1.com/000777").plot(ax=one) is one
    assert paged.plot(CRAWL, ax=other) is other
    assert len(figure.axes) == 2
    assert plt.get_fignums() == [figure.number]
    check_legible(one)


@pytest.mark.parametrize("pattern", ["example.com/$x^$_{*", "example.com/\N{SNOWMAN}", f"example.com/{'a' * 300}"])
def test_no_pattern_is_taken_for_more_than_text(paged: Catalogue, pattern: str) -> None:
    axes = paged.captures(pattern).plot()
    check_legible(axes)
    assert f"in {CRAWL}" in written(axes)[0] + written(axes)[1]


@pytest.mark.parametrize("name", ["例え", "\u0645\u062b\u0627\u0644", "\U0001f600", "\x1b[2J\u202e", "\ud800"])
def test_what_fonts_lack_is_written_by_its_number(name: str) -> None:
    """Warnings are errors here, and so is that of a missing glyph."""
    keys = [f"jp,{name}{number})/" for number in range(3)]
    ends = tuple(pairwise(keys))
    groups = tuple((n, Extent(f"row group {n}", (each,))) for n, each in enumerate(ends))
    file = FileExtent("x/part-0.parquet", "warc", Extent("part-0.parquet", ((keys[0], keys[-1]),)), 2, 0, groups)
    axes = draw_crawl(name, crawl_axis([file]), Keys.URL)
    check_legible(axes)
    assert all(text.isascii() for text in written(axes))
    assert sum(ascii(name)[1:-1] in text for text in written(axes)) >= 2


def test_a_question_without_an_answer_is_drawn_too(paged: Catalogue) -> None:
    axes = paged.captures("*.zz").plot()
    check_legible(axes)
    assert "0 of 3 files, 0 of 12 row groups, 0 pages of keys" in written(axes)


def test_a_crawl_is_chosen_among_those_asked_about(harvested: Catalogue) -> None:
    newest, *others = harvested.held()
    found = harvested.captures("*")
    assert any(f"{len(others):,} other crawl" in text for text in written(found.plot()))
    assert f"* in {others[-1]}" in written(found.plot(others[-1]))
    with pytest.raises(QueryError, match=f"{others[-1]} is not among the crawls asked about: {newest}"):
        harvested.captures("*", crawls=newest).plot(others[-1])
    with pytest.raises(UnknownCrawl):
        harvested.plot("CC-MAIN-2013-20")
    with pytest.raises(UnknownCrawl):
        harvested.extents("CC-MAIN-2013-20")
    with pytest.raises(QueryError, match=f"one can be shown; name it, such as {newest}"):
        harvested.plot("all")


@pytest.mark.parametrize(("style", "colours"), [("default", LIGHT), ("dark_background", DARK)])
def test_styles_differ_without_colour_and_have_those_of_the_pages(
    paged: Catalogue, style: str, colours: dict[str, str]
) -> None:
    with plt.style.context(style):
        axes = paged.captures("example1.com/*", columns=["url"], limit=3).plot()
    paper = to_rgb(axes.figure.get_facecolor())
    inks = [each.get_color() for each in axes.texts]
    assert {to_hex(ink) for ink in inks} == {colours["ink"]}
    assert abs(sum(to_rgb(inks[0])) - sum(paper)) > 2
    lines = {to_hex(line.get_color()) for line in axes.lines}
    assert lines == {colours["mark"], colours["sheet"]}
    legend = axes.get_legend()
    assert legend
    patches = legend.get_patches()
    assert {to_hex(patch.get_facecolor()) for patch in patches} == {colours[name] for name in ("left", "sheet", "read")}
    light = [sum(to_rgb(patch.get_facecolor())) / 3 for patch in patches]
    assert len(patches) == 3
    assert all(abs(a - b) > 0.08 for a, b in combinations(light, 2))


def test_without_matplotlib_it_is_said_what_to_install(paged: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(QueryError, match=re.escape(install_command("notebook"))):
        paged.plot(CRAWL)


def test_pictures_can_be_kept_as_vectors(paged: Catalogue, tmp_path: Path) -> None:
    axes = paged.captures("example1.com/000777").plot()
    figure = axes.get_figure(root=True)
    assert figure
    for suffix in ("pdf", "svg"):
        figure.savefig(tmp_path / f"map.{suffix}")
        assert (tmp_path / f"map.{suffix}").stat().st_size < 100_000
