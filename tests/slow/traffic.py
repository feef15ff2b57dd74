"""Everything that reads from a source, while three of ten answers are wrong.

Harvests, snapshots, queries, backfills, the URL index of 2012, records and outputs read from a server with faults of
every kind that a client can notice. Each step runs once without faults, which shows its result and how many requests it
needs.

Nothing may be lost, wrong or left over, nothing hangs, and requests are at most ``_MOST`` times those that are needed.
"""

import faulthandler
import gc
import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count as counting
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalogue import Catalogue
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.session import Session
from catalogue.settings import Settings
from catalogue.store.database import Store
from tests.cdx.test_url_index_2012 import HOSTS, PATHS, SCHEMES, items_of
from tests.read.test_answers import CONDITIONS, IDENTITY, random_patterns
from tests.slow.mutations import mirror_of
from tests.support.catalogues import catalogue_in
from tests.support.clocks import FakeClock
from tests.support.faults import Fault, FaultServer, Request, Script, seeded
from tests.support.fetched import records_in
from tests.support.memory import resident
from tests.support.mirrors import files_in, whole_table
from tests.support.prefix_indexes import index_bytes
from tests.support.sources import TEMPORARY

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

Step = Callable[[], object]
"""Its result is the same with and without faults."""


class _Steps:
    def __init__(self, mirror: Path, server: FaultServer, folder: Path, records: int) -> None:
        self._mirror, self._server, self._records = mirror, server, records
        self.folder, self._everything = folder / "step", folder / "everything"
        self._rows = whole_table(mirror)
        self._crawls = sorted({*self._rows["crawl"].to_pylist()})

    def prepare(self) -> None:
        """Harvest everything, for the steps that need it, and export it as a snapshot."""
        with catalogue_in(self.folder.parent, self._mirror, data=self._everything) as cat:
            cat.harvest("all", subsets="all")
            cat.export_snapshot(self.folder.parent / _SNAPSHOT)

    def choose(self, random: Random) -> list[Step]:
        crawls = [random.choice(self._crawls) for _ in range(3)]
        archived = self._archived(random)
        patterns = [random.choice(_OLD_URLS), f"{random.choice(HOSTS)}{random.choice(PATHS)}*"]
        patterns += [f"*.{random.choice(HOSTS[:6])}"]
        queries = [self._query(random, "all"), *(self._query(random, random.choice(self._crawls)) for _ in range(3))]
        steps: list[Step] = [
            lambda: self._harvest(crawls[0]),
            lambda: self._harvest(crawls[1]),
            lambda: self._pull(crawls[2]),
            lambda: self._ask(queries),
            lambda: self._backfill(crawls[0]),
            lambda: self._ask_old_index(patterns),
        ]
        random.shuffle(steps)
        # Many requests at little cost; last, so that a short run has the others, too.
        return [*steps, *[lambda: self._read_records(archived)] * 5, *[lambda: self._fetch(archived)] * 3]

    def _open(self, data: Path | None = None, rate: float | None = None) -> Catalogue:
        """Open a catalogue whose requests cost nothing, so that nothing is read only to save one."""
        cache = self.folder / "cache"
        settings = Settings(source=self._server.url, cache=cache, cache_size=0, bandwidth=1e6, latency=0.0, rate=rate)
        return Catalogue(Session(data or self.folder / "data", settings, clock=FakeClock))

    def _copy(self) -> Path:
        return Path(copytree(self._everything, self.folder / "data"))

    def _harvest(self, crawl: str) -> object:
        with self._open() as cat:
            for outcome in cat.harvest(crawl, subsets="all"):
                assert not outcome.failures, outcome.failures
        return self._stored()

    def _pull(self, crawl: str) -> object:
        with self._open() as cat:
            pulled = cat.pull(f"{self._server.url}{_SNAPSHOT}", crawls=crawl)
            assert (pulled.crawls, pulled.missing) == ((crawl,), ())
        return self._stored()

    def _stored(self) -> object:
        with Store(self.folder / "data/footers.sqlite") as store:
            there = {path: value for path in store.keys("files") if (value := store.get("files", path))}
            assert not store.keys("failures")
        for path, value in there.items():
            digest = hashlib.blake2b((self._mirror / path).read_bytes(), digest_size=16).hexdigest()
            assert value.etag in {f'"{digest}"', f'W/"{digest}"', None}
        return {path: (value.data, value.size) for path, value in there.items()}

    def _backfill(self, crawl: str) -> object:
        with self._open(self._copy(), _RATE) as cat:
            done = cat.backfill(crawl).run()
            assert not done.failures, done.failures
            assert not cat.backfill(crawl).gaps
            sql = "SELECT path, row_group, min_url_surtkey, max_url_surtkey FROM row_groups ORDER BY ALL"
            return cat.sql(sql).fetchall()

    def _query(self, random: Random, crawl: str) -> dict[str, Any]:
        mine = self._rows if crawl == "all" else self._rows.filter(pc.equal(self._rows.column("crawl"), crawl))
        return {
            "patterns": [*random_patterns(mine, random.choice([1, 1, 11]), random.getrandbits(32))],
            "crawls": crawl,
            "subsets": "all",
            "columns": [*IDENTITY, *random.sample(sorted({*SCHEMA.names} - {*IDENTITY}), random.choice([0, 2, 20]))],
            "where": None if random.random() < 0.6 else random.choice(CONDITIONS),
            "limit": None if random.random() < 0.8 else random.randrange(1, 50),
        }

    def _ask(self, queries: list[dict[str, Any]]) -> object:
        with self._open(self._copy()) as cat:
            return [cat.captures(**query).to_arrow() for query in queries]

    def _ask_old_index(self, patterns: list[str]) -> object:
        with self._open() as cat:
            index = cat.old_index(_OLD_INDEX)
            return [[*index.captures(index.find(pattern))] for pattern in patterns]

    def _archived(self, random: Random) -> list[dict[str, Any]]:
        """Return captures whose records the mirror has, each once."""
        there = [str(path.relative_to(self._mirror)) for path in self._mirror.rglob("*.warc.gz")]
        names = ["url", "fetch_time", "fetch_status", "content_digest", "warc_filename"]
        rows = self._rows.select([*names, "warc_record_offset", "warc_record_length"])
        rows = rows.filter(pc.is_in(rows.column("warc_filename"), pa.array(there)))
        chosen = rows.take(sorted(random.sample(range(rows.num_rows), self._records))).to_pylist()
        return [*{(row["warc_filename"], row["warc_record_offset"]): row for row in chosen}.values()]

    def _read_records(self, rows: list[dict[str, Any]]) -> object:
        with self._open() as cat:
            found = {each.capture: (each.member, each.body) for each in cat.records(rows)}
        assert len(found) == len(rows)
        return found

    def _fetch(self, rows: list[dict[str, Any]]) -> object:
        with self._open() as cat:
            done = cat.fetch(rows, self.folder / "out.warc.gz", form="warc")
        assert not [*done.failed, *done.unusable], done
        found = Counter(records_in(self.folder / "out.warc.gz"))
        assert found.total() == len(rows)
        return found


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
    return resident()


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Repeat steps until ``count`` requests were made among faults; return requests and faults by kind."""
    faults = [Fault(kind, hold=0.02, interval=0.005, excess=1 << 18) for kind in TEMPORARY]
    random, mirror = Random(f"traffic {seed}"), mirror_of(folder / "mirror")
    files = files_in(mirror)
    files[_OLD_INDEX] = index_bytes(items_of(_OLD_URLS), 1000)
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

        def do(step: Step) -> tuple[object, int]:
            steps.folder.mkdir()
            server.reset()
            faulthandler.dump_traceback_later(_DEADLINE, exit=True)
            result = step()
            faulthandler.cancel_dump_traceback_later()
            found.update(each.fault.kind.value for each in server.settle() if each.fault)
            rmtree(steps.folder)
            return result, server.requests

        steps.prepare()
        files |= {f"{_SNAPSHOT}/{name}": data for name, data in files_in(folder / _SNAPSHOT).items()}
        while requests < count:
            chosen = steps.choose(random)
            plain: dict[Step, tuple[object, int]] = {}
            until = min(count, requests + _POOL)
            for number in counting():
                if requests >= until:
                    break
                step = chosen[number % len(chosen)]
                if step not in plain:
                    plain[step] = do(step)
                script[0] = seeded(random.getrandbits(60), _SHARE, faults)
                result, sent = do(step)
                assert result == plain[step][0]
                requests, needed = requests + sent, needed + plain[step][1]
                script[0] = None
                if number % len(chosen) == 0:
                    memory.append(_memory())
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
