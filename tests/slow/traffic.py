"""Everything that reads from a source, while three of ten answers are wrong.

Harvests, snapshots, queries, backfills, the URL index of 2012, records and outputs read from a server with faults of
every kind that a client can notice. Results are compared with what pyarrow and warcio read in the mirror's files. Each
step runs once without faults, which shows how many requests it needs.

Nothing may be lost, wrong or left over, nothing hangs, and requests are at most ``_MOST`` times those that are needed.
"""

import faulthandler
import gc
import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from itertools import count as counting
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from warcio import ArchiveIterator

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from catalogue.surt import parse_pattern
from tests.read.test_answers import CONDITIONS, IDENTITY, Scan, in_order, random_patterns
from tests.slow.mutations import mirror_of
from tests.support.clocks import FakeClock
from tests.support.faults import Fault, FaultServer, Request, Script, seeded
from tests.support.mirrors import crawl_of, index_paths, whole_table
from tests.support.prefix_indexes import index_bytes
from tests.support.sources import TEMPORARY
from tests.url_index_2012.test_url_index_2012 import HOSTS, PATHS, SCHEMES, items_of, scanned

_SHARE = 0.3
_MOST = 1.6
"""Requests for each that is needed: 1.42 if each fault costs one, since at most three follow each other."""
_MOST_MEMORY = 50 << 20
_DEADLINE = 120.0
"""Seconds for one step."""
_POOL = 20_000
"""Requests after which other steps are chosen."""
_RATE = 5.0
_OLD_INDEX, _SNAPSHOT = "2012/prefixes", "snapshot"
_OLD_URLS = [f"{scheme}://{host}{path}{end}" for scheme in SCHEMES for host in HOSTS for path in PATHS for end in "12?"]
_OLD_ITEMS = items_of(_OLD_URLS)

Step = Callable[[], None]


class _Steps:
    """Steps that a random generator chooses; each fails if its result is not that of the files."""

    def __init__(self, mirror: Path, server: FaultServer, folder: Path, records: int) -> None:
        self._mirror, self._server, self._records = mirror, server, records
        self.folder, self._everything = folder / "step", folder / "everything"
        self._rows = whole_table(mirror)
        self._scan = Scan(self._rows)
        self.crawls = sorted({crawl_of(path) for path in index_paths(mirror)})

    def close(self) -> None:
        self._scan.connection.close()

    def prepare(self) -> None:
        """Harvest everything, for the steps that need it, and export it as a snapshot."""
        with catalogue.open(self._everything, settings=Settings(source=str(self._mirror))) as cat:
            cat.harvest("all", subsets="all")
            cat.export_snapshot(self.folder.parent / _SNAPSHOT)

    def choose(self, random: Random) -> list[Step]:
        crawls = [random.choice(self.crawls) for _ in range(3)]
        archived = self._archived(self._records, random)
        patterns = [random.choice(_OLD_URLS), f"{random.choice(HOSTS)}{random.choice(PATHS)}*"]
        patterns += [f"*.{random.choice(HOSTS[:6])}"]
        queries = [self._query(random, "all"), *(self._query(random, random.choice(self.crawls)) for _ in range(3))]
        return [
            lambda: self._harvest(crawls[0]),
            lambda: self._harvest(crawls[1]),
            lambda: self._pull(crawls[2]),
            lambda: self._ask(queries),
            lambda: self._backfill(crawls[0]),
            lambda: self._ask_old_index(patterns),
            *[lambda: self._read_records(archived)] * 5,  # many requests at little cost
            *[lambda: self._fetch(archived)] * 3,
        ]

    # ---- opening ----

    @property
    def _settings(self) -> Settings:
        """Requests cost nothing, so that nothing is read only to save one."""
        cache = self.folder / "cache"
        return Settings(source=self._server.url, cache=cache, cache_size=0, bandwidth=1e6, latency=0.0)

    def _open(self, data: Path | None = None, rate: float | None = None) -> Catalogue:
        return Catalogue(Session(data or self.folder / "data", replace(self._settings, rate=rate), clock=FakeClock))

    def _copy(self, name: str = "data") -> Path:
        return Path(copytree(self._everything, self.folder / name))

    def _files(self, crawl: str) -> dict[str, Path]:
        return {str(p.relative_to(self._mirror)): p for p in index_paths(self._mirror) if crawl_of(p) == crawl}

    # ---- harvests ----

    def _harvest(self, crawl: str) -> None:
        with self._open() as cat:
            for outcome in cat.harvest(crawl, subsets="all"):
                assert not outcome.failures, outcome.failures
        self._check_store(crawl)

    def _pull(self, crawl: str) -> None:
        with self._open() as cat:
            pulled = cat.pull(f"{self._server.url}{_SNAPSHOT}", crawls=crawl)
            assert (pulled.crawls, pulled.missing) == ((crawl,), ())
        self._check_store(crawl)

    def _check_store(self, crawl: str) -> None:
        """Compare the stored footers with those of the files."""
        with Store(self.folder / "data/footers.sqlite") as store:
            there = {path: value for path in store.keys("files") if (value := store.get("files", path))}
            assert not store.keys("failures")
        files = {name: path.read_bytes() for name, path in self._files(crawl).items()}
        assert there.keys() == files.keys()
        for name, data in files.items():
            length = int.from_bytes(data[-8:-4], "little")
            etag = f'"{hashlib.blake2b(data, digest_size=16).hexdigest()}"'
            assert (there[name].data, there[name].size) == (data[-8 - length : -8], len(data))
            assert there[name].etag in {etag, f"W/{etag}", None}

    def _backfill(self, crawl: str) -> None:
        with self._open(self._copy(), _RATE) as cat:
            done = cat.backfill(crawl).run()
            assert not done.failures, done.failures
            assert not cat.backfill(crawl).gaps
            sql = "SELECT path, row_group, min_url_surtkey, max_url_surtkey FROM row_groups"
            groups = [row for row in cat.sql(sql).fetchall() if row[0] in self._files(crawl)]
        assert groups
        for path, group, least, greatest in groups:
            keys = pq.ParquetFile(self._mirror / path).read_row_group(group, ["url_surtkey"]).column(0)
            assert all(least <= key <= greatest for key in pc.unique(keys).to_pylist())

    # ---- queries ----

    def _query(self, random: Random, crawl: str) -> tuple[dict[str, Any], pa.Table]:
        """Return the arguments of a query, and its rows in order; with a limit, all rows that may come."""
        mine = self._rows if crawl == "all" else self._rows.filter(pc.equal(self._rows.column("crawl"), crawl))
        texts = [*random_patterns(mine, random.choice([1, 1, 11]), random.getrandbits(32))]
        where = None if random.random() < 0.6 else random.choice(CONDITIONS)
        columns = [*IDENTITY, *random.sample(sorted(set(SCHEMA.names) - set(IDENTITY)), random.choice([0, 2, 20]))]
        limit = None if random.random() < 0.8 else random.randrange(1, 50)
        condition = f"({crawl == 'all'} OR crawl = '{crawl}') AND ({where or 'true'})"
        right = self._scan([parse_pattern(text) for text in texts], condition)
        words = {"crawls": crawl, "subsets": "all", "columns": columns, "where": where, "limit": limit}
        requested = {"patterns": texts, **words}
        return requested, in_order(right, columns)

    def _ask(self, queries: list[tuple[dict[str, Any], pa.Table]]) -> None:
        with self._open(self._copy()) as cat:
            for requested, right in queries:
                found = cat.captures(**requested).to_arrow()
                if requested["limit"] is None:
                    assert in_order(found, right.schema.names).equals(right), requested
                    continue
                rows = [{*zip(*table.select(IDENTITY).to_pydict().values(), strict=True)} for table in (found, right)]
                assert found.num_rows == min(requested["limit"], right.num_rows), requested
                assert rows[0] <= rows[1], requested

    def _ask_old_index(self, patterns: list[str]) -> None:
        with self._open() as cat:
            index = cat.old_index(_OLD_INDEX)
            for pattern in patterns:
                assert list(index.captures(index.find(pattern))) == scanned(_OLD_ITEMS, pattern), pattern

    # ---- records ----

    def _archived(self, count: int, random: Random) -> list[dict[str, Any]]:
        """Return captures whose records the mirror has."""
        there = {str(path.relative_to(self._mirror)) for path in self._mirror.rglob("*.warc.gz")}
        names = ["url", "fetch_time", "fetch_status", "content_digest", "warc_filename"]
        rows = self._rows.select([*names, "warc_record_offset", "warc_record_length"])
        rows = rows.filter(pc.is_in(rows.column("warc_filename"), pa.array(sorted(there))))
        chosen = rows.take(sorted(random.sample(range(rows.num_rows), count))).to_pylist()
        return [*{_place(row): row for row in chosen}.values()]

    def _member(self, row: dict[str, Any]) -> bytes:
        with (self._mirror / row["warc_filename"]).open("rb") as file:
            file.seek(row["warc_record_offset"])
            return bytes(file.read(row["warc_record_length"]))

    def _read_records(self, rows: list[dict[str, Any]]) -> None:
        with self._open() as cat:
            found = {(each.capture.filename, each.capture.offset): each for each in cat.records(rows)}
        assert found.keys() == {_place(row) for row in rows}
        for row in rows:
            member = self._member(row)
            assert found[_place(row)].member == member
            assert found[_place(row)].body == _content(member)

    def _fetch(self, rows: list[dict[str, Any]]) -> None:
        output = self.folder / "out.warc.gz"
        with self._open() as cat:
            done = cat.fetch(rows, output, form="warc")
        assert not done.failed, done.failed
        assert not done.unusable
        with output.open("rb") as file:
            records = [each.raw_stream.read() for each in ArchiveIterator(file) if each.rec_type != "warcinfo"]
        assert Counter(records) == Counter(_content(self._member(row)) for row in rows)


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["warc_filename"], row["warc_record_offset"]


def _content(member: bytes) -> bytes:
    (body,) = (each.raw_stream.read() for each in ArchiveIterator(BytesIO(member), check_digests="raise"))
    return bytes(body)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _in_use(others: Iterable[threading.Thread]) -> tuple[int, int]:
    """Count open files and threads of this process, after the end of those that are not among some others."""
    for thread in {*threading.enumerate()} - {*others}:
        if not thread.daemon:
            thread.join(5)
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208 - numbers


def _memory() -> int:
    gc.collect()
    pa.default_memory_pool().release_unused()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Repeat steps until ``count`` requests were made among faults; return requests and faults by kind."""
    faults = [Fault(kind, hold=0.02, interval=0.005, excess=1 << 18) for kind in TEMPORARY]
    random, mirror = Random(f"traffic {seed}"), mirror_of(folder / "mirror")
    files = _files(mirror)
    files[_OLD_INDEX] = index_bytes(_OLD_ITEMS, 1000)
    script: list[Script | None] = [None]
    found: Counter[str] = Counter()
    requests = needed = 0
    memory: list[int] = []

    def choose_fault(request: Request) -> Fault | None:
        return script[0](request) if script[0] else None

    others = threading.enumerate()  # of earlier tests
    before = _in_use(others)
    with FaultServer(files, script=choose_fault) as server:
        steps = _Steps(mirror, server, folder, min(400, count // 3))

        def do(step: Step) -> int:
            steps.folder.mkdir()
            server.reset()
            faulthandler.dump_traceback_later(_DEADLINE, exit=True)
            step()
            faulthandler.cancel_dump_traceback_later()
            found.update(each.fault.kind.value for each in server.settle() if each.fault)
            rmtree(steps.folder)
            return server.requests

        steps.prepare()
        files |= {f"{_SNAPSHOT}/{name}": data for name, data in _files(folder / _SNAPSHOT).items()}
        while requests < count:
            steps.folder.mkdir()
            chosen = steps.choose(random)
            rmtree(steps.folder)
            plain: dict[Step, int] = {}
            random.shuffle(chosen)
            until = min(count, requests + _POOL)
            for number in counting():
                if requests >= until:
                    break
                step = chosen[number % len(chosen)]
                if step not in plain:
                    plain[step] = do(step)
                script[0] = seeded(random.getrandbits(60), _SHARE, faults)
                requests += do(step)
                needed += plain[step]
                script[0] = None
                if number % len(chosen) == 0:
                    memory.append(_memory())
        steps.close()
    left = [now - then for now, then in zip(_in_use(others), before, strict=True)]
    figures: dict[str, object] = {
        "requests": requests,
        "faulted": sum(found.values()),
        "requests for each needed": round(requests / needed, 3),
        "memory grown": memory[-1] - memory[0],
        "left over": left,
        "faults": dict(found.most_common()),
    }
    assert requests / needed <= _MOST, figures
    assert memory[-1] - memory[0] <= _MOST_MEMORY, figures
    assert max(left) <= 0, figures
    return figures
