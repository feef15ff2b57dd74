"""The commands that write, what each finds before, and what is to be there afterwards.

A miniature is asked over the loopback interface, so that pages are kept and the rate is noted in a file, too.
"""

import gzip
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow.parquet as pq

from catalogue.demo import LoopbackServer, write_miniature
from catalogue.harvest.snapshot import MANIFEST, unpack_snapshot
from catalogue.parquet.pages import Indexes
from catalogue.store.stored_file import decode
from tests.slow import disk
from tests.slow.disk import Disk, Entry, Fault
from tests.slow.replay import Image, taken
from tests.support.commands import Command, Ran

OLD, MODERN, NEWEST = "CC-MAIN-2018-05", "CC-MAIN-2022-05", "CC-MAIN-2026-30"
STORE, CATALOGUE = "data/footers.sqlite", "data/catalogue.duckdb"
_TABLES = ("files", "documents", "failures", "indexes", "facts")
_VIEWS = ("files", "row_groups", "pages", "crawls")
_TIMES = ("harvested_at",)
_REMEMBERED = 300
"""Looks at files, most of which many images have in common."""

_Seen = TypeVar("_Seen", bound=dict[Any, Any])
Items = Mapping[str, object]
Look = Callable[[Path], Items]


@dataclass(frozen=True)
class Writer:
    """A command that writes."""

    name: str
    before: str
    """The state in which it finds the folder."""
    words: tuple[str, ...]
    look: Look | None = None
    """What of its output has its own name, by name, in a form that is the same for the same output; None if there is
    no output but the store and the catalogue."""
    grows: bool = False
    """Whether what was there has another name while it goes on."""
    once: bool = False
    """Whether to do it again is refused."""

    def items(self, folder: Path) -> Items:
        """See ``look``."""
        return self.look(folder) if self.look else {}


def _file(name: str, form: Callable[[bytes], object] = lambda data: data) -> Look:
    def look(folder: Path) -> Items:
        path = folder / name
        return {name: form(path.read_bytes())} if path.exists() else {}

    return look


def _members(data: bytes) -> object:
    """The records of a WARC file, but for the first, which has a name made up and the time."""
    found, rest = [], data
    while rest:
        inflating = gzip.zlib.decompressobj(31)  # type: ignore[attr-defined]
        found.append(inflating.decompress(rest))
        assert inflating.eof, "the last member is cut off"
        rest = inflating.unused_data
    return sorted(found[1:])


def _lines(data: bytes) -> object:
    assert data.endswith(b"\n")
    return sorted(data.splitlines())


def _rows(data: bytes) -> object:
    return sorted(map(repr, pq.read_table(BytesIO(data)).to_pylist()))


def _payloads(folder: Path) -> Items:
    files = {str(path.relative_to(folder)): path for path in (folder / "found").glob("[!.]*/*")}
    index = _file("found/index.jsonl", _lines)(folder)
    return {**index, **{name: path.read_bytes() for name, path in files.items()}}


def _parts(folder: Path) -> Items:
    """An answer in a folder; what is noted of it tells of nothing that is not there."""
    files = {f"parts/{path.name}": path.read_bytes() for path in (folder / "parts").glob("CC-*")}
    noted = folder / "parts/answer.json"
    if noted.exists():
        for part in json.loads(noted.read_bytes())["parts"].values():
            assert len(files[f"parts/{part['file']}"]) == part["size"], part
    return files


def _lake(folder: Path) -> Items:
    path = folder / "data/captures.ducklake"
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as lake:
        assert lake.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        query = "SELECT path, record_count, file_size_bytes FROM ducklake_data_file WHERE end_snapshot IS NULL"
        return {"lake": sorted(lake.execute(query).fetchall())}


def _iceberg(folder: Path) -> Items:
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - slow to import

    metadata = folder / "ice/metadata"
    versions = sorted(metadata.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))
    if not versions:
        return {}
    hint = metadata / "version-hint.text"
    assert not hint.exists() or (metadata / f"v{int(hint.read_text())}.metadata.json") in versions
    table = StaticTable.from_metadata(f"file://{versions[-1]}")
    return {"table": sorted((task.file.file_path, task.file.record_count) for task in table.scan().plan_files())}


def _snapshot(folder: Path) -> Items:
    place = folder / "snapshot"
    if not (place / MANIFEST).exists():
        return {}
    told = unpack_snapshot((place / MANIFEST).read_bytes())
    for piece in told.pieces:
        assert hashlib.sha256((place / piece.name).read_bytes()).hexdigest() == piece.sha256, piece.name
    # Tables have their names before the list names their digests; each is whole at any time.
    tables: Items = {table.name: _rows((place / table.name).read_bytes()) for table in told.tables}
    return {"snapshot": sorted((piece.crawl, piece.files) for piece in told.pieces), **tables}


_ROWS_OF_RECORDS = _file("f.parquet", _rows)
_SITE = ("*.com", "--crawl", MODERN)
_FETCH = ("fetch", *_SITE, "--limit", "25")
_BEGIN = ("fetch", *_SITE, "--limit", "10")

WRITERS = {
    writer.name: writer
    for writer in (
        Writer("harvest", "empty", ("harvest", "--crawl", f"{OLD}..{NEWEST}", "--yes")),
        Writer("harvest --pages", "old", ("harvest", "--crawl", NEWEST, "--rate", "900", "--pages")),
        Writer("backfill", "old", ("backfill",)),
        Writer("query", "both", ("query", *_SITE, "--rate", "900", "-o", "x.jsonl"), _file("x.jsonl")),
        Writer("query, csv", "both", ("query", "*.com", "-o", "x.csv"), _file("x.csv")),
        Writer("query, cdxj", "both", ("query", "*.com", "-o", "x.cdxj"), _file("x.cdxj")),
        Writer("query, parquet", "both", ("query", "*.com", "-o", "x.parquet"), _file("x.parquet")),
        Writer("query, arrow", "both", ("query", *_SITE, "-o", "x.arrow"), _file("x.arrow")),
        Writer("query, folder", "both", ("query", "*.com", "-o", "parts/"), _parts),
        Writer("sample", "both", ("sample", "-n", "20", "-o", "s.csv"), _file("s.csv")),
        Writer("plan", "both", ("plan", "*.com", "--indexes", "-o", "p.parquet"), _file("p.parquet")),
        Writer("fetch", "both", (*_FETCH, "-o", "f.warc.gz"), _file("f.warc.gz", _members)),
        Writer("fetch, text", "both", (*_FETCH, "--format", "text", "-o", "f.jsonl"), _file("f.jsonl", _lines)),
        Writer("fetch, parquet", "both", (*_FETCH, "--format", "parquet", "-o", "f.parquet"), _ROWS_OF_RECORDS),
        Writer("fetch, payload", "both", (*_FETCH, "--format", "payload", "-o", "found"), _payloads),
        Writer("fetch more", "fetched", (*_FETCH, "-o", "f.warc.gz"), _file("f.warc.gz", _members), grows=True),
        Writer("fetch more, parquet", "fetched", (*_FETCH, "--format", "parquet", "-o", "f.parquet"), _ROWS_OF_RECORDS),
        Writer("export ducklake", "exported", ("export", "ducklake"), _lake),
        Writer("export iceberg", "exported", ("export", "iceberg", "ice"), _iceberg),
        Writer("export snapshot", "exported", ("export", "snapshot", "snapshot"), _snapshot),
        Writer("pull", "old", ("pull", "{snapshot}")),
        Writer("forget", "both", ("forget", "--crawl", OLD, "--yes"), once=True),
        Writer("status", "lost", ("status",)),
        Writer("sql", "stale", ("sql", "select count(*) as files from files")),
    )
}


@dataclass(frozen=True)
class Right:
    """A run without faults."""

    ran: Ran
    entries: list[Entry]
    image: Image
    items: Items
    held: dict[tuple[str, str], object]
    shown: dict[str, list[str]]
    requests: int


def _values(path: Path) -> dict[tuple[str, str], object]:
    """See ``World.held``."""
    with closing(sqlite3.connect(path)) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = {name for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not tables:  # made and not filled
            return {}
        rows = [
            (table, key, value)
            for table in _TABLES
            for key, value in store.execute(f'SELECT key, value FROM "{table}"')  # noqa: S608 - one of these
        ]
    held: dict[tuple[str, str], object] = {}
    for table, key, value in rows:
        found = decode(value)
        if table == "indexes":
            Indexes.unpack(found.data)
        if table == "facts":  # which tell of that in two more places
            told = {name: fact for name, fact in json.loads(found.data).items() if name not in _TIMES}
            found = replace(found, data=json.dumps(told).encode(), note="")
        held[table, key] = replace(found, taken="")
    return held


def _rows_shown(path: Path) -> dict[str, list[str]]:
    """See ``World.shown``."""
    with duckdb.connect(path, read_only=True) as catalogue:
        return {
            view: sorted(
                json.dumps({name: value for name, value in row.items() if name not in _TIMES}, default=str)
                for row in catalogue.execute(f"SELECT * FROM {view}").to_arrow_table().to_pylist()  # noqa: S608
            )
            for view in _VIEWS
        }


class World:
    """A source, the states that commands find, and what they come to when nothing goes wrong."""

    def __init__(self, folder: Path, library: str, server: LoopbackServer) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.server = server
        self.disk = Disk(self.work, library, folder / "calls")
        self.command = Command(self.work / "data", server.url, self.work)
        self._beside = folder / "looked at"
        self._states: dict[str, Image] = {"empty": Image(frozenset(), {})}
        self._rights: dict[str, Right] = {}
        self._known: dict[object, Any] = {}
        """What looks at files found, by these."""

    def reset(self, image: Image) -> None:
        """Have the folder hold this."""
        image.write(self.work)

    def run(self, writer: Writer, fault: Fault | None = None) -> tuple[Ran, list[Entry]]:
        """Run a command in the folder as it is."""
        words = [word.format(snapshot=self.folder / "theirs") for word in writer.words]
        return self.disk.run(self.command, *words, fault=fault)

    def state(self, name: str) -> Image:
        """One that commands find."""
        if name not in self._states:
            self._make_states()
        return self._states[name]

    def _make_states(self) -> None:
        def do(*words: str) -> None:
            ran, _ = self.disk.run(self.command, *words)
            assert ran.status == 0, ran

        self.reset(self._states["empty"])
        do("harvest", "--crawl", OLD)
        old = self._states["old"] = taken(self.work)
        do("export", "ducklake")
        do("export", "iceberg", "ice")
        do("export", "snapshot", "snapshot")
        do("harvest", "--crawl", MODERN)
        shutil.copytree(self.work / "snapshot", self.folder / "theirs")
        exported = self._states["exported"] = taken(self.work)
        files = {name: data for name, data in exported.files.items() if name.startswith("data/footers")}
        files[CATALOGUE] = exported.files[CATALOGUE]
        both = self._states["both"] = Image(frozenset({"data"}), files)
        self._states["stale"] = replace(both, files=both.files | {CATALOGUE: old.files[CATALOGUE]})
        self._states["lost"] = replace(both, files={n: data for n, data in both.files.items() if n != CATALOGUE})
        do("export", "snapshot", str(self.folder / "theirs"))
        self.reset(both)
        do(*_BEGIN, "-o", "f.warc.gz")
        do(*_BEGIN, "--format", "parquet", "-o", "f.parquet")
        self._states["fetched"] = taken(self.work)

    def right(self, writer: Writer) -> Right:
        """What a command comes to without faults."""
        if writer.name not in self._rights:
            self.reset(self.state(writer.before))
            before = len(self.server.log)
            ran, entries = self.run(writer)
            assert ran.status == 0, (writer, ran)
            requests = len(self.server.log) - before
            self._rights[writer.name] = Right(
                ran, entries, taken(self.work), writer.items(self.work), self.held(), self.shown(), requests
            )
        return self._rights[writer.name]

    def held(self, image: Image | None = None) -> dict[tuple[str, str], object]:
        """All values of the store, but for when they were taken; it is looked at as a copy.

        Args:
            image: of the folder; None for the folder as it is.

        Raises:
            AssertionError: if it is damaged.
        """
        return self._seen(_values, (STORE, f"{STORE}-wal", f"{STORE}-journal"), image)

    def shown(self) -> dict[str, list[str]]:
        """What the catalogue shows, but for when it was taken."""
        return self._seen(_rows_shown, (CATALOGUE, f"{CATALOGUE}.wal"))

    def _seen(self, look: Callable[[Path], _Seen], names: Sequence[str], image: Image | None = None) -> _Seen:
        """What a look at copies of files finds, of which the first must be there; no other in the same bytes."""
        files = (
            image.files if image else {name: path.read_bytes() for name in names if (path := self.work / name).exists()}
        )
        key = look, *(hashlib.sha256(files[name]).digest() if name in files else b"" for name in names)
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            shutil.rmtree(self._beside, ignore_errors=True)
            self._beside.mkdir()
            for name in files.keys() & names:
                (self._beside / Path(name).name).write_bytes(files[name])
            self._known[key] = look(self._beside / Path(names[0]).name) if names[0] in files else {}
        found: _Seen = self._known[key]
        return found

    def check(self, writer: Writer, *, done: bool) -> None:
        """Hold what is in the folder against what may be: what was there before, or what is to be there.

        Args:
            writer: that was stopped, or not.
            done: whether it said that all is done.

        Raises:
            AssertionError: if something is damaged, or wrong, or lost.
        """
        right = self.right(writer)
        before = self._before(writer)
        items = writer.items(self.work)
        for name, value in items.items():
            assert value in (before.items.get(name), right.items.get(name)), f"{name} is wrong"
        if done:
            assert items == right.items, "the output is not all there"
        elif not writer.grows:
            lost = before.items.keys() - items.keys() if right.items.keys() >= before.items.keys() else ()
            assert not lost, f"{lost} was there before and is lost"
        held = self.held()
        for key, value in held.items():
            if key[0] != "indexes":  # of which more or less may be known
                assert value in (before.held.get(key), right.held.get(key)), f"{key} is wrong in the store"
        kept = {key for key, value in before.held.items() if right.held.get(key) == value}
        assert kept <= held.keys(), f"{sorted(kept - held.keys())[:3]} was in the store before and is lost"
        if done and not writer.look:
            assert held == right.held, f"done, and the store differs in {sorted(_different(held, right.held))[:5]}"
        self.shown()

    def _before(self, writer: Writer) -> Right:
        name = f"before {writer.name}"
        if name not in self._rights:
            image = taken(self.work)
            self.reset(self.state(writer.before))
            self._rights[name] = Right(
                Ran(0, "", ""), [], self.state(writer.before), writer.items(self.work), self.held(), self.shown(), 0
            )
            self.reset(image)
        return self._rights[name]

    def check_again(self, writer: Writer) -> None:
        """Run a command once more, without faults: everything is as if there never had been any.

        Raises:
            AssertionError: if it is not.
        """
        right = self._rights[writer.name]
        ran, _ = self.run(writer)
        refused = writer.once and ran.status == 2 and "not harvested" in ran.err
        assert ran.status == 0 or refused, f"run again it came to {ran}"
        if refused:  # and the catalogue is brought up to date by the next question
            self.run(WRITERS["status"])
        assert writer.items(self.work) == right.items, "run again it has another output"
        held, wanted = self.held(), right.held
        if writer.look:  # whoever has the answer already learns no more
            held, wanted = (
                {key: value for key, value in all_.items() if key[0] != "indexes"} for all_ in (held, wanted)
            )
        assert held == wanted, f"run again the store differs in {sorted(_different(held, wanted))[:5]}"
        views = ("files", "crawls") if writer.look else _VIEWS  # a question does not show at once what it learned
        shown = {view: rows for view, rows in self.shown().items() if view in views}
        expected = {view: rows for view, rows in right.shown.items() if view in views}
        assert shown == expected, f"run again the catalogue differs in {sorted(_different(shown, expected))}"


def _different(one: Mapping[Any, object], other: Mapping[Any, object]) -> set[Any]:
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """A world in an empty folder."""
    folder = folder.resolve()
    write_miniature(folder / "mirror", pages_per_crawl=1000)
    with LoopbackServer(folder / "mirror") as server:
        yield World(folder, disk.built(folder), server)
