"""Records fetched into files: all of them, each once, whatever stopped it on the way."""

import gzip
import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

import catalogue
from catalogue import Catalogue
from catalogue.capture import CAPTURE_COLUMNS, Capture, capture_of
from catalogue.cli.listed import captures_in
from catalogue.demo import LoopbackServer
from catalogue.errors import BadDocument, BadRecord, GivenUp, IncompleteAnswer, QueryError
from catalogue.fetching import Failed, MadeHere, fetch_records
from catalogue.filling import Fetched
from catalogue.outputs import Here, Ledger, Lines, Parts, Warc
from catalogue.plan import record_fetches
from catalogue.record import Record, read_record
from catalogue.settings import Settings
from catalogue.source import open_source
from catalogue.supervised import ChildDied
from tests.commands import Command, wait_until
from tests.faults import FaultServer
from tests.test_record import BODY, HEAD, arc, capture, warc

MANY = "*.org"
"""Some hundred records of all archives of a crawl."""


@pytest.fixture(scope="module")
def rows(harvested: Catalogue, crawl: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = harvested.captures(MANY, crawls=crawl).to_arrow().to_pylist()
    return found


def records_in(*files: Path) -> list[tuple[str, str, bytes]]:
    """Record id, URL and content of what the index knows, in the order of the files."""
    found = []
    for file in files:
        with file.open("rb") as opened:
            for number, each in enumerate(ArchiveIterator(opened, check_digests="raise")):
                assert (each.rec_type == "warcinfo") is (number == 0)
                if number:
                    headers = each.rec_headers
                    ident, url = headers.get_header("WARC-Record-ID"), headers.get_header("WARC-Target-URI")
                    found.append((ident, url, each.raw_stream.read()))
    return found


def check(*files: Path) -> None:
    """What warcio's own checker says."""
    checker = Checker(SimpleNamespace(inputs=[str(file) for file in files], verbose=False))
    checker.process_all()
    assert checker.exit_value == 0


# ---- merging ----

places = st.lists(
    st.builds(
        lambda file, offset, length: Capture(f"crawl-data/{file}", offset, length),
        st.sampled_from("abc"),
        st.integers(0, 3000),
        st.integers(1, 400),
    ),
    max_size=25,
)


@given(places, st.integers(0, 500))
def test_each_capture_is_in_one_request(captures: list[Capture], max_gap: int) -> None:
    fetches = list(record_fetches(captures, max_gap=max_gap))
    assert Counter(each for fetch in fetches for each in fetch.captures) == Counter(captures)
    for fetch in fetches:
        assert all(each.filename == fetch.path and each.range in fetch.range for each in fetch.captures)
        assert {fetch.range.start} == {min(each.offset for each in fetch.captures)}
        assert fetch.range.end == max(each.range.end for each in fetch.captures)
    ordered = [(fetch.path, fetch.range.start) for fetch in fetches]
    assert ordered == sorted(ordered)
    for one, other in pairwise(fetches):
        assert one.path != other.path or other.range.start - one.range.end > max_gap


def test_requests_and_bytes_are_those_of_the_estimate(
    harvested_data: Path, mirror: Path, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    for bandwidth in (1e3, 1e8):
        with LoopbackServer(mirror) as server:
            settings = Settings(source=server.url, cache=tmp_path, bandwidth=bandwidth)
            with catalogue.open(harvested_data, settings=settings) as cat:
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


# ---- what is written ----


def test_what_is_fetched_is_what_is_there(
    harvested: Catalogue, mirror: Path, tmp_path: Path, crawl: str, rows: list[dict[str, Any]]
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


def test_files_of_about_a_size(harvested: Catalogue, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    whole = harvested.fetch(rows, tmp_path / "one.warc.gz")
    done = harvested.fetch(rows, tmp_path / "many.warc.gz", most=whole.bytes // 4)
    assert done.files == [f"many-{number:05}.warc.gz" for number in range(len(done.files))]
    assert 4 <= len(done.files) <= 6
    files = [tmp_path / name for name in done.files]
    check(*files)
    assert all(file.stat().st_size <= whole.bytes // 4 for file in files)
    assert records_in(*files) == records_in(tmp_path / "one.warc.gz")


def test_arc_records_become_warc(tmp_path: Path) -> None:
    member = gzip.compress(arc())
    record = read_record(capture(member), member)
    (tmp_path / "x.warc.gz").write_bytes(Warc({}).head("x.warc.gz") + Warc({}).add(record))
    check(tmp_path / "x.warc.gz")
    ((_, url, content),) = records_in(tmp_path / "x.warc.gz")
    assert (url, content) == (record.url, record.body)


@pytest.mark.parametrize(
    "head",
    ["HTTP/1.1 200 Ок\r\n\r\n", "HTTP/1.0 200 OK\nÞórð: ü=ß\nX:\ty \n\n", "ICY 200 OK\r\n\r\n", "HTTP/1.1\r\n\r\n", ""],
)
def test_heads_of_arc_records_stay_as_they_were(tmp_path: Path, head: str) -> None:
    member = gzip.compress(arc(head=head) if head else arc().replace(b"https", b"dns"))
    meant = capture(member, status=None) if head else Capture("crawl-data/x.arc.gz", 0, len(member))
    made = Warc({}).add(read_record(meant, member))
    content = (head or HEAD).encode() + BODY
    assert f"\r\n\r\n{content.decode()}\r\n\r\n" in gzip.decompress(made).decode()
    again = read_record(replace(meant, length=len(made)), made)
    assert (again.http_head, again.body) == ((head.encode(), BODY) if head else (b"", content))
    (tmp_path / "x.warc.gz").write_bytes(Warc({}).head("x.warc.gz") + made)
    check(tmp_path / "x.warc.gz")


def test_arc_records_of_no_time_do_not_become_warc() -> None:
    member = gzip.compress(arc().replace(b"20220815010203", b"yesterday"))
    with pytest.raises(BadRecord, match="has no time"):
        Warc({}).add(read_record(capture(member, time=None), member))


def test_a_record_that_a_form_cannot_take_keeps_no_other_out(settings: Settings, rows: list[dict[str, Any]]) -> None:
    odd = rows[3]["url"]

    def make(record: Record) -> dict[str, Any]:
        return {"url": {record} if record.url == odd else record.url}  # a set is nothing for JSON

    wanted = [capture_of(row) for row in rows[:10] if row is rows[3] or row["url"] != odd]
    with (
        closing(open_source(settings.source, settings)) as source,
        closing(MadeHere(source, Lines(make))) as here,
        closing(here.made(record_fetches(wanted, max_gap=1000))) as results,
    ):
        failed = [each for each in results if isinstance(each, Failed)]
    ((reason, lasting),) = [(each.reason, each.lasting) for each in failed]
    assert "TypeError" in reason
    assert not lasting


def test_rows_that_name_no_record_are_said(harvested: Catalogue, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    odd = [rows[0] | {name: ["x"]} for name in ("url", "warc_filename", "warc_record_offset")]
    done = harvested.fetch([*odd, rows[0]], tmp_path / "out.warc.gz")
    assert (done.records, len(done.unusable)) == (1, 3)
    done = harvested.fetch(pd.DataFrame([*odd, rows[0]]), tmp_path / "frame.warc.gz")
    assert (done.records, len(done.unusable)) == (1, 3)


def test_records_in_python(harvested: Catalogue, crawl: str, rows: list[dict[str, Any]]) -> None:
    found = list(harvested.records(rows[:20] + rows[:3]))
    assert Counter(record.url for record in found) == Counter(row["url"] for row in rows[:20])
    frame = harvested.captures("*.com", crawls=crawl, limit=3).to_pandas()
    assert {record.url for record in harvested.records(frame)} == set(frame["url"])
    with pytest.warns(IncompleteAnswer, match="no name of an archive"):
        assert list(harvested.records([rows[0] | {"warc_filename": "../x"}])) == []
    with pytest.warns(IncompleteAnswer, match="does not exist"):
        assert list(harvested.records([rows[0] | {"warc_filename": "crawl-data/none.warc.gz"}])) == []


# ---- going on ----


def test_killed_and_resumed_equals_one_run(
    asking: Command, mirror: Path, tmp_path: Path, crawl: str, rows: list[dict[str, Any]]
) -> None:
    expected = Counter(row["url"] for row in rows)
    words = ["fetch", MANY, "--crawl", crawl, "-o", "out.warc.gz", "--yes", "--max-size", "50kB"]
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


@pytest.mark.parametrize("seed", range(2))
def test_cut_anywhere_it_goes_on(harvested: Catalogue, tmp_path: Path, rows: list[dict[str, Any]], seed: int) -> None:
    """Files and ledger as a power cut may leave them: what was synced is there, of the rest some."""
    chance = random.Random(seed)
    target = tmp_path / "out.warc.gz"
    most = chance.choice([None, 100_000])
    some = chance.sample(rows, len(rows) // 2)
    ledger = Ledger(tmp_path / "out.warc.gz.ledger", {"form": "warc", "most": most})
    parts = Parts(Here(tmp_path), target.name, Warc({}), ledger, most=most)
    for record in harvested.records(some):
        parts.add(record.capture, record.member)
        if chance.random() < 0.01:
            parts.make_safe()
    if chance.random() < 0.5:
        parts.finish()
    parts.close()
    ledger.close()
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    kept = b"".join(lines[: chance.randint(1, len(lines))])
    ledger.path.write_bytes(kept + chance.choice([b"", b'{"fi', b"\xff"]))
    for file in tmp_path.glob(".out*.part"):
        with file.open("ab") as opened:
            opened.write(chance.randbytes(chance.choice([0, 1, 5000])))
    if chance.random() < 0.3:
        chance.choice([file for file in tmp_path.glob("*out*.warc.gz*") if file != ledger.path]).unlink()

    def fetched() -> Fetched:
        try:
            return harvested.fetch(rows, target, most=most)
        except QueryError as error:  # a file whose line of the ledger was cut off might be anybody's
            Path(str(error).split(" holds something else")[0]).unlink()
            return fetched()

    done = fetched()
    assert not done.failed
    files = [tmp_path / name for name in done.files]
    check(*files)
    assert Counter(url for _, url, _ in records_in(*files)) == Counter(row["url"] for row in rows)


def test_more_captures_go_behind_what_is_there(
    harvested: Catalogue, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    target = tmp_path / "out.warc.gz"
    harvested.fetch(rows[:10], target)
    before = records_in(target)
    done = harvested.fetch(rows[:30], target)
    assert done.records == 30
    assert records_in(target)[:10] == before
    assert len(records_in(target)) == 30
    target.unlink()  # what is not there is fetched again
    assert harvested.fetch(rows[:12], target).records == 12
    assert len(records_in(target)) == 12


# ---- what cannot be had ----


def test_what_is_wrong_is_said_and_never_written(
    harvested_data: Path, mirror: Path, tmp_path: Path, crawl: str, rows: list[dict[str, Any]]
) -> None:
    copytree(mirror, tmp_path / "source")
    chance = random.Random(1)
    spoilt, bad = chance.sample(rows, 6), {}
    for number, row in enumerate(spoilt):
        place = (row["warc_filename"], row["warc_record_offset"])
        file = tmp_path / "source" / row["warc_filename"]
        data = bytearray(file.read_bytes())
        start, end = place[1], place[1] + row["warc_record_length"]
        if number < 3:
            data[start + 30 : start + 40] = bytes(10)
        else:
            other = gzip.compress(warc())  # a good record of something else, as long
            data[start:end] = (
                other + bytes(end - start - len(other)) if len(other) < end - start else bytes(end - start)
            )
        file.write_bytes(data)
        bad[place] = row["url"]
    beyond = rows[0] | {"warc_record_offset": 1 << 40}
    gone = rows[0] | {"warc_filename": f"crawl-data/{crawl}/segments/1/warc/gone.warc.gz"}
    with LoopbackServer(tmp_path / "source") as server:
        settings = Settings(source=server.url, cache=tmp_path / "cache", patience=0.0)
        with catalogue.open(harvested_data, settings=settings) as cat:
            done = cat.fetch([*rows, beyond, gone, rows[0] | {"warc_filename": "../x"}], tmp_path / "out.warc.gz")
            assert len(done.failed) == 8
            assert len(done.unusable) == 1
            assert bad.keys() < done.failed.keys()
            assert "gone.warc.gz" in done.failed[gone["warc_filename"], gone["warc_record_offset"]]
            check(tmp_path / "out.warc.gz")
            written = Counter(url for _, url, _ in records_in(tmp_path / "out.warc.gz"))
            assert written == Counter(row["url"] for row in rows) - Counter(bad.values())
            before = len(server.log)
            again = cat.fetch(rows, tmp_path / "out.warc.gz")
            assert again.failed.keys() == bad.keys()
            assert len(server.log) == before  # what will not change is not asked for again


def test_a_closed_source_is_given_up(settings: Settings, rows: list[dict[str, Any]]) -> None:
    source = open_source(settings.source, settings)
    source.close()
    fetches = record_fetches(map(capture_of, rows), max_gap=0)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(GivenUp),
        closing(fetch_records(fetches, source, executor)) as it,
    ):
        list(it)


def test_what_failed_is_believed_of_the_same_question_only(
    settings: Settings, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    (tmp_path / "wrong").mkdir()
    right, wrong = (Settings(source=where, cache=tmp_path) for where in (settings.source, str(tmp_path / "wrong")))
    row, output = rows[0], tmp_path / "out.warc.gz"
    misread = row | {"url": "https://other.example/"}
    with catalogue.open(tmp_path / "a", settings=wrong) as cat:
        ((_, first),) = cat.fetch([row], output).failed.items()
        ((_, again),) = cat.fetch([row], output).failed.items()
        assert again == f"{first} (as found before; to ask again, choose another output)"
    with catalogue.open(tmp_path / "b", settings=right) as cat:
        (reason,) = cat.fetch([misread], output).failed.values()
        assert "other.example" in reason
        assert "as found before" not in reason
        done = cat.fetch([row], output)
        assert (done.records, done.failed) == (1, {})
        assert cat.fetch([misread], output).failed == {}
    assert [url for _, url, _ in records_in(output)] == [row["url"]]


def test_a_parser_that_took_too_long_is_asked_again(settings: Settings, rows: list[dict[str, Any]]) -> None:
    def slow(_: Record) -> dict[str, Any]:
        message = "its parser took over 5 s"
        raise BadDocument(message) from ChildDied

    def broken(_: Record) -> dict[str, Any]:
        message = "no document"
        raise BadDocument(message)

    fetches = list(record_fetches([capture_of(rows[0])], max_gap=0))
    with closing(open_source(settings.source, settings)) as source:
        for make, lasting in ((slow, False), (broken, True)):
            with closing(MadeHere(source, Lines(make))) as here:
                (failed,) = here.made(fetches)
            assert isinstance(failed, Failed)
            assert failed.lasting is lasting


def test_a_place_is_one_record_however_it_is_described(
    harvested: Catalogue, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    some = rows[:20]
    bare = [{name: value for name, value in row.items() if name != "fetch_time"} for row in some]
    done = harvested.fetch([*some, *bare], tmp_path / "out.warc.gz")
    assert done.records == len(records_in(tmp_path / "out.warc.gz")) == 20
    assert len(list(harvested.records([*some, *bare]))) == 20


def test_any_order_is_as_good(harvested: Catalogue, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    inorder = [
        Capture(f"crawl-data/{n % 3}", n // 3 * 99, 99) for n in range(60_000)
    ]  # more than are looked at at once
    shuffled = random.Random(1).sample(inorder, len(inorder))
    wanted = harvested.fetch_estimate(inorder)
    assert wanted.requests < 10
    assert harvested.fetch_estimate(shuffled) == wanted
    texts = {name: [str(getattr(each, name)) for each in shuffled] for name in ("filename", "offset", "length")}
    assert harvested.fetch_estimate(pa.table(texts)) == wanted
    assert harvested.fetch_estimate(pa.table(texts).to_pandas()) == wanted
    table = pa.Table.from_pylist(rows[:9])
    at = table.schema.get_field_index("warc_filename")
    for kind in (pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.large_string()):
        other = table.set_column(at, "warc_filename", table["warc_filename"].cast(kind))
        assert harvested.fetch_estimate(other) == harvested.fetch_estimate(table)
    assert harvested.fetch(other, tmp_path / "out.warc.gz").records == 9


@pytest.mark.parametrize("kind", ["batch", "reader", "row", "text", "column", "number", "list"])
def test_what_are_no_captures(harvested: Catalogue, tmp_path: Path, rows: list[dict[str, Any]], kind: str) -> None:
    table = pa.Table.from_pylist(rows[:2])
    odd: Any = {
        "batch": table.to_batches()[0],
        "reader": table.to_reader(),
        "row": rows[0],
        "text": "*.com",
        "column": table.to_pandas()["url"],
        "number": 1,
        "list": ["https://example.com/"],
    }[kind]
    with pytest.raises(QueryError, match="captures are an answer, a table, a DataFrame or a list of rows"):
        harvested.fetch(odd, tmp_path / "out.warc.gz")
    assert list(tmp_path.iterdir()) == []


# ---- ledgers ----


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "x.ledger", {"form": "warc"})) as made:
        yield made


def test_a_ledger_says_what_was_noted(ledger: Ledger) -> None:
    one, other, third = (Capture("crawl-data/a", offset, 1) for offset in (1, 2, 3))
    ledger.note("x", 10, [one])
    ledger.note_failed([(other, "gone", "asked"), (third, "later", "")])
    ledger.close()
    with closing(Ledger(ledger.path, {"form": "warc"})) as again:
        assert (again.is_done(one), again.is_done(other), again.done) == (True, False, 1)
        assert again.failed == {("crawl-data/a", 2): ("gone", "asked"), ("crawl-data/a", 3): ("later", "")}
        again.note("x", 20, [third])
        assert again.failed == {("crawl-data/a", 2): ("gone", "asked")}
        assert again.sizes == {"x": 20}
        again.finish("x", 21)
        assert (again.sizes, again.finished) == ({}, {"x": 21})
        again.lose("x")
        assert (again.done, again.finished) == (0, {})


@pytest.mark.parametrize("spoilt", [b'{"about": {"form": "text"}}\n', b"[]\n", b"{}\n", b"no json\n", b"\xff\n"])
def test_ledgers_of_something_else_are_refused(tmp_path: Path, spoilt: bytes) -> None:
    (tmp_path / "x.ledger").write_bytes(spoilt)
    with pytest.raises(QueryError, match="choose another name, or delete it"):
        Ledger(tmp_path / "x.ledger", {"form": "warc"})
    assert (tmp_path / "x.ledger").read_bytes() == spoilt


# ---- the command ----


def test_the_command_fetches_patterns_and_captures(
    asking: Command, tmp_path: Path, crawl: str, harvested: Catalogue
) -> None:
    rows = harvested.captures("*.example.com", crawls=crawl).to_arrow()
    dry = asking("fetch", "*.example.com", "--crawl", crawl, "--dry-run", "--json").json()
    assert dry["captures"] == rows.num_rows
    ran = asking("fetch", "*.example.com", "--crawl", crawl, "-o", "a.warc.gz", "--yes")
    assert (ran.status, ran.out, ran.err) == (0, "", f"{rows.num_rows} records in a.warc.gz\n")
    pq.write_table(rows, tmp_path / "rows.parquet")
    pa_csv.write_csv(rows, tmp_path / "rows.csv")
    (tmp_path / "rows.jsonl").write_text(asking("query", "*.example.com", "--crawl", crawl).out)
    cdxj = asking("query", "*.example.com", "--crawl", crawl, "--format", "cdxj").out.splitlines()
    cdx = [{"timestamp": line.split(" ")[1], **json.loads(line.split(" ", 2)[2])} for line in cdxj]
    (tmp_path / "cdx.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cdx))
    (tmp_path / "rows.cdxj").write_text("\n".join(cdxj))
    for name in ("rows.parquet", "rows.csv", "rows.jsonl", "cdx.jsonl", "rows.cdxj"):
        ran = asking("fetch", "--captures", name, "-o", f"{name}.warc.gz", "--yes", "--json")
        assert (ran.status, ran.json()["records"]) == (0, rows.num_rows), ran.err
        assert records_in(tmp_path / f"{name}.warc.gz") == records_in(tmp_path / "a.warc.gz")


def test_what_is_lost_is_said_by_the_command(asking: Command, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    row = {name: str(value) for name, value in rows[0].items()}
    lost = row | {"warc_filename": "crawl-data/gone.warc.gz"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(lost) + "\n")
    ran = asking("fetch", "--captures", "rows.jsonl", "-o", "a.warc.gz")
    assert ran.status == 1
    assert "1 record in a.warc.gz\n" in ran.err
    assert "catalogue: not fetched: " in ran.err
    assert len(records_in(tmp_path / "a.warc.gz")) == 1


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
    ],
    ids=["nothing", "CSV of Athena", "JSON lines", "CDXJ"],
)
def test_lists_of_captures(tmp_path: Path, text: bytes, columns: list[tuple[str, list[str | None]]]) -> None:
    (tmp_path / "list").write_bytes(text)
    with (tmp_path / "list").open("rb") as file:
        found = captures_in(file)
    if columns:
        assert {name: found.column(name).to_pylist() for name in found.schema.names} == dict(columns)
    else:
        assert found.num_rows == 0
        assert set(found.schema.names) == set(CAPTURE_COLUMNS)


@pytest.mark.parametrize(
    "text", [b'[{"filename": "a", "offset": 1, "length": 2}]', b"https://example.com/\n", b"a,b\n1,2\n"]
)
def test_what_is_no_list_of_captures_is_not_taken_for_an_empty_one(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "list").write_bytes(text)
    with (tmp_path / "list").open("rb") as file, pytest.raises(QueryError, match="names no column of captures"):
        captures_in(file)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "either patterns or --captures"),
        (["*.com", "--captures", "rows.jsonl"], "either patterns or --captures"),
        (["*.com"], "say it with -o"),
        (["*.com", "-o", "a.warc.gz", "--columns", "url"], "leave it out"),
        (["*.com", "-o", "a.zip"], "end in .warc.gz"),
        (["*.com", "-o", "a.warc.gz", "--format", "text"], "end in .jsonl"),
        (["*.com", "-o", "no/a.warc.gz"], "there is no folder no"),
        (["--captures", "rows.jsonl", "-o", "a.warc.gz"], "holds no captures"),
        (["*", "-o", "a.warc.gz", "--max-requests", "0"], "add --yes"),
        (["*.com", "-o", "held.warc.gz", "--max-size", "1GB", "--yes"], "is of another output"),
    ],
)
def test_mistakes_of_the_command(asking: Command, tmp_path: Path, words: list[str], what: str) -> None:
    (tmp_path / "rows.jsonl").write_text("{no json")
    if "held.warc.gz" in words:
        Ledger(tmp_path / "held.warc.gz.ledger", {"form": "warc", "most": None}).close()
    ran = asking("fetch", *words)
    assert (ran.status, ran.err.count("\n")) == (2, 1), ran.err
    assert what in ran.err
    assert not list(tmp_path.glob("a.*"))


def test_what_is_there_already_is_not_asked_about(asking: Command, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    words = ["fetch", "--captures", "rows.parquet", "-o", "a.warc.gz"]
    assert asking(*words, "--max-requests", "0").status == 2
    assert asking(*words, "--yes").status == 0
    again = asking(*words, "--max-requests", "0")
    assert (again.status, again.err) == (0, asking(*words, "--yes").err)


def test_records_are_checked_as_they_come(settings: Settings, rows: list[dict[str, Any]]) -> None:
    wrong = [capture_of(row | {"url": "https://other.example/"}) for row in rows[:3]]
    with closing(open_source(settings.source, settings)) as source, ThreadPoolExecutor(2) as executor:
        results = list(fetch_records(record_fetches(wrong, max_gap=1000), source, executor))
    assert all(isinstance(result, Failed) and result.lasting for result in results)
    assert not any(isinstance(result, Record) for result in results)
