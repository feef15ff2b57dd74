"""What ``tests.slow.traffic`` does again and again: each step begins in an empty folder, and knows what must come."""

import json
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copytree
from typing import Protocol, TypeAlias
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
from warcio import ArchiveIterator

from catalogue import Catalogue
from catalogue.commoncrawl.capture import Capture
from catalogue.server.service import Service
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from tests.read.test_answers import in_order
from tests.slow.traffic_truth import Archived, Asked, Truth
from tests.support.clocks import FakeClock
from tests.support.faults import Fault, FaultServer, Request, Script
from tests.support.serving import get, running

Footers: TypeAlias = Mapping[str, tuple[bytes, int, str]]
"""By path: footer, the file's size, and its ETag."""

SNAPSHOT, OLD_INDEX = "snapshot", "2012/prefixes"
"""Where these are at the source."""
_RATE = 5.0
"""Requests a second, Common Crawl's own, on a clock on which nobody waits."""
_PATIENCE = 3600.0
"""Seconds, of a clock on which nobody waits."""
_FIELDS = {"urlkey": "url_surtkey", "url": "url", "filename": "warc_filename", "offset": "warc_record_offset"}


class Switch:
    """A script in whose place another can be put."""

    def __init__(self) -> None:
        self.script: Script | None = None

    def __call__(self, request: Request) -> Fault | None:
        return self.script(request) if self.script else None


@dataclass
class Place:
    """Where a step is done."""

    server: FaultServer
    """The source."""
    switch: Switch
    """Its script."""
    folder: Path
    """Empty."""
    held: Path
    """A data folder in which everything is harvested; to be copied."""
    connections: int = 4
    """One where there are probes: on a clock on which nobody waits a second thread would not wait for them."""
    clocks: list[FakeClock] = field(default_factory=list)
    """Of the sources that were opened."""

    @property
    def settings(self) -> Settings:
        """Requests cost nothing, so that nothing is read for want of a request."""
        return Settings(
            source=self.server.url,
            cache=self.folder / "cache",
            cache_size=0,
            bandwidth=1e6,
            latency=0.0,
            connections=self.connections,
        )

    @contextmanager
    def scripted(self, script: Script | None) -> Iterator[None]:
        """What goes wrong until the end of the block."""
        before, self.switch.script = self.switch.script, script
        try:
            yield
        finally:
            self.switch.script = before

    def clock(self) -> FakeClock:
        self.clocks.append(FakeClock())
        return self.clocks[-1]

    def open(self, data: Path | None = None, *, rate: float | None = None) -> Catalogue:
        """With a rate requests cost something, and more is read at once."""
        return Catalogue(Session(data or self.folder / "data", replace(self.settings, rate=rate), clock=self.clock))

    def copy(self) -> Path:
        return Path(copytree(self.held, self.folder / "data"))

    @contextmanager
    def serving(self) -> Iterator[str]:
        kept = replace(self.settings, cache_size=1 << 30)
        service = Service(self.copy(), kept, at_once=min(2, self.connections), patience=_PATIENCE, clock=self.clock)
        with closing(service), running(service) as address:
            yield address


class Step(Protocol):
    """Something to be done, anywhere; raises AssertionError if what comes of it is not what must."""

    def __call__(self, at: Place) -> None: ...


@dataclass(frozen=True)
class Harvests:
    """The footers of a crawl, or of all, are taken."""

    crawl: str
    footers: Footers = field(repr=False)

    def __call__(self, at: Place) -> None:
        with at.open() as cat:
            for outcome in cat.harvest(self.crawl, subsets="all"):
                assert not outcome.failures, outcome.failures
        _check_store(at.folder / "data", self.footers)


def _check_store(data: Path, footers: Footers) -> None:
    """That these are held, and nothing else."""
    with Store(data / "footers.sqlite") as store:
        there = {path: value for path in store.keys("files") if (value := store.get("files", path))}
        assert not store.keys("failures")
    assert {path: (value.data, value.size) for path, value in there.items()} == {
        path: (data, size) for path, (data, size, _) in footers.items()
    }
    # Which is what the answer said, that may have been without one, or with a weak one.
    assert all(there[path].etag in {etag, f"W/{etag}", None} for path, (_, _, etag) in footers.items())


@dataclass(frozen=True)
class Pulls:
    """A crawl is taken over from a snapshot, which is read whole."""

    crawl: str
    footers: Footers = field(repr=False)

    def __call__(self, at: Place) -> None:
        with at.open() as cat:
            pulled = cat.pull(f"{at.server.url}{SNAPSHOT}", crawls=self.crawl)
            assert (pulled.crawls, pulled.missing) == ((self.crawl,), ())
        _check_store(at.folder / "data", self.footers)


@dataclass(frozen=True)
class Asks:
    """Questions, one after the other, each of which teaches the next."""

    questions: list[Asked]

    def __call__(self, at: Place) -> None:
        with at.open(at.copy()) as cat:
            for asked in self.questions:
                asked.check(cat)


@dataclass(frozen=True)
class Backfills:
    """What a crawl's footers lack is found, and questions are asked that need it."""

    crawl: str
    files: Mapping[str, Path] = field(repr=False)
    questions: list[Asked] = field(repr=False)

    def __call__(self, at: Place) -> None:
        with at.open(at.copy(), rate=_RATE) as cat:
            done = cat.backfill(self.crawl).run()
            assert not done.failures, done.failures
            assert not cat.backfill(self.crawl).gaps
            bounds = [
                (path, *each)
                for path, *each in cat.sql(
                    "SELECT path, row_group, min_url_surtkey, max_url_surtkey, key_intervals FROM row_groups"
                ).fetchall()
                if path in self.files
            ]
            assert {path for path, *_ in bounds} == self.files.keys()
            keys = {path: pq.ParquetFile(file) for path, file in self.files.items()}
            for path, group, least, greatest, intervals in bounds:
                column = keys[path].read_row_group(group, ["url_surtkey"]).column(0)
                spans = [(each["min"], each["max"]) for each in intervals or [{"min": least, "max": greatest}]]
                there = pa.compute.unique(column).to_pylist()
                assert all(any(low <= key <= high for low, high in spans) for key in there), (path, group)
            for asked in self.questions:
                asked.check(cat)


@dataclass(frozen=True)
class Samples:
    """A sample is drawn."""

    crawl: str
    size: int
    seed: int
    right: pa.Table = field(repr=False)
    """The same drawn from the files where they are."""

    def __call__(self, at: Place) -> None:
        with at.open(at.copy(), rate=_RATE) as cat:
            assert draw(cat, self.crawl, self.size, self.seed).equals(self.right)


def draw(cat: Catalogue, crawl: str, size: int, seed: int) -> pa.Table:
    """A sample, in order."""
    drawn = cat.sample(cat.captures("*", crawls=crawl), size, seed=seed)
    return in_order(drawn.to_arrow(), ["url", "warc_filename", "warc_record_offset"])


@dataclass(frozen=True)
class Finds:
    """The URL index of 2012 is asked."""

    right: Mapping[str, list[Capture]] = field(repr=False)
    """By pattern."""

    def __call__(self, at: Place) -> None:
        with at.open() as cat:
            index = cat.old_index(OLD_INDEX)
            for pattern, right in self.right.items():
                assert list(index.captures(index.find(pattern))) == right, pattern


@dataclass(frozen=True)
class Records:
    """Records are read one by one."""

    archived: list[Archived] = field(repr=False)

    def __call__(self, at: Place) -> None:
        with at.open() as cat:
            records = cat.records([each.row for each in self.archived])
            found = {(each.capture.filename, each.capture.offset): each for each in records}
        assert found.keys() == {each.place for each in self.archived}
        for each in self.archived:
            record = found[each.place]
            assert (record.member, record.header("WARC-Record-ID")) == (each.member, each.ident)
            assert (record.url, record.body) == (each.url, each.content)


@dataclass(frozen=True)
class Fetches:
    """Records are fetched into an output."""

    form: str
    archived: list[Archived] = field(repr=False)

    @property
    def rows(self) -> list[dict[str, object]]:
        return [each.row for each in self.archived]

    def __call__(self, at: Place) -> None:
        with at.open() as cat:
            done = cat.fetch(self.rows, self.output(at), form=self.form)
        assert not done.failed, done.failed
        assert not done.unusable
        self.check(at, self.archived)

    def output(self, at: Place) -> Path:
        return at.folder / {"warc": "out.warc.gz", "payload": "out"}[self.form]

    def check(self, at: Place, archived: list[Archived]) -> None:
        """That these are in the output, and nothing else."""
        output = self.output(at)
        if self.form == "payload":
            lines = [json.loads(line) for line in (output / "index.jsonl").read_text().splitlines()]
            found = {(each["warc_filename"], each["warc_record_offset"]): (output / each["file"]) for each in lines}
            assert len(found) == len(lines)
            assert {place: file.read_bytes() for place, file in found.items()} == {
                each.place: each.payload for each in archived
            }
            return
        with output.open("rb") as file:
            records = [
                (each.rec_headers.get_header("WARC-Record-ID"), each.raw_stream.read())
                for each in ArchiveIterator(file)
                if each.rec_type != "warcinfo"
            ]
        assert sorted(records) == sorted((each.ident, each.content) for each in archived)


@dataclass(frozen=True)
class Serves:
    """A server is asked by several clients at once."""

    crawl: str
    questions: list[Asked]

    def __call__(self, at: Place) -> None:
        with at.serving() as address, ThreadPoolExecutor(3) as clients:
            for _ in clients.map(lambda asked: self.ask(address, asked), self.questions):
                pass

    def target(self, asked: Asked) -> str:
        about = {"url": asked.texts[0], "output": "json", "fl": ",".join(_FIELDS)}
        return f"/{self.crawl}-index?{urlencode(about)}"

    def ask(self, address: str, asked: Asked) -> None:
        """Go through all pages of an answer."""
        target = self.target(asked)
        pages = get(address, f"{target}&showNumPages=true")
        assert pages.status == 200, pages
        lines = []
        for page in range(pages.json["pages"]):
            answer = get(address, f"{target}&page={page}")
            assert answer.status == 200 or (answer.status, asked.right.num_rows) == (404, 0), answer
            lines += [json.loads(line) for line in answer.text.splitlines()] if answer.status == 200 else []
        columns = [asked.right.column(name).cast(pa.string()).to_pylist() for name in _FIELDS.values()]
        assert sorted(tuple(line[name] for name in _FIELDS) for line in lines) == sorted(zip(*columns, strict=True))


def pool(truth: Truth, held: Path, chance: random.Random, folder: Path) -> list[Step]:
    """Steps of every kind but harvests.

    Args:
        truth: what must come of them.
        held: see ``Place``.
        chance: chooses; of another state it chooses others.
        folder: empty, to work in.
    """
    filled, drawn, served, pulled = (chance.choice(truth.crawls) for _ in range(4))
    size, seed = chance.randrange(5, 40), chance.randrange(1 << 30)
    folder.mkdir()
    with Catalogue(Session(held, Settings(source=str(truth.mirror), cache=folder / "cache"))) as cat:
        cat.export_snapshot(folder / SNAPSHOT)
    plain = Settings(source=str(truth.mirror), cache=folder / "cache")
    with Catalogue(Session(Path(copytree(held, folder / "data")), plain)) as cat:
        drawing = Samples(drawn, size, seed, draw(cat, drawn, size, seed))
    archived = truth.archived(600, chance)
    return [
        Asks(truth.questions(5, chance)),
        Records(archived),
        Fetches("warc", archived),
        Fetches("payload", archived[:40]),
        Backfills(filled, truth.files(filled), truth.urls(filled, 2, chance)),
        drawing,
        Pulls(pulled, truth.footers(pulled)),
        Finds(truth.old_captures(10, chance)),
        Serves(served, truth.urls(served, 4, chance)),
    ]
