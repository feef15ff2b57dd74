"""Index files that were damaged, on the way that every index file takes: footer, examination, plan, pages, rows.

Whatever was damaged there is a verdict: an error of ours, or rows. Rows are compared with those of the file as it was.
They may differ only where nothing could tell: where bytes were changed that no checksum covers, such as the bounds that
a footer claims.
"""

import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial, reduce
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import catalogue
from catalogue.commoncrawl.capture import Capture
from catalogue.commoncrawl.manifests import IndexFile, inflate
from catalogue.errors import BadFooter, BadManifest, BadRecord, CatalogueError, FormatError
from catalogue.examine import Examiner
from catalogue.parquet.footer import TRAILER, decode_footer, decode_row_groups, footer_length
from catalogue.parquet.model import Footer
from catalogue.parquet.pages import Indexes, cut_indexes
from catalogue.plan.cost import Cost
from catalogue.plan.plan import ReadPlan
from catalogue.plan.planner import plan_reads
from catalogue.plan.prune import HeldFile
from catalogue.query.query import Query
from catalogue.read.reader import ReadEvents, read
from catalogue.records.record import read_record
from catalogue.settings import Settings
from catalogue.source.byte_ranges import FileVersion, SuffixRange
from catalogue.source.checks import Response, Wanted
from catalogue.surt import KeyInterval
from tests.slow.damaging import COLUMNS, Damaged, Original, damaged, originals
from tests.slow.mutators import MUTATORS
from tests.slow.parsers import mirror_of
from tests.slow.sizes import peak, resident
from tests.support.crawls import CRAWL, index_path, write_manifest
from tests.support.mirrors import raw_footer, read_footer

_PAGES_ARE_CHEAP = Cost(rate=None, bandwidth=1e5, latency=1e-5, connections=1)

_COSTS = (_PAGES_ARE_CHEAP, _PAGES_ARE_CHEAP, Cost())

_SLOWEST = 5.0
"""Seconds of CPU that a file may take here."""

_MOST_CHILD = 1 << 30

_MOST_GROWTH, _MOST_AT_ONCE = 64 << 20, 512 << 20
"""Bytes by which the process may grow from a fifth of the way on, and beyond what it has at first."""

_A_CRAWL = 40
"""Damaged files that make a crawl of which a catalogue is made."""


class Memory:
    """A source of one file."""

    url = "memory:///"
    connections = 1

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get(self, path: str, wanted: Wanted = None, *, pin: FileVersion | None = None) -> Response:
        end = len(self._data)
        if isinstance(wanted, SuffixRange):
            start = max(0, end - wanted.length)
        else:
            assert wanted
            assert pin == FileVersion(end, '"1"')
            start, end = wanted.start, wanted.end
        assert end <= len(self._data), f"{path}: what lies behind its end was asked for"
        return Response(self._data[start:end], start, len(self._data), '"1"', None)

    def close(self) -> None:
        pass


class AtOnce(Executor):
    """Does what it is given before anything else: threads change nothing here, and take a fifth of the time."""

    def submit(self, function: Callable[..., Any], /, *args: object, **named: object) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(function(*args, **named))
        except CatalogueError as error:
            future.set_exception(error)
        return future


class Asking:
    """Asks damaged files what was asked of the originals."""

    def __init__(self, examiner: Examiner, executor: Executor) -> None:
        self.examiner = examiner
        self.executor = executor
        self.said: list[str] = []
        self.deaths = Counter[str]()

    def examined(self, data: bytes) -> Footer:
        """The footer of a file, as a harvest takes it and a question decodes it.

        Raises:
            FormatError: if it has none that is taken.
        """
        tail = Memory(data).get("x", SuffixRange(1 << 16)).body
        length = footer_length(tail)
        if length + TRAILER > len(data):
            message = "the footer is longer than the file"
            raise BadFooter(message)
        raw = data[-TRAILER - length : -TRAILER]
        try:
            facts = self.examiner.examine(raw, len(data), column_chunks=True)
        except FormatError as error:
            if "its parser" in str(error):
                self.deaths[str(error)] += 1
            raise
        whole = decode_footer(raw, len(data))
        if facts.footer_rest is not None:
            offsets = {group.ordinal: group.footer_offset for group in facts.row_groups}
            assert decode_row_groups(raw, len(data), offsets, facts.footer_rest) == whole
        return whole

    def rows(self, data: bytes, footer: Footer, intervals: tuple[KeyInterval, ...], cost: Cost) -> pa.Table:
        """What a question finds; and the same once more, with what reading taught.

        Raises:
            CatalogueError: if it cannot be answered.
        """
        names = tuple(name for name in COLUMNS if name in footer.columns)
        query = Query(intervals, ("x",), columns=names)
        # Of files so small nobody would fetch them for one question; they are taken with the footers if so asked.
        known = cut_indexes(footer, "url_surtkey", data, 0) if cost is _PAGES_ARE_CHEAP else {}
        file = IndexFile("x", CRAWL, "warc")
        held = HeldFile(file, FileVersion(len(data), '"1"'), footer, known.get, (), None, "")
        source = Memory(data)

        def learn(_: IndexFile, ordinal: int, indexes: Indexes) -> None:
            known[ordinal] = known.get(ordinal, Indexes()).joined(Indexes.unpack(indexes.pack()))

        plans: list[ReadPlan] = []
        answers: list[pa.Table] = []
        for _ in range(2):
            plan = plan_reads(query, [held], cost=cost, considered=len(footer.row_groups))
            for fetch in plan.indexes:
                body = source.get("x", fetch.range, pin=held.pin).body
                for ordinal, found in cut_indexes(footer, "url_surtkey", body, fetch.range.start).items():
                    known[ordinal] = known.get(ordinal, Indexes()).joined(found)
            if plan.indexes:
                plan = plan_reads(query, [held], cost=cost, considered=len(footer.row_groups))
            self.said += [warning for warning in plan.warnings if "it is read without" in warning]
            if plan in plans:  # what was learned changed nothing
                continue
            plans.append(plan)
            told = ReadEvents(learn, notify=self.said.append)
            batches = read(plan, source, self.executor, told)
            answers.append(pa.Table.from_batches(batches, plan.schema).select([*names]))
        assert answers[0].equals(answers[-1]), "what was learned changed the answer"
        return answers[0]


def wanted(original: Original, intervals: tuple[KeyInterval, ...]) -> pa.Table:
    """What a scan of a file as it was finds."""
    keys = original.rows.column("url_surtkey").cast(pa.binary())
    inside = [
        pc.and_(pc.greater_equal(keys, pa.scalar(each.start)), pc.less(keys, pa.scalar(each.end))) for each in intervals
    ]
    return original.rows.filter(reduce(pc.or_, inside))


def lost_alone(found: pa.Table, expected: pa.Table) -> bool:
    """Whether all that was found is right, though something is lacking."""
    if found.schema.names != expected.schema.names:
        return False
    rows = (
        Counter(zip(*(c.cast(pa.string()).to_pylist() for c in table.columns), strict=True))
        for table in (found, expected)
    )
    return next(rows) <= next(rows)


def verdict(asking: Asking, original: Original, each: Damaged, question: int, cost: Cost) -> str:
    """What became of a file.

    Raises:
        AssertionError: if it is nothing that may.
    """
    try:
        footer = asking.examined(each.data)
    except FormatError as error:
        return _told(error, "refused")
    intervals = original.questions[question]
    asking.said.clear()
    try:
        found = asking.rows(each.data, footer, intervals, cost)
    except CatalogueError as error:
        return _told(error, "an error")
    expected = wanted(original, intervals)
    if found.equals(expected):
        return "right, an index disbelieved" if asking.said else "right"
    what = each.place.what
    assert not each.place.covered, f"rows are wrong though a checksum covers the {what} that was changed"
    assert what != "offset_index", "an offset index made rows wrong"
    lost = lost_alone(found, expected)
    assert what != "column_index" or lost, "an index of keys made rows that there are not"
    return f"undetectable: {what}, {'rows are lacking' if lost else 'others'}"


def _told(error: CatalogueError, verdict: str) -> str:
    assert str(error)
    assert "\n" not in str(error)
    return verdict


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Damage so many files, records and lists; see ``tests.slow.__main__``."""
    rng = Random(f"mutations {seed}")
    files = originals(mirror_of(folder / "mirror"))
    small, large = files[:6], files[6:]
    verdicts, slowest, memory = Counter[str](), 0.0, _Memory()
    accepted: list[bytes] = []
    with Examiner(children=1) as examiner:
        asking = Asking(examiner, AtOnce())
        for number in range(count * 9 // 10):
            original = rng.choice(large if rng.random() < 0.1 else small)
            each = damaged(original, rng, files)
            question, cost = rng.randrange(3), rng.choice(_COSTS)
            began = process_time()
            try:
                found = verdict(asking, original, each, question, cost)
                took = process_time() - began
                assert took < _SLOWEST, f"it took {took:.1f} s"
            except Exception as error:
                kept = folder / "wrong.parquet"
                kept.write_bytes(each.data)
                about = f"input {number} of seed {seed}, {each.how} of {each.place}, question {question}, {cost}"
                message = f"{about}: {type(error).__name__}: {error} ({len(each.data)} bytes)"
                raise AssertionError(message) from error
            slowest = max(slowest, took)
            verdicts[found] += 1
            if found not in {"refused", "an error"} and each.place.what == "footer" and original in small:
                accepted.append(each.data)
            if number % 100 == 0:
                memory.look(number >= count * 9 // 50)
            if number % 5000 == 4999 or number == count * 9 // 10 - 1:
                verdicts["through a catalogue"] += catalogued(folder / f"crawl-{number}", accepted[-_A_CRAWL:])
                accepted.clear()
        deaths, child = asking.deaths, memory.child()
    records = damaged_members(count // 10, rng)
    return {
        "verdicts": dict(sorted(verdicts.items())),
        "records and lists": records,
        "deaths": dict(deaths),
        "slowest": round(slowest, 3),
        "grew": memory.grew,
        "peak": memory.peak,
        "child": child,
    }


def catalogued(folder: Path, files: Sequence[bytes]) -> int:
    """Harvest damaged files, whose footers were accepted, and tell of them; the number of them."""
    files = list({raw_footer(data): data for data in files}.values())  # a harvest refuses files with the same footer
    for number, data in enumerate(files):
        index_path(folder / "source", number).write_bytes(data)
    write_manifest(folder / "source")
    settings = Settings(source=str(folder / "source"), cache=folder / "cache", cache_size=0)
    with catalogue.open(folder / "data", settings=settings) as cat:
        (outcome,) = cat.harvest(CRAWL)
        assert not outcome.failures, outcome.failures
        assert len(cat.files()) == len(files)
        claimed = sum(read_footer(data).num_rows for data in files)
        assert int(cat.files()["num_rows"].sum()) == claimed
        for tell in (cat.row_groups, partial(cat.column_chunks, CRAWL), cat.coverage):
            tell()
        assert cat.failures().empty
        plan = cat.captures("*.com").plan
        assert plan.considered >= len(plan.paths)
    return len(files)


def damaged_members(count: int, rng: Random) -> dict[str, int]:
    """Damage gzipped records and lists: each is refused, or as it was."""
    body = b"<p>" + b"hello" * 50
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2022-08-15T01:02:03Z\r\nWARC-Target-URI: http://e.com/\r\n"
    record = head + b"Content-Length: %d\r\n\r\n" % len(block) + block + b"\r\n\r\n"
    paths = "\n".join(f"cc-index/part-{number}.parquet" for number in range(50)).encode()
    packed = {text: gzip.compress(text, mtime=0) for text in (record, paths)}
    verdicts = Counter[str]()
    for number in range(count):
        text = (record, paths)[number % 2]
        mutate = MUTATORS[rng.choice([*MUTATORS])]
        data = mutate(packed[text], rng, [*packed.values()])
        parse: Callable[[], object] = partial(inflate, data)
        if text is record:
            capture = Capture("crawl-data/x.warc.gz", 0, max(1, len(data)), "http://e.com/")
            parse = lambda capture=capture, data=data: read_record(capture, data).body  # type: ignore[misc] # noqa: E731
        try:
            found = parse()
        except (BadRecord, BadManifest):
            verdicts["refused"] += 1
            continue
        as_it_was = body if text is record else paths
        assert found == as_it_was, f"{mutate.__name__}: bytes.fromhex({data.hex()!r})"
        verdicts["as it was"] += 1
    return dict(verdicts)


class _Memory:
    """What this process and its children take."""

    def __init__(self) -> None:
        self._first = peak()
        self._low = self._high = 0

    def look(self, settled: bool) -> None:  # noqa: FBT001
        now = resident()
        if settled:
            self._low = self._low or now
            self._high = max(self._high, now)
            assert self.grew <= _MOST_GROWTH, f"the process grew by {self.grew:,} bytes"
        assert self.peak <= _MOST_AT_ONCE, f"the process took {self.peak:,} bytes at once"

    @property
    def grew(self) -> int:
        return self._high - self._low

    @property
    def peak(self) -> int:
        return peak() - self._first

    def child(self) -> int:
        """Bytes that a child had at most."""
        most = 0
        for task in Path("/proc/self/task").glob("*/children"):
            for child in task.read_text().split():
                lines = Path(f"/proc/{child}/status").read_text().splitlines()
                most = max([most, *(int(line.split()[1]) << 10 for line in lines if "VmHWM" in line)])
        assert most <= _MOST_CHILD, f"a child took {most:,} bytes"
        return most
