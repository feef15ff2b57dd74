"""Records in every form and place: never half there, gone on with from wherever it was stopped."""

import gzip
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import copytree, ignore_patterns
from types import FrameType
from typing import Any

import boto3
import duckdb
import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

import catalogue
from catalogue import Catalogue
from catalogue.capture import Capture
from catalogue.document import Documents
from catalogue.errors import IncompleteAnswer, OutputFailed, QueryError, StoreLocked
from catalogue.metadata import ROW, row_of
from catalogue.outputs import Folder, Form, Here, Ledger, Lines, Parts, Payloads, Rows, Warc, open_output
from catalogue.outputs import parts as parts_module
from catalogue.record import Record, read_record
from catalogue.settings import Settings
from tests import canaries
from tests.commands import Command
from tests.test_document import record_of
from tests.test_fetching import check, records_in
from tests.test_record import digest, warc

FORMS = {"warc": "out.warc.gz", "text": "out.jsonl", "parquet": "out.parquet", "payload": "out"}
NAME = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{18}-[a-z0-9][a-z0-9-]{0,59}\.[a-z0-9]{2,5}")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Some of every kind."""
    found, offset = [], 0
    for number in range(60):
        body = f"<p>page {number}</p>".encode() * random.Random(number).choice([1, 50, 3000])
        url = f"https://example.com/Seite/{number}"
        member = gzip.compress(warc(body, WARC_Target_URI=url, WARC_Record_ID=f"<urn:x:{number}>"))
        meant = Capture("crawl-data/CC-MAIN-2022-33/x.warc.gz", offset, len(member), url, digest=digest(body))
        found.append(read_record(meant, member))
        offset += len(member)
    return found


def form_of(name: str) -> Form:
    def look(record: Record) -> dict[str, Any]:
        return {"text": record.payload.decode(), "content": None}

    if name == "text":
        return Lines(lambda record: {"url": record.url, **look(record)})
    forms: dict[str, Form] = {"warc": Warc({}), "payload": Payloads()}
    return forms.get(name) or Rows(lambda record: row_of(record, look), ROW)


def fill(output: str | Path, form: str, records: Iterable[Record], cache: Path, most: int | None = None) -> list[str]:
    """What a fetch does of it; returns the files' names."""
    chosen = form_of(form)
    with open_output(output, chosen, {"form": form}, most=most, cache=cache) as (parts, ledger):
        for record in records:
            if not ledger.is_done(record.capture):
                parts.add(record.capture, chosen.add(record))
        return parts.finish()


def urls_in(folder: Path, form: str, names: Iterable[str]) -> Counter[str]:
    """What is in the files of an output, looked into as others do; each must be whole."""
    files = [folder / name for name in names]
    if form == "warc":
        return Counter(url for _, url, _ in records_in(*files))
    if form == "parquet":
        return Counter(url for file in files for url in pq.read_table(file, columns=["url"])["url"].to_pylist())
    lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    for line in lines:
        if form == "payload":
            assert (files[0].parent / line["file"]).stat().st_size == line["bytes"]
    return Counter(line["url"] for line in lines)


def urls_of(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.url for record in records)


# ---- going on ----


class Stopped(Here):
    """A folder that is copied before and after each step of what is done in it, at any of which a kill may come."""

    def __init__(self, folder: Path, stop: Callable[[], None]) -> None:
        super().__init__(folder)
        self._stop = stop

    def below(self, name: str) -> "Stopped":
        return Stopped(super().below(name).growing, self._stop)

    def size(self, name: str) -> int | None:
        self._stop()
        return super().size(name)

    def bring(self, name: str) -> Path:
        self._stop()
        return super().bring(name)

    def put(self, path: Path, name: str) -> None:
        self._stop()
        super().put(path, name)
        self._stop()


@pytest.mark.parametrize(
    ("form", "most"),
    [("warc", None), ("warc", 20_000), ("text", None), ("parquet", None), ("parquet", 20_000), ("payload", None)],
)
def test_stopped_at_any_step_it_goes_on(records: list[Record], tmp_path: Path, form: str, most: int | None) -> None:
    chance, stops, folder, name, chosen = random.Random(form), count(), tmp_path / "out", FORMS[form], form_of(form)

    def stop() -> None:
        if form != "payload" or chance.random() < 0.2:
            copytree(folder, tmp_path / f"stopped-{next(stops)}", ignore=ignore_patterns(".payloads"))

    folder.mkdir()
    for upto in (25, 40):  # the second time what was finished grows again
        with closing(Ledger(folder / f"{name}.ledger", {"form": form, "most": most}, publish=stop)) as ledger:
            place = Stopped(folder, stop)
            with closing(
                Folder(place, name, chosen, ledger)
                if isinstance(chosen, Payloads)
                else Parts(place, name, chosen, ledger, most=most)
            ) as parts:
                for record in (each for each in records[:upto] if not ledger.is_done(each.capture)):
                    parts.add(record.capture, chosen.add(record))
                    for step in (parts.make_safe, stop):
                        if chance.random() < 0.1:
                            step()
                parts.finish()
    assert next(stops) > 8
    for stopped in tmp_path.glob("stopped-*"):
        for file in stopped.rglob(".*.part"):
            with file.open("ab") as opened:
                opened.write(chance.randbytes(chance.choice([0, 1, 5000])))
        names = fill(stopped / name, form, records, tmp_path / "cache", most)
        assert urls_in(stopped, form, names) == urls_of(records), stopped
        assert not list(stopped.rglob(".*")), stopped


def test_a_full_disk_loses_nothing_that_was_safe(
    asking: Command, tmp_path: Path, harvested: Catalogue, crawl: str
) -> None:
    rows = harvested.captures("*.com", crawls=crawl, limit=80).to_arrow()
    output = tmp_path / "out.warc.gz"
    first = harvested.fetch(rows.slice(0, 30).to_pylist(), output)
    before = records_in(output)
    pq.write_table(rows, tmp_path / "rows.parquet")
    more = output.stat().st_size // 1024 + 10  # kilobytes that any file may have
    ran = subprocess.run(
        [
            "bash",
            "-c",
            f"ulimit -f {more}; exec '{sys.executable}' -m catalogue fetch --captures rows.parquet -o {output}",
        ],
        env=asking.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (74, 1), ran.stderr
    assert f"{output}: File too large" in ran.stderr
    assert not output.exists()
    done = harvested.fetch(rows.to_pylist(), output)
    assert (done.records, done.failed) == (rows.num_rows, {})
    assert done.bytes <= sum(rows["warc_record_length"].to_pylist()) - first.bytes
    check(output)
    assert records_in(output)[:30] == before
    assert Counter(url for _, url, _ in records_in(output)) == Counter(rows["url"].to_pylist())


def test_one_process_at_a_time(records: list[Record], tmp_path: Path) -> None:
    form = form_of("warc")
    with open_output(tmp_path / "a.warc.gz", form, {}, most=None, cache=tmp_path):
        with (
            pytest.raises(StoreLocked, match="another process writes to"),
            open_output(tmp_path / "a.warc.gz", form, {}, most=None, cache=tmp_path),
        ):
            pass
        with (
            pytest.raises(StoreLocked, match="another process writes to"),
            open_output(tmp_path / "a.warc.gz", form, {}, most=None, cache=tmp_path / "of somebody else"),
        ):
            pass
        assert fill(tmp_path / "b.warc.gz", "warc", records, tmp_path) == ["b.warc.gz"]
    assert not list(tmp_path.rglob("*.lock"))


def test_interrupted_at_any_line_it_goes_on(records: list[Record], tmp_path: Path) -> None:
    """As by Ctrl-C, of which Python tells between any two."""
    some = records[:3]
    for stop in count(1):
        left, cache = stop, tmp_path / "cache"

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename != parts_module.__file__ or frame.f_code.co_name not in {"add", "make_safe"}:
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
def test_what_was_changed_is_not_added_to(
    records: list[Record], tmp_path: Path, away: str, form: str, *, elsewhere: bool
) -> None:
    output = f"{away if elsewhere else tmp_path}/{FORMS[form]}"
    files, root = fsspec.url_to_fs(away if elsewhere else str(tmp_path))
    (name,) = fill(output, form, records[:10], tmp_path / "cache")
    files.pipe_file(f"{root}/{name}", files.cat_file(f"{root}/{name}")[:-1])
    with pytest.raises(QueryError, match=r"bytes and not the .* that were written; move it away"):
        fill(output, form, records[:20], tmp_path / "cache")
    files.rm_file(f"{root}/{name}")
    assert fill(output, form, records[:20], tmp_path / "cache") == [name]
    there = copied(away, tmp_path / "there") if elsewhere else tmp_path
    assert urls_in(there, form, [name]) == urls_of(records[:20])


def test_a_part_does_not_take_the_place_of_another_file(records: list[Record], tmp_path: Path) -> None:
    (tmp_path / "out-00001.warc.gz").write_bytes(b"precious")
    for _ in range(2):
        with pytest.raises(QueryError, match=r"out-00001\.warc\.gz holds something else"):
            fill(tmp_path / "out.warc.gz", "warc", records, tmp_path / "cache", 5_000)
    assert (tmp_path / "out-00001.warc.gz").read_bytes() == b"precious"
    (tmp_path / "out-00001.warc.gz").unlink()
    names = fill(tmp_path / "out.warc.gz", "warc", records, tmp_path / "cache", 5_000)
    assert urls_in(tmp_path, "warc", names) == urls_of(records)


# ---- payloads ----


@pytest.mark.parametrize("elsewhere", [False, True])
def test_payloads_that_are_gone_come_back(records: list[Record], tmp_path: Path, away: str, *, elsewhere: bool) -> None:
    output = f"{away if elsewhere else tmp_path}/out"
    files, root = fsspec.url_to_fs(output)
    fill(output, "payload", records[:10], tmp_path / "cache")
    lost = [name for name in files.find(root) if not name.endswith("index.jsonl")][:3]
    for name in lost:
        files.rm_file(name)
    with (
        suppress(ZeroDivisionError),  # an index that grows is as good
        open_output(output, Payloads(), {"form": "payload"}, most=None, cache=tmp_path / "cache") as (parts, ledger),
    ):
        assert ledger.done == 7
        parts.add(records[10].capture, Payloads().add(records[10]))
        parts.make_safe()
        raise ZeroDivisionError
    names = fill(output, "payload", records[:12], tmp_path / "cache")
    there = copied(output, tmp_path / "there/out") if elsewhere else tmp_path / "out"
    assert urls_in(there.parent, "payload", names) == urls_of(records[:12])
    assert all(files.exists(name) for name in lost)


def test_payloads_are_files_and_their_index_leads_back(harvested: Catalogue, crawl: str, tmp_path: Path) -> None:
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
        assert line["digest"] == record.capture.digest
    there = {str(file.relative_to(tmp_path / "pages")) for file in (tmp_path / "pages").rglob("*") if file.is_file()}
    assert there == {line["file"] for line in lines} | {"index.jsonl"}
    again = harvested.fetch(lines, tmp_path / "again.warc.gz")  # the index is a list of captures
    assert (again.records, again.unusable) == (len(lines), [])


@given(st.one_of(st.text(), st.from_regex(r"https?://(con|nul|\[|..|aux\.)(/.*)?", fullmatch=True)), st.text())
def test_names_of_payloads_are_safe(url: str, kind: str) -> None:
    record = replace(record_of(b"x"), headers=(("WARC-Target-URI", url),), http_headers=(("Content-Type", kind),))
    name = json.loads(Payloads().add(record).partition(b"\n")[0])["file"]
    assert NAME.fullmatch(name)


def test_names_say_what_is_in_the_files() -> None:
    def name(url: str, kind: str) -> str:
        record = replace(record_of(b"a\nb", kind), headers=(("WARC-Target-URI", url),))
        line, _, payload = Payloads().add(record).partition(b"\n")
        assert payload == b"a\nb"
        return str(json.loads(line)["file"]).split("-", 1)[1]

    assert name("https://Example.com/A/b.PDF?c=d", "Application/PDF; x=y") == "example-com-a-b-pdf.pdf"
    assert name("https://example.com/", "text/html; charset=utf-8") == "example-com.html"
    assert name("https://example.com/x.exe", "application/x-msdownload") == "example-com-x-exe.bin"
    assert name("https://example.com/" + "a" * 500, "") == f"example-com-{'a' * 48}.bin"
    assert name("https://例え/", "image/png") == "page.png"


# ---- tables ----


def test_tables_hold_what_pages_say(harvested: Catalogue, crawl: str, tmp_path: Path) -> None:
    captures = harvested.captures("*.com", crawls=crawl, limit=30)
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
            inside = documents.look(record)
            assert row["text"] == inside["text"]
            html = inside["parsed_as"] == "html"
            assert (row["title"] is not None, row["links"] is not None) == (html, html)
    assert len(table) == len(found)
    frame = harvested.fetch_to_pandas(captures)
    assert list(frame["url"]) == table["url"].to_pylist()
    assert str(frame.dtypes["time"]) == "datetime64[ms, UTC]"
    assert list(frame["text"].isna()) == [text is None for text in table["text"].to_pylist()]
    kind = "[h.value for h in headers if lower(h.name) = 'content-type'][1]"
    with duckdb.connect() as connection:
        pages = connection.read_parquet(str(tmp_path / "pages.parquet"))
        told = pages.select(f"url, {kind}, epoch_ms(time)").fetchall()
    assert sorted(told) == sorted(
        (each.url, each.http_header("content-type"), each.time.timestamp() * 1000)
        for each in found.values()
        if each.time
    )
    harvested.fetch(table.to_pylist(), tmp_path / "again.warc.gz")  # a table is a list of captures
    assert len(records_in(tmp_path / "again.warc.gz")) == len(found)


def test_frames_say_what_they_lack(harvested: Catalogue, crawl: str) -> None:
    row = harvested.captures("*.com", crawls=crawl, limit=1).to_arrow().to_pylist()[0]
    with pytest.warns(IncompleteAnswer, match="does not exist"):
        frame = harvested.fetch_to_pandas([row, row | {"warc_filename": "crawl-data/none.warc.gz"}])
    assert list(frame["url"]) == [row["url"]]
    assert list(harvested.fetch_to_pandas([]).columns) == ROW.names


def test_rows_of_any_record() -> None:
    page = record_of(b"<p>x</p>")
    record = replace(page, http_headers=(*page.http_headers, ("X-Odd", "\ud800")))
    with Documents(children=1) as documents:
        row = json.loads(gzip.decompress(Rows(lambda record: row_of(record, documents.look), ROW).add(record)))
        assert (row["text"], row["failure"]) == ("x", None)
        assert {"name": "X-Odd", "value": "?"} in row["headers"]
        bomb = gzip.compress(bytes(300 << 20), 1)
        row = row_of(record_of(bomb, **{"Content-Encoding": "gzip"}), documents.look)
        assert row["text"] is None
        assert "inflates to more" in row["failure"]


# ---- what is in the way ----


@pytest.mark.parametrize(
    ("output", "form", "most", "what"),
    [
        ("no/out.warc.gz", "warc", None, "there is no folder"),
        ("other.warc.gz", "warc", None, "holds something else"),
        ("other.warc.gz", "text", None, "holds something else"),
        ("other-00000.warc.gz", "warc", 5, None),
        ("full", "payload", None, "holds something else"),
        ("empty", "payload", None, None),
        ("..", "payload", None, "is no name"),
        ("full", "payload", 5, "payloads are a file each"),
        ("empty", "warc", None, "is a folder"),
        ("out.warc.gz", "warc", 0, "one byte at least"),
        ("s3://key:secret@bucket/out.warc.gz", "warc", None, "without credentials"),
        ("s3://bucket", "warc", None, "an output's address"),
        ("simplecache::s3://bucket/out.warc.gz", "warc", None, "an output's address"),
        ("nosuch://bucket/out.warc.gz", "warc", None, "can be written to"),
        ("https://example.com/out.warc.gz", "warc", None, "can be written to"),
        ("gs://bucket/out.warc.gz", "warc", None, "takes another library"),
    ],
)
def test_what_no_output_can_be(
    records: list[Record], tmp_path: Path, output: str, form: str, most: int | None, what: str | None
) -> None:
    (tmp_path / "other.warc.gz").write_bytes(b"precious")
    (tmp_path / "other-00000.jsonl").write_bytes(b"precious")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_bytes(b"precious")
    (tmp_path / "empty").mkdir()
    where = output if "://" in output else tmp_path / output
    if what is None:
        fill(where, form, records[:3], tmp_path / "cache", most)
        return
    with pytest.raises(QueryError, match=what) as raised:
        fill(where, form, records[:3], tmp_path / "cache", most)
    assert "secret" not in str(raised.value)
    assert not list(tmp_path.glob("*.ledger"))
    assert {file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".lock"} == {
        b"precious"
    }


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["-o", "a.jsonl", "--format", "parquet"], "end in .parquet"),
        (["-o", "a.parquet", "--format", "payload"], "payloads go to a folder"),
        (["-o", "a", "--format", "payload", "--max-size", "1GB"], "leave out --max-size"),
        (["-o", "s3://bucket"], "an output's address"),
        (["-o", "folder.warc.gz"], "is a folder"),
        (["-o", "a.warc.gz", "--max-size", "0"], "a byte at least"),
    ],
)
def test_mistakes_of_the_command(asking: Command, tmp_path: Path, words: list[str], what: str) -> None:
    (tmp_path / "folder.warc.gz").mkdir()
    ran = asking("fetch", "*.com", *words)
    assert (ran.status, ran.err.count("\n")) == (2, 1), ran.err
    assert what in ran.err


# ---- elsewhere ----


class Flaky(MemoryFileSystem):  # type: ignore[misc] # it has no types
    """A store that fails as it is told to."""

    protocol = "flaky"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own way
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    fail: Callable[[str], bool] = staticmethod(lambda _: False)
    cut = False

    def put_file(self, lpath: str, rpath: str, **more: Any) -> None:
        if Flaky.fail(rpath):
            message = "secret"
            raise PermissionError(message)
        super().put_file(lpath, rpath, **more)
        if Flaky.cut:
            self.pipe_file(rpath, b"")


@pytest.fixture
def away() -> Iterator[str]:
    """Of a store that is not this machine's disk."""
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    Flaky.store.clear()
    Flaky.pseudo_dirs[:] = [""]
    Flaky.fail, Flaky.cut = staticmethod(lambda _: False), False
    yield "flaky://bucket/a prefix"
    Flaky.fail, Flaky.cut = staticmethod(lambda _: False), False


def copied(url: str, folder: Path) -> Path:
    """What is there."""
    files, root = fsspec.url_to_fs(url)
    for name in files.find(root):
        target = folder / str(name).removeprefix(f"{root}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files.cat_file(name))
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_elsewhere_it_is_the_same(records: list[Record], tmp_path: Path, away: str, form: str) -> None:
    output, most = f"{away}/{FORMS[form]}", None if form == "payload" else 20_000
    names = fill(output, form, records[:30], tmp_path / "cache", most)
    before = copied(away, tmp_path / "before")
    assert urls_in(before, form, names) == urls_of(records[:30])
    names = fill(output, form, records[:40], tmp_path / "cache", most)
    assert urls_in(copied(away, tmp_path / "same"), form, names) == urls_of(records[:40])
    names = fill(output, form, records, tmp_path / "another machine", most)
    after = copied(away, tmp_path / "after")
    assert urls_in(after, form, names) == urls_of(records)
    names = fill(output, form, records, tmp_path / "cache", most)  # which learns what the other has done
    assert urls_in(copied(away, tmp_path / "last"), form, names) == urls_of(records)
    assert {str(file.relative_to(after)) for file in after.rglob("*")} == {
        str(file.relative_to(tmp_path / "last")) for file in (tmp_path / "last").rglob("*")
    }
    assert [file.name for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.suffix != ".lock"] == [
        f"{FORMS[form]}.ledger"
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_store_that_fails_loses_nothing(records: list[Record], tmp_path: Path, away: str, form: str) -> None:
    chance = random.Random(form)
    most = None if form == "payload" else 20_000
    names: list[str] = []
    for attempt in range(20):
        share = 0.0 if attempt == 19 else 0.02 if form == "payload" else 0.3
        Flaky.fail = staticmethod(lambda _, share=share: chance.random() < share)
        with suppress(OutputFailed):
            names = fill(f"{away}/{FORMS[form]}", form, records, tmp_path / "cache", most)
        there = copied(away, tmp_path / f"{attempt}")
        if (index := there / "out/index.jsonl").exists():  # which never names what is not there
            urls_in(there, form, ["out/index.jsonl"])
        elif form != "payload":
            whole = [file.name for file in there.glob("out-*")]
            assert max(urls_in(there, form, whole).values(), default=1) == 1
        assert index.exists() or attempt < 19 or form != "payload"
    assert urls_in(tmp_path / "19", form, names) == urls_of(records)


def test_what_a_store_says_is_not_repeated(records: list[Record], tmp_path: Path, away: str) -> None:
    Flaky.fail = staticmethod(lambda _: True)
    with pytest.raises(OutputFailed, match=r"cannot be written or read \(PermissionError\)") as raised:
        fill(f"{away}/out.warc.gz", "warc", records, tmp_path)
    assert "secret" not in str(raised.value)
    Flaky.fail, Flaky.cut = staticmethod(lambda _: False), True
    with pytest.raises(OutputFailed, match="has not the size"):
        fill(f"{away}/out.warc.gz", "warc", records, tmp_path)
    Flaky.cut = False
    names = fill(f"{away}/out.warc.gz", "warc", [], tmp_path)  # nothing needs to be fetched again
    assert urls_in(copied(away, tmp_path / "there"), "warc", names) == urls_of(records)


def test_what_is_elsewhere_already_is_left_alone(records: list[Record], tmp_path: Path, away: str) -> None:
    files, root = fsspec.url_to_fs(away)
    files.pipe_file(f"{root}/out-00000.warc.gz", b"precious")
    with pytest.raises(QueryError, match=r"out-00000\.warc\.gz holds something else"):
        fill(f"{away}/out.warc.gz", "warc", records, tmp_path)
    fill(f"{away}/other.warc.gz", "warc", records, tmp_path)
    with pytest.raises(QueryError, match=r"other.warc.gz.ledger is of another output"):
        fill(f"{away}/other.warc.gz", "text", records, tmp_path)
    assert files.cat_file(f"{root}/out-00000.warc.gz") == b"precious"


def test_a_url_of_this_machine_is_a_folder(records: list[Record], tmp_path: Path) -> None:
    assert fill(f"file://{tmp_path}/out.warc.gz", "warc", records, tmp_path / "cache") == ["out.warc.gz"]
    check(tmp_path / "out.warc.gz")


# ---- S3 ----


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        **canaries.AWS,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with closing(boto3.client("s3", **canaries.OF_NOBODY)) as client:
        client.create_bucket(Bucket="mine")
    return environment


# Of the AWS SDK: it leaves sockets and loops of its own to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_bucket(
    harvested_data: Path,
    settings: Settings,
    asking: Command,
    aws: dict[str, str],
    crawl: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with catalogue.open(harvested_data, settings=Settings(source=settings.source, cache=tmp_path / "cache")) as cat:
        found = cat.captures("*.com", crawls=crawl, limit=15).to_arrow().to_pylist()
        for form, name in FORMS.items():
            done = cat.fetch(found, f"s3://mine/a prefix/{form}/{name}", form=form)
            assert (done.records, done.failed) == (15, {})
            there = tmp_path / form
            with closing(boto3.client("s3", **canaries.OF_NOBODY)) as client:
                for each in client.list_objects_v2(Bucket="mine", Prefix=f"a prefix/{form}/")["Contents"]:
                    target = there / each["Key"].removeprefix(f"a prefix/{form}/")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(client.get_object(Bucket="mine", Key=each["Key"])["Body"].read())
            assert urls_in(there, form, done.files) == Counter(row["url"] for row in found)
    again = Settings(source=settings.source, cache=tmp_path / "another machine")
    with catalogue.open(harvested_data, settings=again) as cat:
        done = cat.fetch(found, "s3://mine/a prefix/warc/out.warc.gz")
        assert (done.records, done.bytes, done.files) == (15, 0, ["out-00000.warc.gz"])
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(OutputFailed, match=r"\(NoCredentialsError\)"):  # and it is not tried without any
            cat.fetch(found, "s3://mine/out.warc.gz")
    ran = asking(
        *["fetch", "*.com", "--crawl", crawl, "--limit", "5", "-o", "s3://none-of-mine/out.warc.gz"],
        PYTHONWARNINGS="ignore",
        **aws,
    )
    assert (ran.status, ran.err.count("\n")) == (75, 1), ran.err
    assert "(NoSuchBucket)" in ran.err
