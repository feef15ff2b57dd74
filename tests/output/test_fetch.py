"""Records are fetched in few requests, written completely, and continued."""

import gzip
import signal
from collections import Counter
from contextlib import closing
from dataclasses import replace
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue import Catalogue
from catalogue.commoncrawl.capture import Capture, capture_of
from catalogue.demo import LoopbackServer
from catalogue.errors import BadRecord, IncompleteAnswer, QueryError
from catalogue.formatting import json_line
from catalogue.output.fetch import FetchEstimate, fetch_encoded
from catalogue.output.formats import RecordFormat, warc_format
from catalogue.records.fetch_records import FailedRecord, RecordFetch, record_fetches
from catalogue.records.record import Record, read_record
from catalogue.settings import Settings
from catalogue.source.open import open_source
from tests.support.archives import BODY, HEAD, arc, capture
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command, wait_until
from tests.support.faults import FaultServer
from tests.support.fetched import MANY, check, many_rows, records_in

Rows = list[dict[str, Any]]
rows = pytest.fixture(scope="module")(many_rows)


FILES = [f"crawl-data/{name}" for name in "abc"]
places = st.lists(st.builds(Capture, st.sampled_from(FILES), st.integers(0, 3000), st.integers(1, 400)), max_size=25)


def path_of(fetch: RecordFetch) -> str:
    return fetch.captures[0].filename


@given(places, st.integers(0, 500))
def test_requests_each_capture_once(captures: list[Capture], max_gap: int) -> None:
    fetches = list(record_fetches(captures, max_gap=max_gap))
    assert Counter(each for fetch in fetches for each in fetch.captures) == Counter(captures)
    for fetch in fetches:
        assert all(each.filename == path_of(fetch) and each.range in fetch.range for each in fetch.captures)
        assert {fetch.range.start} == {min(each.offset for each in fetch.captures)}
        assert fetch.range.end == max(each.range.end for each in fetch.captures)
    ordered = [(path_of(fetch), fetch.range.start) for fetch in fetches]
    assert ordered == sorted(ordered)
    for one, other in pairwise(fetches):
        assert path_of(one) != path_of(other) or other.range.start - one.range.end > max_gap


def test_requests_and_bytes_equal_the_estimate(harvested_data: Path, mirror: Path, tmp_path: Path, rows: Rows) -> None:
    for bandwidth in (1e3, 1e8):
        with (
            LoopbackServer(mirror) as server,
            catalogue_in(tmp_path, server.url, data=harvested_data, bandwidth=bandwidth) as cat,
        ):
            estimate = cat.fetch_estimate(rows)
            done = cat.fetch(rows, tmp_path / f"{bandwidth}.warc.gz")
            assert (done.records, done.failed) == (len(rows), {})
            assert (cat.requests, cat.bytes) == (estimate.requests, estimate.bytes)
            assert len(server.log) == estimate.requests
            assert sum(estimate.hosts.values()) == len(rows)
        if bandwidth == 1e3:
            assert estimate.bytes == sum(row["warc_record_length"] for row in rows)
        else:
            assert estimate.requests == len({row["warc_filename"] for row in rows})


def test_fetched_records_equal_the_archives(
    harvested: Catalogue, mirror: Path, tmp_path: Path, crawl: str, rows: Rows
) -> None:
    done = harvested.fetch(rows, tmp_path / "out.warc.gz", about="captures of\r\n*.com")
    assert (done.files, done.failed) == (["out.warc.gz"], {})
    check(tmp_path / "out.warc.gz")
    archived = (tmp_path / "out.warc.gz").read_bytes()
    for row in rows:
        with (mirror / row["warc_filename"]).open("rb") as file:
            file.seek(row["warc_record_offset"])
            assert file.read(row["warc_record_length"]) in archived
    assert Counter(url for _, url, _ in records_in(tmp_path / "out.warc.gz")) == Counter(row["url"] for row in rows)
    first = gzip.GzipFile(fileobj=BytesIO(archived)).read(2000).decode(errors="replace")
    assert "software: commoncrawl-catalogue/" in first
    assert "description: captures of *.com\r\n" in first
    assert f"isPartOf: {crawl}\r\n" in first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.warc.gz", "out.warc.gz.ledger"]


def test_splits_files_by_size(harvested: Catalogue, tmp_path: Path, rows: Rows) -> None:
    whole = harvested.fetch(rows, tmp_path / "one.warc.gz")
    done = harvested.fetch(rows, tmp_path / "many.warc.gz", most=whole.bytes // 4)
    assert done.files == [f"many-{number:05}.warc.gz" for number in range(len(done.files))]
    assert 4 <= len(done.files) <= 6
    files = [tmp_path / name for name in done.files]
    check(*files)
    assert all(file.stat().st_size <= whole.bytes // 4 for file in files)
    assert records_in(*files) == records_in(tmp_path / "one.warc.gz")


@pytest.mark.parametrize(
    "head",
    ["HTTP/1.1 200 Ок\r\n\r\n", "HTTP/1.0 200 OK\nÞórð: ü=ß\nX:\ty \n\n", "ICY 200 OK\r\n\r\n", "HTTP/1.1\r\n\r\n", ""],
)
def test_keeps_headers_of_arc_records(tmp_path: Path, head: str) -> None:
    member = gzip.compress(arc(head=head) if head else arc().replace(b"https", b"dns"))
    meant = capture(member, status=None) if head else Capture("crawl-data/x.arc.gz", 0, len(member))
    made = warc_format().encode(read_record(meant, member))
    content = (head or HEAD).encode() + BODY
    assert f"\r\n\r\n{content.decode()}\r\n\r\n" in gzip.decompress(made).decode()
    again = read_record(replace(meant, length=len(made)), made)
    assert (again.http_head, again.body) == ((head.encode(), BODY) if head else (b"", content))
    (tmp_path / "x.warc.gz").write_bytes(warc_format().header("x.warc.gz") + made)
    check(tmp_path / "x.warc.gz")


def test_does_not_convert_arc_records_without_time() -> None:
    member = gzip.compress(arc().replace(b"20220815010203", b"yesterday"))
    with pytest.raises(BadRecord, match="has no time"):
        warc_format().encode(read_record(capture(member, time=None), member))


def test_skips_records_that_a_format_cannot_store(settings: Settings, rows: Rows) -> None:
    odd = rows[3]["url"]

    def make(record: Record) -> dict[str, object]:
        return {"url": {record} if record.url == odd else record.url}  # JSON has no sets

    requested = [capture_of(row) for row in rows[:10] if row is rows[3] or row["url"] != odd]
    with (
        closing(open_source(settings.source, settings)) as source,
        closing(
            fetch_encoded(
                record_fetches(requested, max_gap=1000), source, RecordFormat("text", json_line, convert=make)
            )
        ) as results,
    ):
        failed = [each for each in results if isinstance(each, FailedRecord)]
    ((reason, lasting),) = [(each.reason, each.permanent) for each in failed]
    assert "TypeError" in reason
    assert not lasting


def test_an_estimate_leaves_the_rows_of_a_generator(harvested: Catalogue, tmp_path: Path, rows: Rows) -> None:
    few = rows[:5]
    estimates: list[FetchEstimate] = []
    found = harvested.fetch((row for row in few), tmp_path / "found.warc.gz", agree=estimates.append)
    assert found.records == estimates[0].captures == len(few)


def test_reports_rows_without_a_record(harvested: Catalogue, tmp_path: Path, rows: Rows) -> None:
    odd = [rows[0] | {name: ["x"]} for name in ("url", "warc_filename", "warc_record_offset")]
    done = harvested.fetch([*odd, rows[0]], tmp_path / "out.warc.gz")
    assert (done.records, len(done.unusable)) == (1, 3)
    done = harvested.fetch(pd.DataFrame([*odd, rows[0]]), tmp_path / "frame.warc.gz")
    assert (done.records, len(done.unusable)) == (1, 3)
    with pytest.raises(QueryError, match="use a path, a URL or an open binary file"):
        harvested.fetch(rows[:1], StringIO())  # type: ignore[arg-type]


def test_yields_records_in_python(harvested: Catalogue, crawl: str, rows: Rows) -> None:
    found = list(harvested.records(rows[:20] + rows[:3]))
    assert Counter(record.url for record in found) == Counter(row["url"] for row in rows[:20])
    frame = harvested.captures("*.com", crawls=crawl, limit=3, subsets="all").to_pandas()
    assert {record.url for record in harvested.records(frame)} == set(frame["url"])
    arrow = pa.Table.from_pandas(frame)
    others: list[Any] = [arrow, *arrow.to_batches(), pl.DataFrame(arrow), duckdb.from_arrow(arrow)]
    for other in others:
        assert {record.url for record in harvested.records(other)} == set(frame["url"])
    with pytest.warns(IncompleteAnswer, match="is not the path of an archive"):
        assert list(harvested.records([rows[0] | {"warc_filename": "../x"}])) == []
    with pytest.warns(IncompleteAnswer, match="does not exist") as warned:
        assert list(harvested.records([rows[0] | {"warc_filename": "crawl-data/none.warc.gz"}])) == []
    assert [each.filename for each in warned] == [__file__]


def test_resumed_fetch_equals_one_run(asking: Command, mirror: Path, tmp_path: Path, crawl: str, rows: Rows) -> None:
    expected = Counter(row["url"] for row in rows)
    words = ["fetch", MANY, "--crawl", crawl, "--subset", "all", "-o", "out.warc.gz", "--yes", "--max-size", "50kB"]
    killed = 0
    for number in (3, 20):  # at the n-th request
        with FaultServer(mirror) as server:
            command = Command(asking.data, server.url, tmp_path)
            with command.start(*words, CATALOGUE_BANDWIDTH="20000") as process:
                wait_until(process, lambda: len(server.log) >= number)  # noqa: B023 - it is called here
                process.send_signal(signal.SIGKILL)
            killed += process.returncode == -signal.SIGKILL
    assert killed >= 1
    with LoopbackServer(mirror) as server:
        ran = Command(asking.data, server.url, tmp_path)(*words, CATALOGUE_BANDWIDTH="20000")
        assert ran.status == 0, ran.err
    files = sorted(tmp_path.glob("out-*.warc.gz"))
    check(*files)
    found = records_in(*files)
    assert Counter(url for _, url, _ in found) == expected
    assert len({ident for ident, _, _ in found}) == len(found)
    assert not list(tmp_path.glob(".out*"))
    before = {file.name: file.stat().st_mtime_ns for file in files}
    with LoopbackServer(mirror) as server:
        assert Command(asking.data, server.url, tmp_path)(*words).status == 0
        assert not [exchange for exchange in server.log if "/segments/" in exchange.path]
    assert {file.name: file.stat().st_mtime_ns for file in sorted(tmp_path.glob("out-*.warc.gz"))} == before
