"""Outputs in every format: complete or absent, and continued after a stop at any step."""

import gzip
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import copy, copytree, ignore_patterns, move
from types import FrameType
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue import Catalogue
from catalogue.errors import IncompleteAnswer, QueryError, StoreLocked
from catalogue.formatting import to_json
from catalogue.output import writer as writer_module
from catalogue.output.formats import payload_line
from catalogue.output.ledger import Ledger
from catalogue.output.open_output import open_output
from catalogue.output.parquet_format import ROW, encode_row
from catalogue.output.targets import LocalTarget
from catalogue.output.writer import PartWriter, PayloadWriter
from catalogue.records.document import Documents
from catalogue.records.metadata import row_of
from catalogue.records.record import Record
from tests.support.amounts import in_part
from tests.support.archives import record_of
from tests.support.commands import Command
from tests.support.fetched import check, records_in
from tests.support.forms import FORMS, copied, elsewhere, fill, form_of, sixty_records, urls_in, urls_of

records = pytest.fixture(scope="module")(sixty_records)
away = pytest.fixture(elsewhere)


NOT_WRITABLE = ["nosuch://bucket", "https://example.com", "dir:///folder", "reference://bucket"]
NAME = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{18}-[a-z0-9][a-z0-9-]{0,59}\.[a-z0-9]{2,5}")


class Stopped(LocalTarget):
    """A folder that is copied before and after each step, as a kill may leave it."""

    def __init__(self, folder: Path, stop: Callable[[], None]) -> None:
        super().__init__(folder)
        self._stop = stop

    def subfolder(self, name: str) -> "Stopped":
        return Stopped(super().subfolder(name).staging, self._stop)

    def size(self, name: str) -> int | None:
        self._stop()
        return super().size(name)

    def download(self, name: str) -> Path:
        self._stop()
        return super().download(name)

    def put(self, path: Path, name: str) -> None:
        self._stop()
        super().put(path, name)
        self._stop()


@in_part(2)
@pytest.mark.parametrize(
    ("form", "most"),
    [("warc", None), ("warc", 20_000), ("text", None), ("parquet", None), ("parquet", 20_000), ("payload", None)],
)
def test_continues_after_a_stop_at_any_step(records: list[Record], tmp_path: Path, form: str, most: int | None) -> None:
    chance, stops, folder, name, chosen = random.Random(form), count(), tmp_path / "out", FORMS[form], form_of(form)

    def stop() -> None:
        if form != "payload" or chance.random() < 0.1:
            copytree(folder, tmp_path / f"stopped-{next(stops)}", ignore=ignore_patterns(".payloads"))

    folder.mkdir()
    for upto in (25, 40):  # the second time finished files grow again
        with closing(Ledger(folder / f"{name}.ledger", {"form": form, "most": most}, publish=stop)) as ledger:
            place = Stopped(folder, stop)
            with closing(
                PayloadWriter(place, name, chosen, ledger)
                if form == "payload"
                else PartWriter(place, name, chosen, ledger, max_bytes=most)
            ) as parts:
                for record in (each for each in records[:upto] if not ledger.is_stored(each.capture)):
                    parts.add(record.capture, chosen.encode(record))
                    for step in (parts.sync, stop):
                        if chance.random() < 0.1:
                            step()
                parts.finish()
    assert next(stops) > 8
    for stopped in tmp_path.glob("stopped-*"):
        for file in stopped.rglob(".*.part"):
            with file.open("ab") as opened:
                opened.write(chance.randbytes(chance.choice([0, 1, 5000])))
        with (stopped / f"{name}.ledger").open("ab") as opened:
            opened.write(chance.choice([b"", b'{"fi', b"\xff"]))
        names = fill(stopped / name, form, records[:45], tmp_path / "cache", most)
        assert urls_in(stopped, form, names) == urls_of(records[:45]), stopped
        assert not list(stopped.rglob(".*")), stopped


def test_full_disk_loses_nothing_synced(asking: Command, tmp_path: Path, harvested: Catalogue, crawl: str) -> None:
    rows = harvested.captures("*.com", crawls=crawl, limit=80).to_arrow()
    output = tmp_path / "out.warc.gz"
    first = harvested.fetch(rows.slice(0, 30).to_pylist(), output)
    before = records_in(output)
    pq.write_table(rows, tmp_path / "rows.parquet")
    more = output.stat().st_size // 1024 + 10  # kilobytes of the largest file
    limited = f"ulimit -f {more}; exec '{sys.executable}' -B -m catalogue fetch --captures rows.parquet -o {output}"
    words, environment = ["bash", "-c", limited], asking.environment()
    ran = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (74, 1), ran.stderr
    assert f"{output}: File too large" in ran.stderr
    assert not output.exists()
    done = harvested.fetch(rows.to_pylist(), output)
    assert (done.records, done.failed) == (rows.num_rows, {})
    assert done.bytes <= sum(rows["warc_record_length"].to_pylist()) - first.bytes
    check(output)
    assert records_in(output)[:30] == before
    assert Counter(url for _, url, _ in records_in(output)) == Counter(rows["url"].to_pylist())


def test_refuses_two_processes(records: list[Record], tmp_path: Path) -> None:
    output, form = tmp_path / "a.warc.gz", form_of("warc")
    with open_output(output, form, {}, most=None, cache=tmp_path):
        for cache in (tmp_path, tmp_path / "of somebody else"):
            with (
                pytest.raises(StoreLocked, match="another process writes to"),
                open_output(output, form, {}, most=None, cache=cache),
            ):
                pass
        assert fill(tmp_path / "b.warc.gz", "warc", records, tmp_path) == ["b.warc.gz"]
    assert not list(tmp_path.rglob("*.lock"))


def test_continues_after_an_interrupt_at_any_line(records: list[Record], tmp_path: Path) -> None:
    """As by Ctrl-C, which Python raises between any two lines."""
    some = records[:3]
    for stop in count(1):
        left, cache = stop, tmp_path / "cache"

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename != writer_module.__file__ or frame.f_code.co_name not in {"add", "sync"}:
                return None
            left -= event == "line"
            if not left:
                raise KeyboardInterrupt
            return trace

        target, before = tmp_path / f"{stop}.jsonl", sys.gettrace()
        with suppress(KeyboardInterrupt):
            sys.settrace(trace)
            try:
                fill(target, "text", some, cache)
            finally:
                sys.settrace(before)
        names = fill(target, "text", some, cache)
        assert urls_in(tmp_path, "text", names) == urls_of(some), stop
        if left > 0:
            assert stop > 10
            return


@pytest.mark.parametrize("form", ["warc", "parquet"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_refuses_to_append_to_changed_files(
    records: list[Record], tmp_path: Path, away: str, form: str, *, elsewhere: bool
) -> None:
    output = f"{away if elsewhere else tmp_path}/{FORMS[form]}"
    files, root = fsspec.url_to_fs(away if elsewhere else str(tmp_path))
    (name,) = fill(output, form, records[:10], tmp_path / "cache")
    files.pipe_file(f"{root}/{name}", files.cat_file(f"{root}/{name}")[:-1])
    with pytest.raises(QueryError, match=r"bytes instead of the .* that were written; move it away"):
        fill(output, form, records[:20], tmp_path / "cache")
    files.rm_file(f"{root}/{name}")
    assert fill(output, form, records[:20], tmp_path / "cache") == [name]
    there = copied(away, tmp_path / "there") if elsewhere else tmp_path
    assert urls_in(there, form, [name]) == urls_of(records[:20])


def test_part_does_not_replace_other_files(records: list[Record], tmp_path: Path) -> None:
    other = tmp_path / "out-00001.warc.gz"
    other.write_bytes(b"precious")
    for _ in range(2):
        with pytest.raises(QueryError, match=r"out-00001\.warc\.gz was not written by this command"):
            fill(tmp_path / "out.warc.gz", "warc", records, tmp_path / "cache", 5_000)
    assert other.read_bytes() == b"precious"
    other.unlink()
    names = fill(tmp_path / "out.warc.gz", "warc", records, tmp_path / "cache", 5_000)
    assert urls_in(tmp_path, "warc", names) == urls_of(records)


@pytest.mark.parametrize(("name", "most"), [("{}.warc.gz", None), ("{}-00000.warc.gz", 1 << 20)])
def test_keeps_a_ledger_that_names_another_output(
    records: list[Record], tmp_path: Path, name: str, most: int | None
) -> None:
    files = [(tmp_path / name.format(stem), tmp_path / f"{stem}.warc.gz.ledger") for stem in ("a", "a-b")]
    fill(tmp_path / "a-b.warc.gz", "warc", records, tmp_path / "cache", most)
    for place in copy, move:  # first with the files of both names, then with those of one
        for source, target in zip(*reversed(files), strict=True):
            place(source, target)
        ledger = files[0][1].read_bytes()
        with pytest.raises(QueryError, match=rf"a\.warc\.gz\.ledger is of another output, {files[1][0].name}; choose"):
            fill(tmp_path / "a.warc.gz", "warc", records, tmp_path / "cache", most)
        assert files[0][1].read_bytes() == ledger


@pytest.mark.parametrize("elsewhere", [False, True])
def test_rewrites_deleted_payloads(records: list[Record], tmp_path: Path, away: str, *, elsewhere: bool) -> None:
    output = f"{away if elsewhere else tmp_path}/out"
    files, root = fsspec.url_to_fs(output)
    fill(output, "payload", records[:10], tmp_path / "cache")
    lost = [name for name in files.find(root) if not name.endswith("index.jsonl")][:3]
    for name in lost:
        files.rm_file(name)
    opened = open_output(output, form_of("payload"), {"form": "payload"}, most=None, cache=tmp_path / "cache")
    with suppress(ZeroDivisionError), opened as (parts, ledger):  # stop with an unfinished index
        assert ledger.num_stored == 7
        parts.add(records[10].capture, payload_line(records[10]))
        parts.sync()
        raise ZeroDivisionError
    names = fill(output, "payload", records[:12], tmp_path / "cache")
    there = copied(output, tmp_path / "there/out") if elsewhere else tmp_path / "out"
    assert urls_in(there.parent, "payload", names) == urls_of(records[:12])
    assert all(files.exists(name) for name in lost)


def test_payload_index_names_every_file(harvested: Catalogue, crawl: str, tmp_path: Path) -> None:
    found = list(harvested.records(harvested.captures("*.com", crawls=crawl, limit=40)))
    captures = [record.capture for record in found]
    done = harvested.fetch(captures, tmp_path / "pages", form="payload")
    assert done.files == ["pages/index.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "pages/index.jsonl").read_text().splitlines()]
    payloads = {(record.capture.filename, record.capture.offset): record for record in found}
    assert len(lines) == len(payloads)
    for line in lines:
        record = payloads[line["warc_filename"], line["warc_record_offset"]]
        assert NAME.fullmatch(line["file"])
        assert (tmp_path / "pages" / line["file"]).read_bytes() == record.payload
        assert (line["url"], line["status"], line["mime"]) == (record.url, record.status, record.mime)
        assert (line["digest"], line["time"]) == (record.capture.digest, to_json(record.time))
    there = {str(file.relative_to(tmp_path / "pages")) for file in (tmp_path / "pages").rglob("*") if file.is_file()}
    assert there == {line["file"] for line in lines} | {"index.jsonl"}
    again = harvested.fetch(lines, tmp_path / "again.warc.gz")  # the index is a list of captures
    assert (again.records, again.unusable) == (len(lines), [])


@given(st.one_of(st.text(), st.from_regex(r"https?://(con|nul|\[|..|aux\.)(/.*)?", fullmatch=True)), st.text())
def test_payload_names_are_safe(url: str, kind: str) -> None:
    record = replace(record_of(b"x"), headers=(("WARC-Target-URI", url),), http_headers=(("Content-Type", kind),))
    name = json.loads(payload_line(record).partition(b"\n")[0])["file"]
    assert NAME.fullmatch(name)


def test_payload_names_show_the_content() -> None:
    def name(url: str, kind: str) -> str:
        record = replace(record_of(b"a\nb", kind), headers=(("WARC-Target-URI", url),))
        line, _, payload = payload_line(record).partition(b"\n")
        assert payload == b"a\nb"
        return str(json.loads(line)["file"]).split("-", 1)[1]

    assert name("https://Example.com/A/b.PDF?c=d", "Application/PDF; x=y") == "example-com-a-b-pdf.pdf"
    assert name("https://example.com/", "text/html; charset=utf-8") == "example-com.html"
    assert name("https://example.com/x.exe", "application/x-msdownload") == "example-com-x-exe.bin"
    assert name("https://example.com/" + "a" * 500, "") == f"example-com-{'a' * 48}.txt"
    assert name("https://例え/", "image/png") == "page.png"


def test_tables_have_the_content_of_pages(harvested: Catalogue, crawl: str, tmp_path: Path) -> None:
    captures = harvested.captures("*.com", crawls=crawl, limit=12)
    found = {(each.capture.filename, each.capture.offset): each for each in harvested.records(captures)}
    harvested.fetch(captures, tmp_path / "pages.parquet", form="parquet")
    table = pq.read_table(tmp_path / "pages.parquet")
    assert table.schema.equals(ROW)
    with Documents() as documents:
        for row in table.to_pylist():
            record = found[row["warc_filename"], row["warc_record_offset"]]
            assert (row["url"], row["time"], row["status"]) == (record.url, record.time, record.status)
            assert (row["mime"], row["failure"]) == (record.mime, None)
            assert [tuple(each.values()) for each in row["headers"]] == list(record.http_headers)
            inside = documents.extract(record)
            assert row["text"] == inside["text"]
            html = inside["parsed_as"] == "html"
            assert (row["title"] is not None, row["links"] is not None) == (html, html)
    assert len(table) == len(found)
    frame = harvested.fetch_to_pandas(captures)
    assert list(frame["url"]) == table["url"].to_pylist()
    assert str(frame.dtypes["time"]) == "datetime64[ms, UTC]"
    assert list(frame["text"].isna()) == [text is None for text in table["text"].to_pylist()]
    harvested.fetch(table.to_pylist(), tmp_path / "again.warc.gz")  # a table is a list of captures
    assert len(records_in(tmp_path / "again.warc.gz")) == len(found)


def test_dataframes_report_missing_records(harvested: Catalogue, crawl: str) -> None:
    row = harvested.captures("*.com", crawls=crawl, limit=1).to_arrow().to_pylist()[0]
    with pytest.warns(IncompleteAnswer, match="does not exist") as warned:
        frame = harvested.fetch_to_pandas([row, row | {"warc_filename": "crawl-data/none.warc.gz"}])
    assert [each.filename for each in warned] == [__file__]
    assert list(frame["url"]) == [row["url"]]
    assert list(harvested.fetch_to_pandas([]).columns) == ROW.names


def test_writes_rows_of_any_record() -> None:
    page = record_of(b"<p>x</p>")
    record = replace(page, http_headers=(*page.http_headers, ("X-Odd", "\ud800")))
    with Documents() as documents:
        row = json.loads(gzip.decompress(encode_row(row_of(record, documents.extract))))
        assert (row["text"], row["failure"]) == ("x", None)
        assert {"name": "X-Odd", "value": "?"} in row["headers"]


@pytest.mark.parametrize(
    ("output", "form", "most", "what"),
    [
        ("no/out.warc.gz", "warc", None, "there is no folder"),
        ("other.warc.gz", "warc", None, "was not written by this command"),
        ("other.warc.gz", "text", None, "ends in .jsonl"),
        ("other-00000.warc.gz", "warc", 5, None),
        ("full", "payload", None, "was not written by this command"),
        ("empty", "payload", None, None),
        ("..", "payload", None, "invalid name of an output"),
        ("full", "payload", 5, "payloads are a file each"),
        ("empty", "warc", None, "is a folder"),
        ("out.warc.gz", "warc", 0, "at least one byte"),
        ("s3://key:secret@bucket/out.warc.gz", "warc", None, "without credentials"),
        ("s3://bucket", "warc", None, "invalid output address"),
        ("simplecache::s3://bucket/out.warc.gz", "warc", None, "invalid output address"),
        *((f"{url}/out.warc.gz", "warc", None, "cannot be written to") for url in NOT_WRITABLE),
        ("gs://bucket/out.warc.gz", "warc", None, "gs:// needs"),
    ],
)
def test_rejects_invalid_outputs(
    records: list[Record], tmp_path: Path, output: str, form: str, most: int | None, what: str | None
) -> None:
    for folder in ("full", "empty"):
        (tmp_path / folder).mkdir()
    for name in ("other.warc.gz", "other-00000.jsonl", "full/x"):
        (tmp_path / name).write_bytes(b"precious")
    where = output if "://" in output else tmp_path / output
    if what is None:
        fill(where, form, records[:3], tmp_path / "cache", most)
        return
    with pytest.raises(QueryError, match=what) as raised:
        fill(where, form, records[:3], tmp_path / "cache", most)
    assert "secret" not in str(raised.value)
    assert not list(tmp_path.glob("*.ledger"))
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.read_bytes() for file in files} == {b"precious"}
