"""Queries of a source whose one index is damaged or missing are answered by the other one."""

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import catalogue
from catalogue.captures import Captures
from catalogue.cdx.cluster import index_folder, list_path
from catalogue.commoncrawl.crawls import AUTO, COLUMNAR
from catalogue.errors import UNUSABLE, IncompleteAnswer, StoreLocked
from catalogue.settings import Settings
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.faults import Fault, FaultServer, Kind, Request, only
from tests.support.serving import get, serving


def test_damaged_lists_leave_the_answer_to_the_columnar_index(copied: Path, crawls: list[str], tmp_path: Path) -> None:
    crawl = crawls[0]
    (copied / list_path(crawl)).write_bytes(b"no list\n")
    for path in (copied / f"cc-index/table/cc-main/warc/crawl={crawl}/subset=warc").iterdir():
        path.write_bytes(b"torn")
    asks = Command(tmp_path / "data", str(copied), tmp_path)
    assert asks("harvest", "--crawl", crawl, "--subset", "all").status == 1
    ran = asks("query", "*", "--subset", "all", "--crawl", crawl, "--count")
    assert ran.status == 1
    assert int(ran.out) > 0
    assert f"the CDX index of {crawl} cannot be used, so the columnar index answers" in ran.err
    assert "is not a line of a list of blocks" in ran.err
    assert "the answer may be incomplete" in ran.err
    refused = asks("query", "*", "--crawl", crawl, "--index", "cdx", "--count")
    assert (refused.status, refused.out) == (1, "")
    assert "is not a line of a list of blocks" in refused.err


def test_a_refused_list_leaves_the_answer_to_the_columnar_index(
    whole_mirror: Path, crawls: list[str], tmp_path: Path
) -> None:
    """S3 refuses missing files to clients that may not list."""
    crawl = crawls[0]
    with FaultServer(whole_mirror, script=only(list_path(crawl), Kind.DENIED)) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        assert asks("harvest", "--crawl", crawl).status == 0
        ran = asks("query", "*.com", "--subset", "all", "--crawl", crawl, "--count")
        page = Command(tmp_path / "empty", server.url, tmp_path)("get", "no.such.host", "--crawl", ",".join(crawls[:2]))
    assert ran.status == 1
    assert int(ran.out) > 0
    assert f"the CDX index of {crawl} cannot be used, so the columnar index answers" in ran.err
    assert "the answer may be incomplete" in ran.err
    assert page.status == 1
    assert "the search is incomplete" in page.err


def tear(path: Path) -> None:
    path.write_bytes(b"torn")


@pytest.mark.parametrize("damage", [Path.unlink, tear])
def test_unusable_blocks_leave_the_answer_to_the_columnar_index(
    copied: Path, crawls: list[str], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """The server first sends rows of shards that are not damaged."""
    crawl, settings = crawls[0], Settings(source=str(copied), cache_size=0)
    one, many = (f"/{crawl}-index?url={url}" for url in ("example.com", "*.com&pageSize=1000&filter=!%3Dstatus:200"))
    words: dict[str, Any] = {"crawls": crawl, "subsets": "all"}
    *others, last = sorted((copied / index_folder(crawl)).glob("cdx-*.gz"))
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(crawl, subsets="all", index="both")
        expected = cat.captures("example.com", **words).to_arrow()
        with serving(tmp_path / "data", settings) as address:
            lines, of_many = (get(address, query).lines for query in (one, many))
        assert len(lines) == expected.num_rows > 0
        damage(last)
        with serving(tmp_path / "data", settings) as address:
            answer = get(address, many)
        assert (answer.status, answer.lines, "catalogue-incomplete" in answer.headers) == (200, of_many, False)
        for shard in others:
            damage(shard)
        found = cat.captures("example.com", **words)
        assert found.plan.blocks
        assert (found.to_arrow(), found.complete) == (expected, True)
        assert cat.captures("example.com", **words).count() == expected.num_rows
        with serving(tmp_path / "data", settings) as address:
            assert get(address, one).lines == lines
    with (
        ThreadPoolExecutor(2) as workers,
        catalogue.open(tmp_path / "data", settings=settings, executor=workers) as cat,
    ):
        found = cat.captures("example.com", **words)
        assert (found.to_arrow(), found.complete) == (expected, True)
    asks = Command(tmp_path / "data", str(copied), tmp_path)
    ran = asks("query", "example.com", "--subset", "all", "--crawl", crawl, "--count", "--no-cache")
    assert (ran.status, ran.out) == (0, f"{expected.num_rows}\n")
    assert f"the CDX index of {crawl} cannot be used, so the columnar index answers" in ran.err


def zero(path: Path) -> None:
    """Damage all but the footer, so that the file looks as it did."""
    body, times = bytearray(path.read_bytes()), path.stat()
    end = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    body[4:end] = bytes(end - 4)
    path.write_bytes(body)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("stored", [slice(1), slice(1, None)])
def test_damaged_stored_lists_change_no_answer(
    whole_mirror: Path, crawls: list[str], tmp_path: Path, stored: slice
) -> None:
    """Lists of the crawl itself, and those of others, which predict where its keys are."""
    settings = Settings(source=str(whole_mirror), cache_size=0)
    with catalogue.open(tmp_path / "empty", settings=settings) as cat:
        expected = cat.captures("*.example.com", crawls=crawls[0]).to_arrow()
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(crawls[stored], index="cdx")
        for path in (tmp_path / "data" / "blocks").glob("*.parquet"):
            zero(path)
        assert cat.captures("*.example.com", crawls=crawls[0]).to_arrow() == expected
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        joined = cat.join(["example.com"], match="domain", crawls=crawls[0], output=tmp_path / "joined.parquet")
        assert joined.rows == expected.num_rows


@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize("damage", [Path.unlink, tear, zero])
def test_unusable_files_leave_the_answer_to_the_cdx_index(
    copied: Path, crawls: list[str], tmp_path: Path, damage: Callable[[Path], None], *, is_prepared: bool
) -> None:
    crawl, settings, url = crawls[0], Settings(source=str(copied), cache_size=0), "https://example.com/"
    with catalogue.open(tmp_path / "empty", settings=settings) as cat:
        expected = cat.captures(url, crawls=crawl).to_arrow()
    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(crawl)
        if is_prepared:
            cat.captures(url, crawls=crawl).fetch_indexes()
        for path in copied.glob(f"cc-index/table/cc-main/warc/crawl={crawl}/subset=*/*.parquet"):
            damage(path)
        found = cat.captures(url, crawls=crawl)
        assert [each.index for each in found.plan.crawls] == ["columnar"]
        assert (found.to_arrow(), found.complete) == (expected, True)
        assert found.count() == expected.num_rows > 0
        with pytest.raises(UNUSABLE):
            cat.captures(url, crawls=crawl, index="columnar").to_arrow()
        with pytest.raises(UNUSABLE):
            cat.captures(url, crawls=crawl, columns=["url", "url_host_name"]).to_arrow()


def test_footers_that_others_forget_leave_the_answer_to_the_cdx_index(
    copied: Path, crawls: list[str], tmp_path: Path
) -> None:
    read, opened = crawls[:2], partial(catalogue.open, tmp_path / "data", settings=Settings(source=str(copied)))
    with opened() as cat, opened() as other:
        cat.harvest(read)
        expected = other.captures("*.com", crawls=read).to_arrow()
        found, by_name = (cat.captures("*.com", crawls=read, index=index) for index in (AUTO, COLUMNAR))
        other.forget(read)
        assert found.to_arrow() == expected
        with pytest.raises(StoreLocked, match="run the same command again"):
            by_name.to_arrow()


@pytest.mark.parametrize(
    "reads", [("cdx", "both", "*.com", "cdx-*.gz"), ("columnar", "columnar", "https://example.com/", "*.parquet")]
)
@pytest.mark.parametrize("is_limited", [False, True])
def test_the_other_index_continues_after_rows_were_returned(
    copied: Path, crawls: list[str], tmp_path: Path, reads: tuple[str, str, str, str], *, is_limited: bool
) -> None:
    read, (index, stored, pattern, files) = crawls[:3], reads
    with catalogue_in(tmp_path, copied, cache_size=0) as cat:
        cat.harvest(read, subsets="all", index=stored)
        expected = cat.captures(pattern, crawls=read, subsets="all", index="columnar").to_arrow()
        for path in copied.rglob(files):
            if read[1] in str(path):
                path.unlink()
        limit = expected.num_rows - 1 if is_limited else None
        found, counted = (cat.captures(pattern, crawls=read, subsets="all", limit=limit) for _ in range(2))
        assert [each.index for each in found.plan.crawls if each.crawl == read[1]] == [index]
        assert counted.count() == len(expected.slice(0, limit))
        assert (found.to_arrow(), found.complete) == (expected.slice(0, limit), True)


def test_indexes_of_many_crawls_fail_together(whole_mirror: Path, tmp_path: Path) -> None:
    """The plans of other crawls are not read again each time that an index has failed."""

    def script(request: Request) -> Fault | None:
        return Fault(Kind.NOT_FOUND) if is_lost and "/cdx-" in request.path else None

    is_lost = False
    with FaultServer(whole_mirror, script=script) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        assert asks("harvest", "--crawl", "all", "--index", "both", "--subset", "all", "--yes").status == 0
        expected, usual = "", 0
        for fails in (False, True):
            is_lost = fails
            server.reset()
            ran = asks("query", "*.com", "--subset", "all", "--no-cache", "-o", str(tmp_path / "found.jsonl"))
            answer = (tmp_path / "found.jsonl").read_text()
            assert (ran.status, answer) == (0, expected or answer)
            expected, usual = answer, usual or server.requests
    notices = re.findall(r"the CDX index of (\S+) cannot be used", ran.err)
    assert len(notices) == len({*notices}) > 1
    assert server.requests < 6 * usual  # 8 times as many if each crawl failed alone


@pytest.mark.parametrize("words", [["query"], ["query", "-o", "found/"], ["get"]], ids=" ".join)
def test_the_other_index_needs_approval_too(
    whole_mirror: Path, crawls: list[str], tmp_path: Path, words: list[str]
) -> None:
    def script(request: Request) -> Fault | None:
        return Fault(Kind.NOT_FOUND) if is_lost and "/subset=" in request.path else None

    is_lost = False
    with FaultServer(whole_mirror, script=script) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        assert asks("harvest", "--crawl", crawls[0], "--subset", "all").status == 0
        is_lost = True
        server.reset()
        ran = asks(*words, "https://example.com/", "--crawl", crawls[0], "--max-requests", "5")
    assert (ran.status, ran.out) == (2, "")
    assert "cannot be used, so the CDX index answers" in ran.err
    assert "add --yes" in ran.err
    assert {exchange.status for exchange in server.log} == {404}


@pytest.mark.parametrize("read", [Captures.count, Captures.count_by_crawl, Captures.head, pa.table])
def test_answers_are_incomplete_after_the_cdx_index_has_failed(
    copied: Path, crawls: list[str], tmp_path: Path, read: Callable[[Captures], object]
) -> None:
    (copied / list_path(crawls[0])).unlink()
    with catalogue_in(tmp_path, copied) as cat:
        cat.harvest(crawls[0])
        found = cat.captures("*.com", crawls=crawls[0], subsets="all")
        assert found.complete  # as the CDX index would be
        with pytest.warns(IncompleteAnswer):
            read(found)
        assert not found.complete
