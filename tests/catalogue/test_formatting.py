"""Numbers, sizes, values as JSON, similar names, and representations of objects: bounded, without requests."""

import json
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

import catalogue
from catalogue.check.check import Checked
from catalogue.check.compare_files import Finding
from catalogue.check.doctor import Diagnosis, Observation
from catalogue.commoncrawl.capture import Capture
from catalogue.errors import Unreachable
from catalogue.export.exports import Exported
from catalogue.formatting import (
    ReprMixin,
    clock,
    closest_name,
    duration,
    join_first,
    plural,
    printable,
    printable_lines,
    size,
    to_json,
)
from catalogue.harvest.backfill import Backfill
from catalogue.harvest.harvest import Harvested
from catalogue.harvest.snapshot import Pulled
from catalogue.output.fetch import Fetched, FetchEstimate
from catalogue.progress import Progress
from catalogue.records.record import Record
from catalogue.settings import STORE_NAME, Settings
from catalogue.source.checks import Response
from catalogue.store.database import Store
from tests.support.amounts import EXAMPLES
from tests.support.stores import raw


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        *zip(map(size, (0, 999, 1000, 2.5e6, 3e9)), ("0 B", "999 B", "1.0 kB", "2.5 MB", "3.0 GB"), strict=True),
        (size(4e15), "4000.0 TB"),
        *((plural(count, "file"), text) for count, text in ((1, "1 file"), (0, "0 files"), (90_000, "90,000 files"))),
        *zip(map(duration, (0.25, 30, 600, 36_000)), ("0.25 s", "30 s", "10 min", "10 h"), strict=True),
        (clock(datetime(999, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))), "0998-12-31 23:00:00"),
        (join_first("ab"), "a, b"),
        (printable_lines("a\tb\r\nc\u3000\xa0\x1b[2J\u202e"), "a\tb\nc\u3000\xa0\ufffd[2J\ufffd"),
        (join_first("abcde"), "a, b, c and 2 more"),
    ],
)
def test_formats_numbers_and_lists(shown: str, text: str) -> None:
    assert shown == text


def test_formats_values_as_json() -> None:
    noon = datetime(2022, 1, 2, 12, 0, 0, 250_000, timezone(timedelta(hours=2)))
    values = {
        1: [None, "é", True, 7, 0.5, float("nan"), float("inf")],
        "times": (noon, datetime(2022, 1, 2), datetime(2022, 1, 2, tzinfo=UTC)),  # noqa: DTZ001 - as old files have them
        "others": [Decimal(7), Decimal("0.5"), b"\x00\xff", np.int64(3), np.float32("nan"), noon.date()],
        "digits": Decimal("1.2345678901234567890"),
        "fine": noon.replace(microsecond=1),
    }
    assert json.loads(json.dumps(to_json(values), allow_nan=False)) == {
        "1": [None, "é", True, 7, 0.5, None, None],
        "times": ["2022-01-02T10:00:00.250Z", "2022-01-02T00:00:00Z", "2022-01-02T00:00:00Z"],
        "others": [7, 0.5, "00ff", 3, None, "2022-01-02"],
        "digits": "1.2345678901234567890",
        "fine": "2022-01-02T10:00:00.000001Z",
    }


def test_closest_name() -> None:
    assert closest_name("url", ["URLS"]) == "URLS"
    assert closest_name("charset", ["url", "content_charset"]) == "content_charset"
    assert closest_name("x", ["xyz"]) is None


TAGS = {"html", "head", "body", "div", "p", "b", "table", "tbody", "tr", "th", "td"}
HOSTILE = ["<script>alert(1)</script>", "\"><img src=x onerror='alert(1)'>", "&lt;b&gt;\x1b[2J\r\n\u202etxt", "\ud800<"]


class Shown(ReprMixin):
    def __init__(self, line: str, rows: Iterable[tuple[str, str]], notes: Iterable[str]) -> None:
        self.all = line, list(rows), list(notes)

    def _line(self) -> str:
        return self.all[0]

    def _rows(self) -> Iterable[tuple[str, str]]:
        return self.all[1]

    def _notes(self) -> Iterable[str]:
        return self.all[2]


class Broken(ReprMixin):
    def _line(self) -> str:
        raise Unreachable(HOSTILE[0])

    def _rows(self) -> Iterable[tuple[str, str]]:
        yield "one", "1"
        raise ValueError(HOSTILE[1])


def texts(value: ReprMixin, *names: str) -> list[str]:
    """Return the texts of the elements with these names in the HTML of a value, which has only harmless ones."""
    tree = HTMLTree.parse(value._repr_html_())
    assert tree.body is not None
    every = tree.body.query_selector_all("*")
    assert {each.tag for each in every} <= TAGS
    assert all(set(each.attrs) <= {"style", "scope"} for each in every)
    assert not any("color" in (each.getattr("style") or "") for each in every)
    return [each.text or "" for each in every if each.tag in names]


strings = st.text(st.characters() | st.sampled_from("<>&\"'\x00\x1b\n\u202e"), max_size=30) | st.sampled_from(HOSTILE)


@examples(max_examples=2 * EXAMPLES)
@given(strings, st.lists(st.tuples(strings, strings), max_size=4), st.lists(strings, max_size=4))
def test_html_has_the_text_and_nothing_else(line: str, rows: list[tuple[str, str]], notes: list[str]) -> None:
    shown = Shown(line, rows, notes)
    assert texts(shown, "p") == [f"Shown {printable(line)}", *map(printable, notes)]
    assert texts(shown, "th", "td") == [printable(each) for row in rows for each in row]
    assert repr(shown) == f"<Shown {printable(line)}>"
    assert len(str(shown).split("\n")) == 1 + len(rows) + len(notes)


def test_shows_that_a_value_cannot_be_read() -> None:
    assert repr(Broken()) == f"<Broken that cannot be shown: {HOSTILE[0]}>"
    assert texts(Broken(), "p") == [f"Broken that cannot be shown: {HOSTILE[0]}", HOSTILE[1]]
    assert str(Broken()).splitlines()[1] == HOSTILE[1]


def test_long_text_is_cut() -> None:
    much = Shown("x" * 1000, ((str(number), "1") for number in range(100)), map(str, range(100)))
    first, *notes = texts(much, "p")
    assert len(first) < 600
    assert first.endswith("…")
    assert notes[-1] == "and 90 more"
    assert len(texts(much, "tr")) == 20


PATH = "cc-index/<b>.parquet"
OUTCOMES: dict[str, tuple[ReprMixin, str]] = {
    "harvested": (
        Harvested(Progress("CC-MAIN-2022-05", 7, 6, failed=1, requests=7, bytes=1000), set(), {PATH: "no <i>answer"}),
        f"failed: {PATH}: no <i>answer",
    ),
    "checked": (Checked([Finding("files", PATH, "is damaged")], {"files": 3}, 50), f"files: {PATH}: is damaged"),
    "source failed": (Checked(failure=Unreachable("no answer")), "no answer"),
    "repaired": (Checked([Finding("files", PATH, "x")], repaired=True, harvests=["harvest it"]), "run: harvest it"),
    "fetched": (Fetched(2, {(PATH, 5): "is <u>another"}, files=["a.warc.gz"]), "is <u>another"),
    "estimate": (FetchEstimate(9, 2, 300, 0.5, {f"<h{n}>.org": 1 for n in range(30)}), "<h9>.org"),
    "pulled": (Pulled("https://example.org/s/", ("CC-MAIN-2022-05",), missing=("lacks <b>",)), "lacks <b>"),
    "diagnosis": (
        Diagnosis(
            (Observation("machine", "x86"),), (Observation("server", "<i>nginx"),), 3, 50, Unreachable("no answer")
        ),
        "The source could not be examined to the end: no answer",
    ),
    "exported": (Exported("x.ducklake", ("CC-MAIN-2022-05",), 7, ("lacks <b>",)), "lacks <b>"),
}


@pytest.mark.parametrize(("outcome", "messages"), OUTCOMES.values(), ids=OUTCOMES)
def test_results_name_failures_on_one_line(outcome: ReprMixin, messages: str) -> None:
    assert any(messages in text for text in texts(outcome, "p", "th"))
    assert messages in str(outcome)
    assert re.fullmatch(rf"<{type(outcome).__name__} .{{10,150}}>", repr(outcome))


def test_record_shows_its_place_without_body() -> None:
    capture = Capture("crawl-data/x.warc.gz", 100, 50)
    headers = (("WARC-Target-URI", f"https://example.com/{HOSTILE[0]}"), ("WARC-Date", "2022-01-16T09:54:13Z"))
    record = Record(capture, b"m" * 50, "warc", "response", headers, "200 OK", (), b"", b"\x1f\x8bnot gzip" * 900)
    assert len(repr(record)) < 200
    assert len(repr(Response(record.body, 0, 900, None, None))) < 200
    assert f"of https://example.com/{HOSTILE[0]}" in texts(record, "p")[0]
    rows = dict(zip(texts(record, "th"), texts(record, "td"), strict=True))
    assert rows["time"] == "2022-01-16 09:54:13"
    assert rows["status"] == "200 OK"
    assert rows["bytes there"] == "100 to 149"
    assert "?" not in repr(replace(record, headers=()))


def test_showing_plan_and_captures_reads_nothing(harvested: catalogue.Catalogue) -> None:
    found = harvested.captures(["*.example.com", "*.org"], columns=["url"])
    before = harvested.requests
    shown = texts(found, "p", "th", "td")
    assert harvested.requests == before
    assert f"{found.plan.row_groups:,} of {found.plan.considered:,}" in shown
    assert any("to_pandas()" in text for text in shown)
    assert repr(found).startswith("<Captures of *.example.com, *.org: ")
    assert texts(found.plan, "td") == texts(found, "td")
    assert all(len(repr(part)) < 1000 for part in (*found.plan.crawls, *found.plan.files))
    assert ": unknown blocks of the CDX index, " in repr(harvested.captures("*.example.com", index="cdx"))
    found.count()
    read = harvested.requests
    assert texts(found, "td") == texts(found.plan, "td")
    assert harvested.requests == read > before


@pytest.fixture
def own(data: Path, settings: Settings) -> Iterator[catalogue.Catalogue]:
    """A catalogue whose folder the test may change."""
    with catalogue.open(data, settings=settings) as cat:
        yield cat


def forget(cat: catalogue.Catalogue, path: str) -> None:
    """Delete a stored file, as another process may do."""
    with closing(Store(cat.session.data / STORE_NAME)) as store:
        store.delete("files", [path])


def test_incomplete_captures_say_what_is_missing(own: catalogue.Catalogue) -> None:
    crawl = own.session.stored_crawls()[0]
    forget(own, next(path for path in own.files(crawl)["path"] if "subset=warc" in path))
    found = own.captures("*", crawls=crawl, index="columnar")
    assert any(text.startswith("The answer may be incomplete: ") for text in texts(found, "p"))


def test_showing_a_catalogue_lists_contents_and_writes_nothing(own: catalogue.Catalogue, tmp_path: Path) -> None:
    with catalogue.open(tmp_path / "new", settings=own.session.settings) as new:
        assert "Nothing is harvested yet; call harvest()." in texts(new, "p")
        assert not (tmp_path / "new").exists()
    rows = dict(zip(texts(own, "th"), texts(own, "td"), strict=True))
    assert list(rows) == [*own.session.stored_crawls(), "all"]
    files, title = own.files(), f"Catalogue in {tmp_path / 'data'}, of {own.session.settings.source}"
    assert rows["all"] == f"{len(files):,} files; {files['num_rows'].sum():,} captures"
    assert (texts(own, "p"), repr(own)) == ([title], f"<{title}>")
    forget(own, files["path"][0])
    before = own.path.read_bytes()
    assert texts(own, "p")[1:] == ["Recently harvested files are not in the database yet; the next query adds them."]
    assert own.path.read_bytes() == before
    own.session.updated_database()
    assert texts(own, "p")[1:] == []


def test_damaged_catalogue_can_be_shown(own: catalogue.Catalogue) -> None:
    own.path.write_bytes(b"<b>" * 5000)
    assert len(texts(own, "p")) == 2
    assert texts(own, "td") == []


def test_showing_a_catalogue_leaves_nothing_open(own: catalogue.Catalogue) -> None:
    data = own.session.data
    names = {path.name for path in data.iterdir()}
    assert len(texts(own, "p")) == 1
    assert {path.name for path in data.iterdir()} == names
    with raw(data / STORE_NAME) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert "is locked by another process" in texts(own, "p")[1]  # 30 seconds before the test would end
    found = own.captures("*")
    own.close()
    assert "open the catalogue again" in repr(found)
    assert "repair" not in repr(found)
    (data / STORE_NAME).write_bytes(b"")
    assert "Nothing is harvested yet" in texts(own, "p")[1]
    assert (data / STORE_NAME).stat().st_size == 0


def test_pending_objects_name_the_next_call(harvested: catalogue.Catalogue) -> None:
    filling = harvested.backfill()
    assert isinstance(filling, Backfill)
    assert f"of {plural(len(filling.gaps), 'file')}" in repr(filling)
    before = harvested.requests
    sample = harvested.sample(harvested.captures("*"), 3)
    assert f"drawn from {sample.rows:,} rows" in texts(sample, "p")[0]
    assert harvested.requests == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample.to_arrow()
    assert any("The last look found 3 captures" in text for text in texts(sample, "p"))
