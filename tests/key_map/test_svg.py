"""Key maps as SVG: well formed, complete, and legible for any pattern and crawl."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.catalogue import Catalogue
from catalogue.errors import QueryError, UnknownCrawl
from catalogue.key_map.key_map import Extent, FileExtent, crawl_axis
from catalogue.key_map.svg import DARK, LIGHT, Picture, draw_crawl, shorten
from tests.support.catalogues import catalogue_in
from tests.support.crawls import CRAWL, crawl_of, table

SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = 6.5
"""Pixels of a character, about; of monospaced keys a little more."""


def texts(picture: Picture, style: str = "") -> list[str]:
    root = ET.fromstring(picture.document())
    return [each.text or "" for each in root.iter(f"{SVG}text") if style in {"", each.get("class")}]


def bars(picture: Picture, style: str) -> int:
    """Count bars, single ones and those of paths."""
    root = ET.fromstring(picture.body.join(("<svg>", "</svg>")))
    legend = {each for part in root.iter("svg") if part.get("class") == "legend" for each in part.iter()}
    boxes = [each for each in root.iter("rect") if each.get("class") == style and each not in legend]
    paths = [each for each in root.iter("path") if (each.get("class") or "").startswith(style)]
    return len(boxes) + sum((each.get("d") or "").count("M") for each in paths)


def check_legible(picture: Picture) -> None:
    """No text covers another or leaves the picture, and all bars are inside of it."""
    root = ET.fromstring(picture.body.join(("<svg>", "</svg>")))
    lines: dict[int, list[tuple[float, float]]] = {}
    for each in (each for each in root if each.tag == "text"):
        at, wide = float((each.get("x") or "0").rstrip("%")) / 100 * 720, CHARACTER * len(each.text or "")
        start = at - {"start": 0.0, "middle": wide / 2, "end": wide}[each.get("text-anchor") or ""]
        lines.setdefault(int(each.get("y") or "0"), []).append((start, start + wide))
        assert -5 < start <= start + wide < 725, each.text
    for spans in lines.values():
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(spans)))
    assert all(b - a >= 11 for a, b in pairwise(sorted(lines)))
    for each in root.iter("rect"):
        assert float(each.get("y") or "0") + float(each.get("height") or "0") <= picture.height
    assert max(lines) <= picture.height


def a_crawl(count: int, *, zipped: bool) -> list[FileExtent]:
    """Files of eleven row groups, sorted or of two zipped streams."""

    def key(number: int) -> str:
        return f"com,a-site-with-a-long-name-{number:06})/page"

    files = []
    for first in range(0, 22 * count, 22):
        ends = [(first + n, first + 11 + n) if zipped else (first + 2 * n, first + 2 * n + 1) for n in range(11)]
        name = f"part-{first // 22:05}-0.c000.gz.parquet"
        extent = Extent(name, (key(ends[0][0]), key(ends[-1][1])))
        groups = tuple((n, Extent(f"row group {n}", (key(a), key(b)))) for n, (a, b) in enumerate(ends))
        files.append(FileExtent(f"x/{name}", "warc", extent, 11, 0, groups))
    return files


@pytest.mark.parametrize(("count", "zipped"), [(1, False), (7, True), (300, True)])
def test_draws_crawls_of_any_size(count: int, *, zipped: bool) -> None:
    picture = draw_crawl("CC-MAIN-2020-24", crawl_axis(a_crawl(count, zipped=zipped)))
    check_legible(picture)
    assert f"{11 * count:,}{', up to 11 with the same key' if zipped else ''}" in texts(picture)
    assert bars(picture, "skipped") == 12 * count


def test_draws_plans_of_every_era_and_one_of_the_crawls_of_a_query(harvested: Catalogue) -> None:
    for crawl in harvested.session.stored_crawls():
        found = harvested.captures("*.example.com", crawls=crawl)
        before = harvested.requests
        picture = found.plot()
        assert harvested.requests == before
        check_legible(picture)
        assert picture.title == f"*.example.com in {crawl}"
        files = len(harvested.files(crawl))
        assert any(f"{len(found.plan.paths)} of {files} read" in text for text in texts(picture)) or files > 1
        assert found.plan.price in " ".join(picture.sentences)
    check_legible(harvested.plot(crawl))
    newest, *others = harvested.session.stored_crawls()
    found = harvested.captures("*")
    assert f"{len(others):,} other crawl" in found.plot().sentences[-1] + found.plot().sentences[-2]
    assert found.plot(others[-1]).title == f"* in {others[-1]}"
    with pytest.raises(QueryError, match=others[-1]):
        harvested.captures("*", crawls=newest).plot(others[-1])
    with pytest.raises(UnknownCrawl):
        harvested.plot("CC-MAIN-2013-20")
    with pytest.raises(QueryError, match=newest):
        harvested.plot("all")


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """Three files of four row groups of ten pages, read page by page because bandwidth is low."""
    folder = tmp_path_factory.mktemp("paged")
    rows = [table([f"com,example{file})/{number:06}" for number in range(8000)]) for file in range(3)]
    source = crawl_of(folder / "m", *rows, row_group_size=2000, data_page_size=2048, write_batch_size=100)
    with catalogue_in(folder, source, bandwidth=5e3) as cat:
        cat.harvest(CRAWL, pages=True)
        yield cat


def test_joins_thousands_of_pages_and_marks(paged: Catalogue) -> None:
    urls = [f"example{file}.com/{number:06}" for file in range(3) for number in range(0, 8000, 9)]
    picture = paged.captures(urls).plot()
    check_legible(picture)
    assert picture.title == f"{urls[0]} and {len(urls) - 1:,} more in {CRAWL}"
    assert "and 8 more row groups, not drawn" in texts(picture, "note")
    assert picture.body.count("<line") < 2000


@pytest.mark.parametrize(
    "pattern",
    ["example.com/</svg><script>&", "example.com/\N{SNOWMAN}", f"example.com/{'a' * 300}", "*.zz", "مثال.example"],
)
def test_escapes_and_shortens_any_pattern(paged: Catalogue, pattern: str) -> None:
    picture = paged.captures(pattern).plot()
    check_legible(picture)
    assert texts(picture, "title") == [picture.title]
    assert "<script" not in picture.document()


@pytest.mark.parametrize("name", ["例え", "\U0001f600", "\x1b[2J\u202e", "\ud800", "\x00"])
def test_replaces_characters_that_xml_cannot_contain(name: str, tmp_path: Path) -> None:
    keys = [f"jp,{name}{number})/" for number in range(3)]
    groups = tuple((n, Extent(f"row group {n}", each)) for n, each in enumerate(pairwise(keys)))
    file = FileExtent("x/part-0.parquet", "warc", Extent("part-0.parquet", (keys[0], keys[-1])), 2, 0, groups)
    draw_crawl(name, crawl_axis([file])).save(tmp_path / "map.svg")
    root = ET.parse(tmp_path / "map.svg").getroot()
    assert all((text.text or "").isprintable() for text in root.iter(f"{SVG}text"))


def test_draws_the_path_to_one_page(paged: Catalogue) -> None:
    found = paged.captures("example1.com/000777")
    picture = found.plot()
    check_legible(picture)
    assert picture.title == f"example1.com/000777 in {CRAWL}"
    assert picture.sentences[1] == f"It reads 1 of 12 row groups, with {found.space().read_pages} page of keys."
    assert bars(picture, "read") == 3
    assert {"1 of 3 read", "1 of 4 read"} <= {*texts(picture)}
    assert "com,example2)/007999" in texts(picture, "key")
    document = picture.document()  # stands alone, while elements use the style of their page
    assert document == picture._repr_svg_()
    assert len(document) < 100_000
    used = set(re.findall(r"var\(--([a-z]+)\)", document)) - {"sans", "serif", "mono"}
    for colours in (LIGHT, DARK):
        assert all(f"--{name}:{colours[name]};" in document for name in used)
    assert "<style" not in picture.element()
    assert "style=" not in picture.element()


@given(st.text(max_size=60), st.text(max_size=60), st.integers(8, 30))
def test_shortened_keys_fit_and_show_where_they_differ(key: str, other: str, width: int) -> None:
    short = shorten(key, other, width=width)
    assert len(short) <= width
    assert short == key if len(key) <= width else "…" in short
    one, two = (f"com,example)/a/long/way/down/{name}" for name in ("alpha/page", "omega/page"))
    assert "alpha" in shorten(one, two, width=22)
    assert "omega" in shorten(two, one, width=22)
    assert shorten(one, one, width=22) == f"{one[:21]}…"
