"""Records that cannot be fetched, ledgers of other outputs, and the command."""

import gzip
import json
import random
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.cli.input_files import captures_in
from catalogue.commoncrawl.capture import CAPTURE_COLUMNS, Capture, capture_of
from catalogue.demo import LoopbackServer
from catalogue.errors import BadDocument, QueryError
from catalogue.output.ledger import Ledger
from catalogue.records.fetch_records import FailedRecord, fetch_records, record_fetches
from catalogue.records.metadata import metadata_of
from catalogue.records.record import Record
from catalogue.settings import Settings
from catalogue.source.open import open_source
from tests.support.archives import warc
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.faults import FaultServer, Kind, first
from tests.support.fetched import check, many_rows, records_in

Rows = list[dict[str, Any]]
rows = pytest.fixture(scope="module")(many_rows)


def test_reports_defective_records_and_does_not_write_them(
    harvested_data: Path, mirror: Path, tmp_path: Path, crawl: str, rows: Rows
) -> None:
    rows = rows[::3]
    for name in {row["warc_filename"] for row in rows}:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        copyfile(mirror / name, tmp_path / "source" / name)
    chance = random.Random(1)
    spoilt, bad = chance.sample(rows, 6), {}
    for number, row in enumerate(spoilt):
        place = (row["warc_filename"], row["warc_record_offset"])
        file = tmp_path / "source" / row["warc_filename"]
        data = bytearray(file.read_bytes())
        start, length = place[1], row["warc_record_length"]
        if number < 3:
            data[start + 30 : start + 40] = bytes(10)
        else:
            other = gzip.compress(warc())  # a valid record of another page
            data[start : start + length] = other.ljust(length, b"\0") if len(other) < length else bytes(length)
        file.write_bytes(data)
        bad[place] = row["url"]
    beyond = rows[0] | {"warc_record_offset": 1 << 40}
    removed = rows[0] | {"warc_filename": f"crawl-data/{crawl}/segments/1/warc/gone.warc.gz"}
    with (
        LoopbackServer(tmp_path / "source") as server,
        catalogue_in(tmp_path, server.url, data=harvested_data, patience=0.0) as cat,
    ):
        done = cat.fetch([*rows, beyond, removed, rows[0] | {"warc_filename": "../x"}], tmp_path / "out.warc.gz")
        assert len(done.failed) == 8
        assert len(done.unusable) == 1
        assert bad.keys() < done.failed.keys()
        assert "gone.warc.gz" in done.failed[removed["warc_filename"], removed["warc_record_offset"]]
        check(tmp_path / "out.warc.gz")
        written = Counter(url for _, url, _ in records_in(tmp_path / "out.warc.gz"))
        assert written == Counter(row["url"] for row in rows) - Counter(bad.values())
        before = len(server.log)
        again = cat.fetch(rows, tmp_path / "out.warc.gz")
        assert again.failed.keys() == bad.keys()
        assert len(server.log) == before  # permanent failures are not requested again


def test_requests_damaged_responses_once_more(harvested_data: Path, mirror: Path, tmp_path: Path, rows: Rows) -> None:
    rows = [*{row["warc_filename"]: row for row in rows}.values()]
    with FaultServer(mirror, script=first(1, Kind.FLIPPED_BIT)) as server:
        with catalogue_in(tmp_path, server.url, data=harvested_data) as cat:
            done = cat.fetch(rows, tmp_path / "out.warc.gz")
        assert (done.records, done.failed) == (len(rows), {})
        assert server.requests == 2 * len(rows)
    check(tmp_path / "out.warc.gz")


def test_remembers_failures_of_the_same_capture_only(settings: Settings, tmp_path: Path, rows: Rows) -> None:
    (tmp_path / "wrong").mkdir()
    right, wrong = (Settings(source=where, cache=tmp_path) for where in (settings.source, str(tmp_path / "wrong")))
    row, output = rows[0], tmp_path / "out.warc.gz"
    misread = row | {"url": "https://other.example/"}
    with catalogue.open(tmp_path / "a", settings=wrong) as cat:
        ((_, first),) = cat.fetch([row], output).failed.items()
        ((_, again),) = cat.fetch([row], output).failed.items()
        assert again == f"{first} (in an earlier run; to retry, choose another output)"
    with catalogue.open(tmp_path / "b", settings=right) as cat:
        (reason,) = cat.fetch([misread], output).failed.values()
        assert "other.example" in reason
        assert "as found before" not in reason
        done = cat.fetch([row], output)
        assert (done.records, done.failed) == (1, {})
        assert cat.fetch([misread], output).failed == {}
    assert [url for _, url, _ in records_in(output)] == [row["url"]]


def test_retries_after_a_parser_timeout(settings: Settings, rows: Rows) -> None:
    def slow(_: Record) -> dict[str, Any]:
        raise BadDocument("its parser took over 5 s", permanent=False)

    def broken(_: Record) -> dict[str, Any]:
        raise BadDocument("no document")

    fetches = list(record_fetches([capture_of(rows[0])], max_gap=0))
    with closing(open_source(settings.source, settings)) as source:
        metadata = partial(metadata_of, extract=slow)
        for make, lasting in ((slow, False), (broken, True), (metadata, False)):
            (failed,) = fetch_records(fetches, source, make)
            assert isinstance(failed, FailedRecord)
            assert failed.permanent is lasting


def test_fetches_a_place_once(harvested: Catalogue, tmp_path: Path, rows: Rows) -> None:
    some = rows[:20]
    bare = [{name: value for name, value in row.items() if name != "fetch_time"} for row in some]
    done = harvested.fetch([*some, *bare], tmp_path / "out.warc.gz")
    assert done.records == len(records_in(tmp_path / "out.warc.gz")) == 20
    assert len(list(harvested.records([*some, *bare]))) == 20


@pytest.mark.in_soak
def test_accepts_captures_in_any_order(harvested: Catalogue, tmp_path: Path, rows: Rows) -> None:
    inorder = [Capture(f"crawl-data/{n % 3}", n // 3 * 99, 99) for n in range(51_000)]  # more than a window
    shuffled = random.Random(1).sample(inorder, len(inorder))
    requested = harvested.fetch_estimate(inorder)
    assert requested.requests < 10
    assert harvested.fetch_estimate(shuffled) == requested
    few = shuffled[:900]
    requested = harvested.fetch_estimate(few)
    texts = {name: [str(getattr(each, name)) for each in few] for name in ("filename", "offset", "length")}
    assert harvested.fetch_estimate(pa.table(texts)) == requested
    assert harvested.fetch_estimate(pa.table(texts).to_pandas()) == requested
    table = pa.Table.from_pylist(rows[:9])
    at = table.schema.get_field_index("warc_filename")
    for kind in (pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.large_string()):
        other = table.set_column(at, "warc_filename", table["warc_filename"].cast(kind))
        assert harvested.fetch_estimate(other) == harvested.fetch_estimate(table)
    assert harvested.fetch(other, tmp_path / "out.warc.gz").records == 9


@pytest.mark.parametrize("kind", ["reader", "dataset", "row", "text", "column", "number", "list"])
def test_rejects_other_values_as_captures(harvested: Catalogue, tmp_path: Path, rows: Rows, kind: str) -> None:
    table = pa.Table.from_pylist(rows[:2])
    odd: Any = {
        "reader": table.to_reader(),
        "dataset": pyarrow.dataset.dataset(table),
        "row": rows[0],
        "text": "*.com",
        "column": table.to_pandas()["url"],
        "number": 1,
        "list": ["https://example.com/"],
    }[kind]
    with pytest.raises(QueryError, match=r"use the result of captures\(\), a table, a DataFrame or a list of rows"):
        harvested.fetch(odd, tmp_path / "out.warc.gz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spoilt", [b'{"about": {"form": "text"}}\n', b"[]\n", b"{}\n", b"no json\n", b"\xff\n"])
def test_rejects_ledgers_of_another_output(tmp_path: Path, spoilt: bytes) -> None:
    (tmp_path / "x.ledger").write_bytes(spoilt)
    with pytest.raises(QueryError, match="choose another name, or delete it"):
        Ledger(tmp_path / "x.ledger", {"form": "warc"})
    assert (tmp_path / "x.ledger").read_bytes() == spoilt


def test_command_fetches_patterns_and_captures(
    asking: Command, tmp_path: Path, crawl: str, harvested: Catalogue
) -> None:
    rows = harvested.captures("example.com/*", crawls=crawl).to_arrow()
    dry = asking("fetch", "example.com/*", "--crawl", crawl, "--dry-run", "--json").json()
    assert dry["captures"] == rows.num_rows
    ran = asking("fetch", "example.com/*", "--crawl", crawl, "-o", "a.warc.gz", "--yes")
    assert (ran.status, ran.out, ran.err) == (0, "", f"{rows.num_rows} records in a.warc.gz\n")
    pq.write_table(rows, tmp_path / "rows.parquet")
    pa_csv.write_csv(rows, tmp_path / "rows.csv")
    (tmp_path / "rows.jsonl").write_text(asking("query", "example.com/*", "--crawl", crawl).out)
    cdxj = asking("query", "example.com/*", "--crawl", crawl, "--format", "cdxj").out.splitlines()
    cdx = [{"timestamp": line.split(" ")[1], **json.loads(line.split(" ", 2)[2])} for line in cdxj]
    (tmp_path / "cdx.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cdx))
    (tmp_path / "rows.cdxj").write_text("\n".join(cdxj))
    places = Counter(map(capture_of, rows.to_pylist()))
    asking("query", "example.com/*", "--crawl", crawl, "-o", "rows.arrow")
    for name in ("rows.parquet", "rows.csv", "rows.jsonl", "cdx.jsonl", "rows.cdxj", "rows.arrow"):
        with (tmp_path / name).open("rb") as file:
            given = captures_in(file).to_pylist()
        assert Counter(map(capture_of, given)) == places, name
    ran = asking("fetch", "--captures", "rows.cdxj", "-o", "b.warc.gz", "--yes", "--json")
    assert (ran.status, ran.json()["records"]) == (0, rows.num_rows), ran.err
    assert records_in(tmp_path / "b.warc.gz") == records_in(tmp_path / "a.warc.gz")
    (tmp_path / "sub").mkdir()
    ran = asking("fetch", "--captures", "rows.cdxj", "-o", "sub/c.warc.gz", "--max-size", "900KB", "--yes")
    assert (ran.status, ran.err) == (0, f"{rows.num_rows} records in sub/c-00000.warc.gz\n")
    pq.write_table(rows.select(["url"]), tmp_path / "urls.parquet")
    ran = asking("fetch", "--captures", "urls.parquet", "-o", "d.warc.gz")
    assert "missing; join with --how inner or --how latest, or query without --columns\n" in ran.err
    ran = asking("fetch", "example.com", "--crawl", crawl, "-o", "a.warc.gz")
    part = harvested.captures("example.com", crawls=crawl).count()
    others = f"{rows.num_rows - part:,} of other queries"
    assert (ran.status, ran.err) == (0, f"{part} records in a.warc.gz, which also has {others}\n")


def arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (b"", []),
        (b'\xef\xbb\xbf"url","warc_filename"\r\n"a\nb","c"\r\n', [("url", ["a\nb"]), ("warc_filename", ["c"])]),
        (
            b'\n{"offset": 5.0, "other": 1}\n\n[1]\n{"url": "\\ud800x"}',
            [("url", [None, None, "?x"]), ("offset", ["5", None, None])],
        ),
        (b'com,example)/ 20220101000000 {"offset": "7"}\n', [("timestamp", ["20220101000000"]), ("offset", ["7"])]),
        (
            b'!meta {"offset": "1"}\n@id x\n com,a)/  2022-01-01T00:00:00Z\t{"offset": "7"}\r\na 2022 {"offset": "8"}',
            [("timestamp", ["2022-01-01T00:00:00Z", "2022"]), ("offset", ["7", "8"])],
        ),
        (b'{"offset": 5, "more": [1, {"x": "a 2022 {}"}]}\n', [("offset", ["5"])]),
        (b'[\n{"url": "a"},\n{"url": "b"}\n]\n', [("url", ["a", "b"])]),
        (gzip.compress(b"url,offset\na,5\n"), [("url", ["a"]), ("offset", ["5"])]),
        (b'@timestamp,url,"offset"\n#a,b,5\n', [("url", ["b"]), ("offset", ["5"])]),
        (b"url\toffset\na,b\t5\n", [("url", ["a,b"]), ("offset", ["5"])]),
        (b"url;offset\na;5\n", [("url", ["a"]), ("offset", ["5"])]),
        (b'URL, "OFFSET"\na, 5\n', [("url", ["a"]), ("offset", ["5"])]),
        (b'  {"offset": 5}\n', [("offset", ["5"])]),
        (
            b" CDX N b a m s k r M S V g\na)/ 2022 http://a/ - 200 X - - 9 7 a.warc\n",
            [
                *(("url", ["http://a/"]), ("timestamp", ["2022"]), ("filename", ["a.warc"]), ("offset", ["7"])),
                *(("length", ["9"]), ("digest", ["X"]), ("status", ["200"])),
            ],
        ),
        (arrow_stream(pa.table({"url": ["a"]})), [("url", ["a"])]),
    ],
    ids=[
        *(
            "nothing",
            "CSV of Athena",
            "JSON lines",
            "CDXJ",
            "CDXJ of others",
            "nested JSON lines",
            "JSON",
            "gzipped CSV",
            "CSV of logs",
        ),
        *("TSV", "semicolons", "capitals and blanks", "indented JSON", "CDX", "Arrow stream"),
    ],
)
def test_reads_lists_of_captures(tmp_path: Path, text: bytes, columns: list[tuple[str, list[str | None]]]) -> None:
    (tmp_path / "list").write_bytes(text)
    with (tmp_path / "list").open("rb") as file:
        found = captures_in(file)
    if columns:
        assert {name: found.column(name).to_pylist() for name in found.schema.names} == dict(columns)
    else:
        assert found.num_rows == 0
        assert set(found.schema.names) == set(CAPTURE_COLUMNS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"https://example.com/\n", "nor a header with columns"),
        (b"a,b\n1,2\n", "nor a header with columns"),
        (b'\n{"offset": 5}\n\ncom,example)/ 20220101000000 {"url": "cut', "line 4 is not JSON: Unterminated"),
        (arrow_stream(pa.table({"url": ["abcdef"]})).replace(b"abcdef", b"abcde\xff"), "Invalid UTF8"),
        (arrow_stream(pa.table({"url": ["a"]})).replace(b"\1\0\0\0a", b"\0\0\0\xf0a"), "offset"),
        (arrow_stream(pa.table({"fetch_time": pa.array([1 << 48], pa.timestamp("ms"))})), "years 1 to 9999"),
        (arrow_stream(pa.table([["a"], ["b"]], ["url", "url"])), "exists 2 times"),
        (b"PAR1" + bytes(24) + b"\x14\0\0\0PAR1", "deserialize thrift"),
    ],
)
def test_rejects_files_that_are_not_lists_of_captures(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "list").write_bytes(text)
    with (tmp_path / "list").open("rb") as file, pytest.raises(QueryError, match=message):
        captures_in(file)


def test_fetches_nothing_that_is_complete(asking: Command, tmp_path: Path, rows: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    words = ["fetch", "--captures", "rows.parquet", "-o", "a.warc.gz"]
    assert asking(*words, "--max-requests", "0").status == 2
    assert asking(*words, "--yes").status == 0
    again = asking(*words, "--max-requests", "0")
    assert (again.status, again.err) == (0, asking(*words, "--yes").err)
