"""Crawls: their names, their paths, their columns, and which of them are chosen."""

import pyarrow as pa
import pytest

from catalogue.commoncrawl.crawls import (
    KEY_COLUMN,
    PATH_COLUMNS,
    SCHEMA,
    SUBSETS,
    IndexFile,
    check_crawl_name,
    has_columnar_index,
    index_file,
    manifest_path,
    select_crawls,
    select_subsets,
)
from catalogue.errors import QueryError, UnknownCrawl
from tests.support.crawl_paths import CRAWL, ROOT, part

# Names


@pytest.mark.parametrize(
    "name", ["CC-MAIN-2022-05", "CC-MAIN-2013-20", "CC-MAIN-2012", "CC-MAIN-2009-2010", "CC-SUPPLEMENTAL-2026-22"]
)
def test_names_of_crawls(name: str) -> None:
    assert check_crawl_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "CC-MAIN",
        "CC-MAIN-",
        "CC-MAIN-22-05",
        "CC-MAIN-2022-5",
        "CC-MAIN-2022-05 ",
        "CC-MAIN-2022-05\n",
        " CC-MAIN-2022-05",
        "CC-MAIN-2022-05/",
        "CC-MAIN-2022-05/../../x",
        "CC-MAIN-2022-0\u0665",
        "cc-main-2022-05",
        "CC-MAIN-2022-05-index",
        "CC-NEWS",
        "2022-05",
        "latest",
        "%2e%2e",
        "CC-MAIN-2022-05?x",
        "CC-MAIN-2022-05'--",
        "CC-MAIN-2022-05\0",
    ],
)
def test_what_is_no_name_of_a_crawl(name: str) -> None:
    with pytest.raises(UnknownCrawl, match=r"is not the name of a crawl; (did you mean|one looks like) "):
        check_crawl_name(name)
    with pytest.raises(UnknownCrawl):
        manifest_path(name)


def test_where_a_manifest_is() -> None:
    assert manifest_path(CRAWL) == "crawl-data/CC-MAIN-2022-05/cc-index-table.paths.gz"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CC-MAIN-2013-20", True),
        ("CC-MAIN-2012", False),
        ("CC-MAIN-2009-2010", False),
        ("CC-MAIN-2008-2009", False),
        ("CC-SUPPLEMENTAL-2026-22", True),
        ("CC-MAIN-2026-30", True),
    ],
)
def test_which_crawls_can_have_a_table(name: str, *, expected: bool) -> None:
    assert has_columnar_index(name) == expected


# Paths


def test_paths_of_index_files() -> None:
    assert index_file(part(0)) == IndexFile(part(0), CRAWL, "warc")
    assert index_file(part(299, "robotstxt")) == IndexFile(part(299, "robotstxt"), CRAWL, "robotstxt")
    assert index_file(f"crawl={CRAWL}/subset=warc/a.parquet") == IndexFile(
        f"crawl={CRAWL}/subset=warc/a.parquet", CRAWL, "warc"
    )
    assert index_file("x/crawl=CC-MAIN-2026-30/subset=warc/part-00000.c000.zstd.parquet")


@pytest.mark.parametrize(
    "path",
    [
        "",
        ROOT + "/",
        f"{ROOT}/subset=warc/",
        f"{ROOT}/subset=warc/_SUCCESS",
        f"{ROOT}/subset=warc/part-00000.c000.gz.parquet.crc",
        f"{ROOT}/subset=warc/.parquet",
        f"{ROOT}/subset=warc/.hidden.parquet",
        f"{ROOT}/subset=warc/-x.parquet",
        f"/{part(0)}",
        f"//evil.example/{part(0)}",
        f"https://evil.example/{part(0)}",
        f"s3://other/{part(0)}",
        f"@evil.example/{part(0)}",
        f".evil.example/{part(0)}",
        f":80@evil/{part(0)}",
        f"../{part(0)}",
        f"a/../../{part(0)}",
        f"a/./{part(0)}",
        f"a//{part(0)}",
        f"{ROOT}/subset=warc/../x.parquet",
        f"{ROOT}/subset=warc//x.parquet",
        f"{ROOT}/subset=warc/a/b.parquet",
        f"{ROOT}/subset=WARC/a.parquet",
        f"{ROOT}/subset=/a.parquet",
        f"{ROOT}/subset=warc/a b.parquet",
        f"{ROOT}/subset=warc/a%2f..%2fb.parquet",
        f"{ROOT}/subset=warc/a*.parquet",
        f"{ROOT}/subset=warc/a'.parquet",
        f"{ROOT}/subset=warc/a\\b.parquet",
        f"{ROOT}/subset=warc/\u202ea.parquet",
        f"{ROOT}/subset=warc/a.parquet\n",
        f"{ROOT}/subset=warc/a.parquet\0",
        f"{ROOT}/subset=warc/a.parquet?versionId=1",
        f"{ROOT}/subset=warc/a.parquet#x",
        "cc-index/table/cc-main/warc/crawl=x/subset=warc/a.parquet",
        f"cc-index/crawl={CRAWL}/x/subset=warc/a.parquet",
        "a/" * 9 + f"crawl={CRAWL}/subset=warc/a.parquet",
        "\t" + part(0),
    ],
)
def test_hostile_paths(path: str) -> None:
    assert index_file(path) is None


def test_a_path_of_megabytes_takes_no_time() -> None:
    assert index_file("a/" * (1 << 20)) is None
    assert index_file("a" * (4 << 20)) is None
    assert index_file(f"crawl={CRAWL}/subset=" + "a" * (4 << 20)) is None


# Choosing


KNOWN = ["CC-MAIN-2012", "CC-MAIN-2020-24", "CC-MAIN-2022-05", "CC-MAIN-2018-05", "CC-MAIN-2021-49"]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ([], ""),
        (["CC-MAIN-2020-24"], "2020-24"),
        (["CC-MAIN-1999-01"], "1999-01"),  # a name is taken at its word
        (["latest"], "2022-05"),
        (["all"], "2022-05 2021-49 2020-24 2018-05"),
        (["CC-MAIN-2018-05..CC-MAIN-2020-24"], "2020-24 2018-05"),
        (["CC-MAIN-2019-01..CC-MAIN-2021-50"], "2021-49 2020-24"),
        (["CC-MAIN-2021-49.."], "2022-05 2021-49"),
        (["..CC-MAIN-2020-24"], "2020-24 2018-05"),
        ([".."], "2022-05 2021-49 2020-24 2018-05"),
        (["CC-MAIN-2018-05", "latest", "CC-MAIN-2018-05"], "2022-05 2018-05"),
        (["..CC-MAIN-2018-05", "CC-MAIN-2021-49..", "latest"], "2022-05 2021-49 2018-05"),
        (["2020-24"], "2020-24"),
        (["1999-01"], "1999-01"),
        (["cc-main-2020-24, Latest"], "2022-05 2020-24"),
        (["2018-05..2020-24,2022-05"], "2022-05 2020-24 2018-05"),
        (["2021"], "2021-49"),
        (["2020..2021"], "2021-49 2020-24"),
        (["2021.."], "2022-05 2021-49"),
        (["2021-49..latest"], "2022-05 2021-49"),
    ],
)
def test_choosing_crawls(asked: list[str], chosen: str) -> None:
    assert select_crawls(asked, KNOWN) == [f"CC-MAIN-{name}" for name in chosen.split()]


def test_crawls_are_in_the_order_of_time_whatever_they_are_called() -> None:
    known = ["CC-MAIN-2026-25", "CC-SUPPLEMENTAL-2026-22", "CC-MAIN-2026-21"]
    assert select_crawls(["all"], known) == known
    assert select_crawls(["CC-MAIN-2026-22.."], known) == known[:2]


def test_a_short_name_that_fits_two_crawls_is_refused() -> None:
    known = ["CC-MAIN-2026-22", "CC-SUPPLEMENTAL-2026-22", "CC-SUPPLEMENTAL-2026-30"]
    assert select_crawls(["2026-30"], known) == ["CC-SUPPLEMENTAL-2026-30"]
    with pytest.raises(UnknownCrawl, match=r"^2026-22 may be CC-.* or CC-.*; write the whole name"):
        select_crawls(["2026-22"], known)


@pytest.mark.parametrize(
    "word", ["CC-MAIN-2022-05..CC-MAIN-2018-05", "CC-MAIN-2023-01..", "..CC-MAIN-2013-20", "2019", "2012", "2022..2021"]
)
def test_ranges_that_hold_nothing(word: str) -> None:
    with pytest.raises(UnknownCrawl, match=f"there is no crawl in '{word}'"):
        select_crawls([word], KNOWN)


@pytest.mark.parametrize("word", ["latest", "all", ".."])
def test_nothing_to_choose_from(word: str) -> None:
    for known in ([], ["CC-MAIN-2012"]):
        with pytest.raises(UnknownCrawl, match="there is no crawl in"):
            select_crawls([word], known)


@pytest.mark.parametrize(
    "word",
    ["", "newest", "CC-MAIN-2018-05,", "2022-5", "CC-MAIN-2018-05...CC-MAIN-2020-24", "a..b", "...", "*"],
)
def test_words_that_name_no_crawl(word: str) -> None:
    with pytest.raises(UnknownCrawl, match="is not the name of a crawl"):
        select_crawls([word], KNOWN)


def test_latest_is_not_proposed_for_itself() -> None:
    with pytest.raises(UnknownCrawl, match=r"^'latest' is not the name of a crawl; one looks like "):
        select_crawls(["latest..2022-05"], KNOWN)


def test_choosing_subsets() -> None:
    assert select_subsets([]) == ()
    assert select_subsets(["warc"]) == ("warc",)
    assert select_subsets(["robotstxt", "warc", "robotstxt"]) == ("robotstxt", "warc")
    assert select_subsets(["all"]) == SUBSETS
    assert select_subsets(["robotstxt", "all"]) == ("robotstxt", "warc", "crawldiagnostics")
    with pytest.raises(QueryError, match="'wet' is no subset; choose among warc, crawldiagnostics, robotstxt and all"):
        select_subsets(["warc", "wet"])


# Columns


def test_the_schema() -> None:
    """As of CC-MAIN-2026-30, with the two columns that stand in the path."""
    assert len(SCHEMA) == 31 + 2
    assert SCHEMA.names[0] == KEY_COLUMN
    assert tuple(SCHEMA.names[-2:]) == PATH_COLUMNS
    assert len(set(SCHEMA.names)) == len(SCHEMA)
    others = {field.name: field.type for field in SCHEMA if field.type != pa.string()}
    assert others == {
        "url_port": pa.int32(),
        "fetch_time": pa.timestamp("ms", "UTC"),
        "fetch_status": pa.int16(),
        "warc_record_id": pa.binary(),
        "warc_record_offset": pa.int64(),
        "warc_record_length": pa.int64(),
    }
