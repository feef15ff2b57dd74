"""Joins by exact URLs, where other URLs have the same keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue import Catalogue
from tests.support.catalogues import catalogue_in
from tests.support.cdx_sources import NEWER, OLD, write_crawl
from tests.support.commands import Command

WWW, WWW2, WWW3 = (f"https://www{number}.city.example/" for number in ("", "2", "3"))
CAPTURES = {
    OLD: [
        (WWW2, "20220118000000", ""),
        (WWW2, "20220119000000", ""),
        (WWW, "20220120000000", ""),
        ("https://a.example/AbC", "20220118000000", ""),
        ("https://a.example/aBc", "20220119000000", ""),
        ("http://only.example/", "20220119000000", ""),
    ],
    NEWER: [
        (WWW, "20240601000000", ""),
        ("https://a.example/aBc", "20240601000000", ""),
        ("https://only.example/", "20240601000000", ""),
    ],
}
LIST = [WWW2, "WWW.city.example:80", WWW3, "example,city)/", "https://a.example/%41bC", "only.example", "no.example"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exact") / "source"
    for crawl, captures in CAPTURES.items():
        write_crawl(folder, crawl, *captures)
    return folder


@pytest.fixture(scope="module")
def cat(source: Path) -> Iterator[Catalogue]:
    with catalogue_in(source.parent, source) as opened:
        opened.harvest([OLD, NEWER], index="cdx")
        yield opened


@pytest.mark.parametrize("how", ["semi", "crawls", "latest"])
def test_rows_are_in_the_order_of_keys(cat: Catalogue, how: str) -> None:
    table = cat.join(LIST, how=how, crawls=[OLD, NEWER]).to_arrow()
    found = [row for row in table["row_id"].to_pylist() if row != len(LIST)]
    assert found == [5, 1, 2, 3, 4, 6]


def found(cat: Catalogue, how: str) -> list[tuple[str, str, str, bool | None]]:
    """Return the URL of the list, URL and time of the capture, and whether it is exact."""
    rows = cat.join(LIST, how=how, crawls=[OLD, NEWER]).to_arrow().to_pylist()
    return sorted((row["input_key"], row["url"], f"{row['fetch_time']:%Y%m%d}", row["exact"]) for row in rows)


def test_captures_of_the_requested_url_in_any_crawl(cat: Catalogue) -> None:
    of_key = sorted((url, time[:8]) for crawl in CAPTURES.values() for url, time, _ in crawl if "city" in url)
    expected = [
        ("WWW.city.example:80", WWW, "20220120", True),
        ("WWW.city.example:80", WWW, "20240601", True),
        *(("example,city)/", url, time, None) for url, time in of_key),
        ("https://a.example/%41bC", "https://a.example/AbC", "20220118", True),
        (WWW2, WWW2, "20220118", True),
        (WWW2, WWW2, "20220119", True),
        *((WWW3, url, time, False) for url, time in of_key),
        ("only.example", "http://only.example/", "20220119", True),
        ("only.example", "https://only.example/", "20240601", True),
    ]
    assert found(cat, "inner") == expected
    latest = {row[0]: row for row in sorted(expected, key=lambda row: row[2])}
    assert found(cat, "latest") == sorted(latest.values())


def test_results_have_the_column_where_urls_are_compared(cat: Catalogue) -> None:
    def rows(urls: list[str], how: str, **more: Any) -> pa.Table:
        return cat.join(urls, how=how, crawls=[OLD, NEWER], **more).to_arrow()

    other_match = rows(["city.example"], "latest", match="host")
    assert (other_match["url"].to_pylist(), "exact" in other_match.column_names) == ([WWW], False)
    found = rows([WWW2], "inner", columns=["fetch_time"])
    assert found.column_names == ["row_id", "input_key", "url_surtkey", "fetch_time", "url", "crawl", "subset", "exact"]
    assert found["url"].to_pylist() == [WWW2, WWW2]
    for how in ("inner", "latest"):
        nothing = rows(["https://no.example/"], how)
        assert (len(nothing), nothing.column_names[-1]) == (0, "exact")


@pytest.mark.in_part(2)
@pytest.mark.parametrize("how", ["inner", "latest"])
@pytest.mark.parametrize("output", ["found.parquet", "found"])
def test_command_counts_captures_of_other_urls(command: Command, source: Path, how: str, output: str) -> None:
    (command.home / "urls.txt").write_text(f"{WWW2}\n{WWW3}\n")
    words = ("join", "urls.txt", "--crawl", f"{OLD},{NEWER}", "--source", str(source), "--how", how, "-o", output)
    ran = command(*words)
    assert ran.status == 0
    count, urls = {"inner": ("4 rows", [WWW2, WWW2]), "latest": ("1 row", [WWW2])}[how]
    assert f"for {count}, there are only captures of other URLs with the same key" in ran.err
    rows = pq.read_table(command.home / output)
    assert [row["url"] for row in rows.to_pylist() if row["input_key"] == WWW2] == urls
    again = command(*words, "--json").json()
    assert again["other_urls"] == int(count.split()[0])
    if output.endswith(".parquet"):
        assert command("fetch", "--captures", output, "-o", "pages.warc.gz", "--source", str(source)).status == 0
