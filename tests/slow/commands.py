"""Commands that write, on a disk that kills them, fails or loses power: nothing is lost, partial or wrong.

They read a miniature over HTTP, so that pages are cached and the rate limit is stored in a file, too.
"""

import errno
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from catalogue.demo import LoopbackServer, write_miniature
from tests.slow.disk import Call, Disk, DiskFault, Entry, Image, Replay, full
from tests.slow.outputs import VIEWS, Items, Look, files, iceberg, lake, shown, snapshot, stored
from tests.support.commands import Command, Ran

OLD, MODERN, NEWEST = "CC-MAIN-2018-05", "CC-MAIN-2022-05", "CC-MAIN-2026-30"
STORE, DATABASE = "data/footers.sqlite", "data/catalogue.duckdb"
_DISK_FAILED = 74
_CAUSES = (
    *("Input/output error", "disk I/O error", "No space left on device", "disk is full", "fsync failed"),
    *("unable to open database", "a readonly database", "error closing file"),
)


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    ``before`` names the folder's state at its start; ``look`` returns its complete outputs. An output that ``grows``
    has another name while the command runs; a command that works ``once`` is refused the second time.
    """

    name: str
    before: str
    words: tuple[str, ...]
    look: Look = lambda _: {}
    output: bool = True
    grows: bool = False
    once: bool = False


def _query(name: str, *words: str, before: str = "both", look: str = "", **more: Any) -> Writer:
    return Writer(f"{words[0]} {name}", before, (*words, "-o", name), files(look or name), **more)


_SITE = ("*.com", "--crawl", MODERN)
_FETCH = ("fetch", *_SITE, "--limit", "25")
_PARQUET = ("--format", "parquet")

WRITERS = {
    writer.name: writer
    for writer in (
        Writer("harvest", "empty", ("harvest", "--crawl", f"{OLD}..{NEWEST}", "--yes"), output=False),
        Writer("harvest blocks", "old", ("harvest", "--crawl", NEWEST, "--index", "cdx"), output=False),
        Writer("harvest pages", "old", ("harvest", "--crawl", NEWEST, "--rate", "900", "--pages"), output=False),
        Writer("backfill", "old", ("backfill",), output=False),
        Writer("pull", "old", ("pull", "{snapshot}"), output=False),
        Writer("forget", "both", ("forget", "--crawl", OLD, "--yes"), output=False, once=True),
        Writer("status", "lost", ("status",), output=False),
        Writer("check", "lost", ("check",), output=False),
        Writer("sql", "stale", ("sql", "select count(*) as files from files"), output=False),
        _query("x.jsonl", "query", *_SITE, "--rate", "900"),
        _query("x.parquet", "query", "*.com"),
        _query("parts/", "query", "*.com", look="parts/CC-*"),
        _query("f.warc.gz", *_FETCH),
        _query("f.parquet", *_FETCH, *_PARQUET),
        _query("found", *_FETCH, "--format", "payload", look="found/[!.]*/*"),
        replace(_query("f.warc.gz", *_FETCH, before="fetched", grows=True), name="fetch more"),
        Writer("export ducklake", "exported", ("export", "ducklake"), lake),
        Writer("export iceberg", "exported", ("export", "iceberg", "ice"), iceberg),
        Writer("export snapshot", "exported", ("export", "snapshot", "snapshot"), snapshot),
    )
}


@dataclass(frozen=True)
class Result:
    """What a command without faults did, or what was there before it."""

    items: Items
    stored: dict[Any, Any]
    shown: dict[Any, Any]
    image: Image
    entries: Sequence[Entry] = ()
    requests: int = 0


class World:
    """A source, the states in which commands find their folder, and the results of runs without faults."""

    def __init__(self, folder: Path, server: LoopbackServer) -> None:
        self.folder, self.work, self.server = folder, folder / "work", server
        self.disk = Disk.build(self.work, folder)
        self.command = Command(self.work / "data", server.url, self.work)
        self._states = {"empty": Image()}
        self._results: dict[str, Result] = {}
        self._known: dict[object, dict[Any, Any]] = {}

    def run(self, writer: Writer, fault: DiskFault | None = None) -> tuple[Ran, list[Entry]]:
        words = [word.format(snapshot=self.folder / "theirs") for word in writer.words]
        return self.disk.run(self.command, *words, fault=fault)

    def state(self, name: str) -> Image:
        if name not in self._states:
            self._make_states()
        return self._states[name]

    def _make_states(self) -> None:
        def do(*words: str) -> None:
            ran, _ = self.disk.run(self.command, *words)
            assert ran.status == 0, ran

        Image().write(self.work)
        do("harvest", "--crawl", OLD)
        old = self._states["old"] = Image.of(self.work)
        do("export", "ducklake")
        do("export", "iceberg", "ice")
        do("export", "snapshot", "snapshot")
        do("harvest", "--crawl", MODERN)
        shutil.copytree(self.work / "snapshot", self.folder / "theirs")
        exported = self._states["exported"] = Image.of(self.work)
        files = {n: data for n, data in exported.files.items() if n.startswith("data/footers") or n == DATABASE}
        both = self._states["both"] = Image(frozenset({"data"}), files)
        self._states["stale"] = replace(both, files=files | {DATABASE: old.files[DATABASE]})
        self._states["lost"] = replace(both, files={n: data for n, data in files.items() if n != DATABASE})
        do("export", "snapshot", str(self.folder / "theirs"))
        both.write(self.work)
        do("fetch", *_SITE, "--limit", "10", "-o", "f.warc.gz")
        self._states["fetched"] = Image.of(self.work)

    def result(self, writer: Writer) -> Result:
        if writer.name not in self._results:
            self.state(writer.before).write(self.work)
            requests = len(self.server.log)
            ran, entries = self.run(writer)
            assert ran.status == 0, (writer, ran)
            requests = len(self.server.log) - requests
            self._results[writer.name] = replace(self._current(writer), entries=entries, requests=requests)
        return self._results[writer.name]

    def _current(self, writer: Writer) -> Result:
        return Result(writer.look(self.work), self.stored(), self._database(), Image.of(self.work))

    def _before(self, writer: Writer) -> Result:
        name = f"before {writer.name}"
        if name not in self._results:
            image = Image.of(self.work)
            self.state(writer.before).write(self.work)
            self._results[name] = self._current(writer)
            image.write(self.work)
        return self._results[name]

    def stored(self, image: Image | None = None) -> dict[Any, Any]:
        """Return the values of the store in the folder or in an image; fail if it is damaged."""
        return self._copied(stored, (STORE, f"{STORE}-wal", f"{STORE}-journal"), image)

    def _database(self) -> dict[Any, Any]:
        return self._copied(shown, (DATABASE, f"{DATABASE}.wal"))

    def _copied(
        self, look: Callable[[Path], dict[Any, Any]], names: Sequence[str], image: Image | None = None
    ) -> dict[Any, Any]:
        """Look at copies of files, of which the first one matters; each content is looked at once."""
        there = {name: path.read_bytes() for name in names if (path := self.work / name).exists()}
        files = {name: image.files[name] for name in names if name in image.files} if image else there
        key = look, *(hashlib.sha256(files.get(name, b"")).digest() for name in names)
        if key not in self._known:
            copies = self.folder / "copies"
            shutil.rmtree(copies, ignore_errors=True)
            copies.mkdir()
            for name, data in files.items():
                (copies / Path(name).name).write_bytes(data)
            self._known[key] = look(copies / Path(names[0]).name) if names[0] in files else {}
        return self._known[key]

    def check(self, writer: Writer, *, done: bool) -> None:
        """Compare the folder with what was there before and what the command was to write."""
        right, before = self.result(writer), self._before(writer)
        items, stored = writer.look(self.work), self.stored()
        for name, value in items.items():
            assert value in (before.items.get(name), right.items.get(name)), f"{name} is wrong"
        if done:
            assert items == right.items, "the output is incomplete"
        elif not writer.grows and right.items.keys() >= before.items.keys():
            assert before.items.keys() <= items.keys(), "an output is lost"
        for key, value in stored.items():
            if key[0] != "indexes":  # any number of which may be stored
                assert value in (before.stored.get(key), right.stored.get(key)), f"{key} is wrong in the store"
        remaining = {key for key, value in before.stored.items() if right.stored.get(key) == value}
        assert remaining <= stored.keys(), f"{sorted(remaining - stored.keys())[:3]} is lost from the store"
        if done and not writer.output:
            assert stored == right.stored
        self._database()

    def check_again(self, writer: Writer) -> None:
        """Run the command once more without faults: the result is as if there had been none."""
        right = self.result(writer)
        ran, _ = self.run(writer)
        refused = writer.once and ran.status == 2 and "is stored; see" in ran.err
        assert ran.status == 0 or refused, f"run again: {ran}"
        if refused:
            self.run(WRITERS["status"])
        assert writer.look(self.work) == right.items, "run again it has another output"
        fetched = ("indexes",) if writer.output else ()  # a command whose output is complete fetches no page indexes
        stored, requested = ({k: v for k, v in s.items() if k[0] not in fetched} for s in (self.stored(), right.stored))
        assert stored == requested, "run again the store differs"
        shown = self._database()
        for view in ("files", "crawls") if writer.output else VIEWS:
            assert shown[view] == right.shown[view], f"run again {view} differs"
        there = {name for name in Image.of(self.work).files if name.endswith((".part", ".values", ".parquet"))}
        left = {name for name in there - right.image.files.keys() if "/pages/" not in name}  # which the cache evicts
        assert not left, f"run again {left} are left"


@contextmanager
def world(folder: Path) -> Iterator[World]:
    folder = folder.resolve()
    write_miniature(folder / "mirror", pages_per_crawl=1000)
    with LoopbackServer(folder / "mirror") as server:
        yield World(folder, server)


def _check_committed(made: World, writer: Writer, replay: Replay, left: Image, entries: Sequence[Entry]) -> None:
    """Compare an image with the last committed state of the store and with synced ledgers.

    A transaction is committed when the call that syncs its last page has returned; the next one may be there, too.
    """
    store = str(made.work / STORE)
    at = Replay(made.state(writer.before), made.work)
    committed = made.stored(made.state(writer.before))
    for entry in entries:
        at.take(entry)
        if entry.call is Call.SYNC and entry.path.startswith(store) and not entry.error:
            committed = made.stored(at.complete())
    there = made.stored(left)
    if writer.name == "forget":
        assert there.keys() <= made.stored(made.state(writer.before)).keys()
    else:
        later = made.result(writer).stored  # a value may have been replaced since
        lost = [key for key, value in committed.items() if there.get(key) not in (value, later.get(key, value))]
        assert not lost, f"{lost[:3]}: a committed transaction is lost"
    for name, lines in replay.synced(".ledger").items():
        if lines.count(b"\n") > 1:  # its first line only describes the output
            assert left.files.get(name, b"").startswith(lines), f"{name} lost a synced line"


def kill(made: World, writer: Writer, random: Random) -> bool:
    calls = max(entry.number for entry in made.result(writer).entries)
    before = made.state(writer.before)
    before.write(made.work)
    question = len(made.server.log)
    ran, entries = made.run(writer, DiskFault(random.choice(["before", "halfway"]), random.randint(1, calls)))
    if ran.status == 0:  # it made fewer calls this time
        made.check(writer, done=True)
        return False
    assert ran.status == -9, ran
    replay = Replay(before, made.work)
    for entry in entries:
        replay.take(entry)
    left = Image.of(made.work)
    assert left == replay.complete(), "a change was not recorded"
    _check_committed(made, writer, replay, left, entries)
    made.check(writer, done=False)
    made.check_again(writer)
    repeated = len(made.server.log) - question - made.result(writer).requests
    assert repeated <= made.result(writer).requests + 16, f"{repeated} requests were repeated"
    return True


def fail(made: World, writer: Writer, random: Random) -> bool:
    """Let a random call fail, or the disk be full from then on; return whether a call failed."""
    entries = [entry for entry in made.result(writer).entries if entry.number]
    at = random.choice([entry.number for entry in entries])
    space = [entry.number for entry in entries if entry.needs_space]
    fault = full(random.choice(space)) if random.random() < 0.5 else DiskFault("fail", at, errno.EIO)
    made.state(writer.before).write(made.work)
    ran, entries = made.run(writer, fault)
    assert ran.status in {0, _DISK_FAILED}, f"{fault}: {ran}"
    if ran.status:
        last = ran.err.splitlines()[-1]
        assert "Traceback" not in ran.err, ran
        assert last.startswith("catalogue: ")
        assert any(name in last for name in (str(made.work), *writer.words[-1:])), f"no path: {last}"
        assert any(cause in last for cause in _CAUSES), f"no cause: {last}"
        assert ("No space left" in last or "disk is full" in last) == ("free there" in last), last
    made.check(writer, done=ran.status == 0)
    made.check_again(writer)
    return any(entry.error for entry in entries)


def cut_power(made: World, writer: Writer, random: Random, *, again: bool = True) -> bool:
    """Cut the power at a random call of a run without faults; check what may be left, and run the command again."""
    right, before = made.result(writer), made.state(writer.before)
    cut = len(right.entries) if random.random() < 0.2 else random.randrange(len(right.entries))
    replay = Replay(before, made.work)
    for entry in right.entries[:cut]:
        replay.take(entry)
    left = replay.after_power_cut(random)
    _check_committed(made, writer, replay, left, right.entries[:cut])
    left.write(made.work)
    made.check(writer, done=cut == len(right.entries))
    if again and random.random() < 0.25:
        made.check_again(writer)
    return True


CHECKS = {"kills": kill, "failures": fail, "power cuts": cut_power}


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Kill, fail and cut the power ``count`` times in all; every tenth time is a kill or a failure."""
    random = Random(f"{seed} commands")
    done = dict.fromkeys(CHECKS, 0)
    with world(folder) as made:
        for number in range(count):
            name = random.choice(["kills", "failures"]) if number % 10 == 0 else "power cuts"
            writer = WRITERS[random.choice([*WRITERS])]
            try:
                done[name] += CHECKS[name](made, writer, random)
            except AssertionError as error:
                raise AssertionError(f"{name}, number {number} of seed {seed}, {writer.name!r}: {error}") from error
    return dict(done)
