"""Manifests and lists of crawls: parsed strictly."""

import gzip
import json
import zlib
from datetime import UTC, datetime

import pytest

from catalogue.commoncrawl.crawls import (
    SUBSETS,
    Crawl,
    check_crawl_name,
    has_columnar_index,
    parse_collinfo,
    select_crawls,
    select_subsets,
    suggest_crawl,
)
from catalogue.commoncrawl.datasets import IndexFile, index_file, is_manifest_path, manifest_path, parse_manifest
from catalogue.commoncrawl.gzip_members import MAX_DOCUMENT
from catalogue.errors import BadManifest, QueryError, UnknownCrawl

CRAWL = "CC-MAIN-2022-05"
ROOT = f"cc-index/table/cc-main/warc/crawl={CRAWL}"


def part(number: int, subset: str = "warc") -> str:
    return f"{ROOT}/subset={subset}/part-{number:05}-4dd7944b-ef2f-47cc-b0a6-0dda2b1d2b3f.c000.gz.parquet"


OTHER = part(0).replace(CRAWL, "CC-MAIN-2021-49")


def manifest(*lines: str, end: str = "\n") -> bytes:
    return gzip.compress("".join(line + end for line in lines).encode(), mtime=0)


def test_manifest_path() -> None:
    assert manifest_path(CRAWL) == "crawl-data/CC-MAIN-2022-05/cc-index-table.paths.gz"
    for path in (manifest_path(CRAWL), "projects/test/CC-SUPPLEMENTAL-2026-22/index.paths.gz"):
        assert is_manifest_path(path)
    for path in (CRAWL, "2022-05", "x.paths.gz", "../x/y.paths.gz", "/x/y.paths.gz", "a//b.paths.gz"):
        assert not is_manifest_path(path)
    with pytest.raises(UnknownCrawl):
        manifest_path(f"{CRAWL}/../../x")


def test_index_file_paths() -> None:
    assert index_file(part(0)) == IndexFile(part(0), CRAWL, "warc")
    assert index_file(part(299, "robotstxt")) == IndexFile(part(299, "robotstxt"), CRAWL, "robotstxt")
    assert index_file(f"crawl={CRAWL}/subset=warc/a.parquet")
    supplemental = (
        "projects/cc-open-athena-test/CC-SUPPLEMENTAL-2026-22/index/table/cc-supplemental/warc/"
        "crawl=CC-SUPPLEMENTAL-2026-22/subset=warc/part-00000.c000.gz.parquet"
    )
    assert index_file(supplemental) == IndexFile(supplemental, "CC-SUPPLEMENTAL-2026-22", "warc")


@pytest.mark.parametrize(
    "path",
    [
        *("", ROOT + "/", f"{ROOT}/subset=warc/_SUCCESS", f"{ROOT}/subset=warc/part-00000.c000.gz.parquet.crc"),
        *(f"{ROOT}/subset=warc/.hidden.parquet", f"/{part(0)}", f"https://evil.example/{part(0)}", f"../{part(0)}"),
        *(f"a//{part(0)}", f"{ROOT}/subset=warc/a/b.parquet", f"{ROOT}/subset=WARC/a.parquet"),
        *(f"{ROOT}/subset=warc/a.parquet\n", f"{ROOT}/subset=warc/a.parquet?versionId=1"),
        *("a/" * 9 + f"crawl={CRAWL}/subset=warc/a.parquet", "a/" * (1 << 20)),
        f"crawl={CRAWL}/subset=" + "a" * (4 << 20),
    ],
    ids=lambda path: path[:40],
)
def test_rejects_other_paths(path: str) -> None:
    assert index_file(path) is None


def test_files_are_listed_once_in_order() -> None:
    data = manifest(part(7), part(1), part(7)) + manifest(part(3, "robotstxt"), part(1))
    assert [file.path for file in parse_manifest(CRAWL, data)] == [part(7), part(1), part(3, "robotstxt")]


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", "\n\n", "\t\r\n"])
def test_accepts_any_line_end(end: str) -> None:
    expected = [IndexFile(part(0), CRAWL, "warc"), IndexFile(part(1), CRAWL, "warc")]
    assert parse_manifest(CRAWL, manifest(part(0), part(1), end=end)) == expected
    assert parse_manifest(CRAWL, gzip.compress(f"{part(0)}{end}{part(1)}".encode(), mtime=0)) == expected


def test_skips_lines_that_are_not_parquet_files() -> None:
    lines = [f"{ROOT}/", "", "# comment", f"{ROOT}/subset=warc/_SUCCESS", "x" * 100_000]
    assert parse_manifest(CRAWL, manifest(*lines, part(5))) == [IndexFile(part(5), CRAWL, "warc")]


@pytest.mark.parametrize(
    "line",
    [
        OTHER,
        f"../{part(0)}",
        f"https://evil.example/{part(0)}",
        part(0).replace("part-", "part@"),
        f"{part(0)}\x0b.parquet",
    ],
)
def test_rejects_manifests_with_other_parquet_files(line: str) -> None:
    """They would be left out of complete answers."""
    with pytest.raises(BadManifest, match=rf"^the manifest of {CRAWL} lists '.*', which is not one of its files"):
        parse_manifest(CRAWL, manifest(part(5), line))


def test_manifest_of_an_unnamed_crawl() -> None:
    assert parse_manifest(None, manifest(f"{ROOT}/", part(5))) == [IndexFile(part(5), CRAWL, "warc")]
    with pytest.raises(BadManifest, match=r"^the manifest lists files of 2 crawls"):
        parse_manifest(None, manifest(part(0), OTHER))


UNREADABLE = rf"cannot read the manifest of {CRAWL} \(.*{{}}.*\); try again"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        *((b"", ""), (b"<html><title>403 Forbidden</title></html>", "not gzip")),
        *((zlib.compress(b"text"), "not gzip"), (manifest(part(0))[:-1], "ended before the end-of-stream")),
        (manifest(part(0)) + b"x", "not gzip"),
        (gzip.compress(bytes(MAX_DOCUMENT + 1), 1, mtime=0), "inflates to more than 16,777,216 bytes"),
        (gzip.compress("é".encode(), mtime=0), "'ascii' codec can't decode"),
        *((manifest(*lines), "") for lines in ([], [f"{ROOT}/"], [OTHER], ["x"])),
    ],
)
def test_rejects_invalid_manifests(data: bytes, reason: str) -> None:
    says = UNREADABLE.format(reason) if reason else f"the manifest of {CRAWL} lists no index file"
    with pytest.raises(BadManifest, match=says):
        parse_manifest(CRAWL, data)


def test_names_are_text_and_times_utc_or_missing() -> None:
    items = [
        {"id": "CC-MAIN-2022-05", "name": "a", "from": "2022-01-16T09:31:37", "to": "2022-01-29T15:34:00Z"},
        {"id": "CC-MAIN-2021-49", "from": "2021-11-26T00:00:00+02:00", "to": None},
        {"id": "CC-MAIN-2021-43", "name": None, "from": "soon", "to": 5},
        {"id": "CC-MAIN-2021-39", "name": "\ud800", "from": "0001-01-01T00:00:00+02:00"},
    ]
    first, last = datetime(2022, 1, 16, 9, 31, 37, tzinfo=UTC), datetime(2022, 1, 29, 15, 34, tzinfo=UTC)
    assert [*parse_collinfo(json.dumps(items).encode()).values()] == [
        Crawl("CC-MAIN-2022-05", "a", first, last),
        Crawl("CC-MAIN-2021-49", "", datetime(2021, 11, 25, 22, tzinfo=UTC), None),
        Crawl("CC-MAIN-2021-43"),
        Crawl("CC-MAIN-2021-39", "?"),  # a lone surrogate cannot be stored
    ]


def test_crawls_are_listed_once_newest_first() -> None:
    names = ["CC-MAIN-2009-2010", "CC-MAIN-2022-05", "CC-MAIN-2012", "CC-MAIN-2021-49", "CC-MAIN-2022-05"]
    names += ["CC-SUPPLEMENTAL-2022-04", "CC-MAIN-2008-2009"]
    assert [*parse_collinfo(json.dumps([{"id": name} for name in names]).encode())] == [
        *("CC-MAIN-2022-05", "CC-SUPPLEMENTAL-2022-04", "CC-MAIN-2021-49", "CC-MAIN-2012", "CC-MAIN-2009-2010"),
        "CC-MAIN-2008-2009",
    ]


def test_skips_items_of_another_form() -> None:
    items: list[object] = [None, 5, CRAWL, [], {}, {"id": 5}, {"id": "../x"}, {"id": f"{CRAWL}\n"}, {"name": "x"}]
    assert [*parse_collinfo(json.dumps([*items, {"id": CRAWL, "new": {}}]).encode())] == [CRAWL]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        *((b"", "is not JSON"), (b'[{"id": "CC-MAIN-2022-05"}', "is not JSON"), (b"\xff\xfe\xfd", "is not JSON")),
        *((b"[" * 1_000_000, "is not JSON"), (b"[" + b"1" * 10_000 + b"]", "is not JSON"), (b"{}", "lists no crawl")),
        (b'[{"id": "x"}]', "lists no crawl"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_rejects_invalid_lists_of_crawls(data: bytes, reason: str) -> None:
    with pytest.raises(BadManifest, match=reason):
        parse_collinfo(data)


@pytest.mark.parametrize(
    ("name", "indexed"),
    [
        *(("CC-MAIN-2022-05", True), ("CC-MAIN-2013-20", True), ("CC-MAIN-2012", False), ("CC-MAIN-2009-2010", False)),
        *(("CC-SUPPLEMENTAL-2026-22", True), ("CC-MAIN-2026-22-bis", True)),
    ],
)
def test_accepts_names_of_crawls(name: str, *, indexed: bool) -> None:
    assert check_crawl_name(name) == name
    assert has_columnar_index(name) == indexed


@pytest.mark.parametrize(
    "name",
    [
        *("", "CC-MAIN-22-05", "CC-MAIN-2022-5", "CC-MAIN-2022-05\n", "CC-MAIN-2022-05/../../x"),
        *("CC-MAIN-2022-0\u0665", "cc-main-2022-05", "CC-MAIN-2022-05-index", "2022-05", "latest"),
        "CC-MAIN-2022-05'--",
    ],
)
def test_rejects_other_names(name: str) -> None:
    with pytest.raises(UnknownCrawl, match=r"is not the name of a crawl; (did you mean|one looks like) "):
        check_crawl_name(name)


KNOWN = [f"CC-MAIN-{name}" for name in ("2018-05", "2020-24", "2021-49", "2022-05", "2012")]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        *(([], ""), (["CC-MAIN-2020-24"], "2020-24"), (["CC-MAIN-2030-01"], "2030-01"), (["latest"], "2022-05")),
        *((["all"], "2022-05 2021-49 2020-24 2018-05"), (["CC-MAIN-2018-05..CC-MAIN-2020-24"], "2020-24 2018-05")),
        *((["CC-MAIN-2021-49.."], "2022-05 2021-49"), (["..CC-MAIN-2020-24"], "2020-24 2018-05")),
        (["CC-MAIN-2018-05", "latest", "CC-MAIN-2018-05"], "2022-05 2018-05"),
        *((["2020-24"], "2020-24"), (["2022-05-bis"], "2022-05-bis"), (["cc-main-2022-05-BIS"], "2022-05-bis")),
        *((["cc-main-2020-24, Latest"], "2022-05 2020-24"), (["2018-05..2020-24,2022-05"], "2022-05 2020-24 2018-05")),
        *((["2021"], "2021-49"), (["2020..2021"], "2021-49 2020-24"), (["2021.."], "2022-05 2021-49")),
        *((["2021-49..latest"], "2022-05 2021-49"), (["1"], "2022-05"), (["3"], "2022-05 2021-49 2020-24")),
        *((["99"], "2022-05 2021-49 2020-24 2018-05"), (["1", "2018"], "2022-05 2018-05")),
    ],
)
def test_selects_crawls_by_words(words: list[str], chosen: str) -> None:
    assert select_crawls(words, KNOWN) == [f"CC-MAIN-{name}" for name in chosen.split()]


def test_orders_crawls_by_time() -> None:
    known = ["CC-MAIN-2026-25", "CC-SUPPLEMENTAL-2026-22-bis", "CC-SUPPLEMENTAL-2026-22", "CC-MAIN-2026-21"]
    assert select_crawls(["all"], known[::-1]) == known
    assert select_crawls(["CC-MAIN-2026-22.."], known) == known[:3]


@pytest.mark.parametrize(
    "known",
    [
        *([], ["CC-MAIN-2026-22"], ["CC-SUPPLEMENTAL-2026-22"]),
        *(["CC-MAIN-2026-22", "CC-SUPPLEMENTAL-2026-22"], ["CC-NEWS-2026-22", "CC-SUPPLEMENTAL-2026-22"]),
    ],
)
def test_short_names_are_those_of_monthly_crawls_whatever_is_known(known: list[str]) -> None:
    assert select_crawls(["2026-22"], known) == ["CC-MAIN-2026-22"]


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["CC-MAIN-2023-01..", "..CC-MAIN-2013-20", "2019", "2012", "2019..2019"], KNOWN),
        (["latest", "all", ".."], []),
        (["latest", "all", ".."], ["CC-MAIN-2012"]),
    ],
)
def test_rejects_words_without_crawls(words: list[str], known: list[str]) -> None:
    for word in words:
        with pytest.raises(UnknownCrawl, match=f"'{word}' selects no crawl with a columnar index; see: cat"):
            select_crawls([word], known)
        with pytest.raises(UnknownCrawl, match=f"'{word}' selects no crawl; there are"):
            select_crawls([word], [], every=True)


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("CC-MAIN-2022-05..CC-MAIN-2018-05", "CC-MAIN-2018-05..CC-MAIN-2022-05"),
        ("2022..2021", "2021..2022"),
        ("2022-05..2021", "2021..CC-MAIN-2022-05"),
    ],
)
def test_rejects_ranges_that_end_before_they_start(word: str, advice: str) -> None:
    with pytest.raises(QueryError, match=f"ends before it starts; write {advice}$"):
        select_crawls([word], KNOWN)


@pytest.mark.parametrize(
    "word", ["", "newest", "CC-MAIN-2018-05,", "2022-5", "CC-MAIN-2018-05...CC-MAIN-2020-24", "a..b", "...", "*"]
)
def test_rejects_words_that_are_not_crawls(word: str) -> None:
    with pytest.raises(UnknownCrawl, match="is not the name of a crawl"):
        select_crawls([word], KNOWN)
    with pytest.raises(UnknownCrawl, match=r"^'latest' is not the name of a crawl; one looks like "):
        select_crawls(["latest..2022-05"], KNOWN)


def test_selects_subsets() -> None:
    assert select_subsets([]) == ()
    assert select_subsets(["robotstxt", "warc", "robotstxt"]) == ("robotstxt", "warc")
    assert select_subsets(["all"]) == SUBSETS
    assert select_subsets(["robotstxt", "all"]) == ("robotstxt", "warc", "crawldiagnostics")


@pytest.mark.parametrize(
    ("crawl", "end"),
    [
        ("CC-MAIN-2022-06", "did you mean CC-MAIN-2022-05?"),
        ("CC-MAIN-2099-01", "the newest is CC-MAIN-2026-30"),
        ("CC-MAIN-2026-30", "the list of crawls has it, but its files may not be published yet"),
    ],
)
def test_suggests_what_to_do_about_a_missing_crawl(crawl: str, end: str) -> None:
    assert suggest_crawl(crawl, ["CC-MAIN-2022-05", "CC-MAIN-2026-30"]) == end
