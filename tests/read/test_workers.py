"""Slices of plans in any executor: in order, once, and within the rate limit."""

import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import catalogue
from catalogue import Catalogue, ReadPlan, errors
from catalogue.demo import LoopbackServer
from catalogue.errors import CatalogueError, WorkersLost
from catalogue.read.dask_cluster import machines_and_tasks
from catalogue.read.workers import tasks
from catalogue.settings import Settings
from tests.support.amounts import in_part
from tests.support.crawls import crawl_of, harvest_footers, table
from tests.support.executors import Recording, opened

QUESTIONS: list[dict[str, Any]] = [
    {"patterns": "*", "columns": ["url", "content_digest"]},
    {"patterns": ["*.org", "*.is"], "columns": "*"},
    {"patterns": "*.example.com", "where": "fetch_status = 200 AND length(url) % 2 = 0", "columns": ["url"]},
    {"patterns": "*.com", "ordered": True, "columns": ["url"]},
    {"patterns": "*.com", "ordered": True, "limit": 70, "columns": ["url"]},
    {"patterns": "*.com", "limit": 70},
    {"patterns": "*.com", "limit": 0},
    {"patterns": "*.com", "from_": "2020", "to": "2022", "columns": ["fetch_time"]},
    {"patterns": "no.such.host"},
]


def sliced(plan: ReadPlan, size: int) -> list[ReadPlan]:
    return [task.plan for task in tasks(plan, Settings(), size=size)]


@in_part(3)
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_slices_make_the_requests_of_the_plan(harvested: Catalogue, question: dict[str, Any]) -> None:
    plan = harvested.captures(**question).fetch_indexes()
    for size in (1, 20_000, 10**9):
        slices = sliced(plan, size)
        reads = [(file.file.path, group.ordinal) for each in slices for file in each.files for group in file.row_groups]
        assert reads == [(file.file.path, group.ordinal) for file in plan.files for group in file.row_groups]
        requested = Counter(fetch for each in slices for wave in each.waves for fetch in wave)
        assert requested == Counter(fetch for wave in plan.waves for fetch in wave)
        for each in slices:
            fetched = {(fetch.path, part.row_group) for wave in each.waves for fetch in wave for part in fetch.parts}
            assert fetched <= {(file.file.path, group.ordinal) for file in each.files for group in file.row_groups}
    assert len(slices) == len(plan.files)


def test_slices_read_all_blocks_once(columnar: Catalogue) -> None:
    found = columnar.captures(["*.com", "*.org"], crawls="2021..2022", index="cdx", subsets="all")
    plan = found.fetch_indexes()
    expected = [(read.path, read.range) for planned in plan.blocks for read in planned.reads]
    for size, count in ((1, len(expected)), (10**9, len(plan.blocks))):
        slices = sliced(plan, size)
        planned = (planned for each in slices for planned in each.blocks)
        assert [(read.path, read.range) for each in planned for read in each.reads] == expected
        assert [(fetch.path, fetch.range) for each in slices for wave in each.waves for fetch in wave] == expected
        assert len(slices) == count
    with ThreadPoolExecutor(3) as executor, opened(columnar.session.folder, columnar.session.settings, executor) as cat:
        other = cat.captures(["*.com", "*.org"], crawls="2021..2022", index="cdx", subsets="all")
        assert other.to_arrow().equals(found.to_arrow())
        assert other.count() == found.count() > 0


def test_row_groups_that_share_a_request_stay_together(tmp_path: Path) -> None:
    rows = table([f"com,example)/{number:05}" for number in range(1000)])
    crawl_of(tmp_path / "source", rows, row_group_size=100)
    # Where a request is dear all of the file is one; where it is cheap each chunk is.
    for bandwidth, expected in ((1e12, 1), (1.0, 10)):
        settings = Settings(source=str(tmp_path / "source"), cache=tmp_path / "cache", bandwidth=bandwidth)
        with catalogue.open(tmp_path / f"data{expected}", settings=settings) as cat:
            harvest_footers(cat)
            plan = cat.captures("*", columns=["url_surtkey"]).fetch_indexes()
            assert len(sliced(plan, 1)) == expected


@pytest.fixture(scope="module")
def by_threads(harvested_data: Path, settings: Settings) -> Iterator[Catalogue]:
    """One whose plans are read by workers; open for all questions, so that it decodes footers once."""
    with ThreadPoolExecutor(3) as executor, opened(harvested_data, settings, executor) as cat:
        yield cat


@in_part(3)
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_workers_return_the_same_rows(
    by_threads: Catalogue, harvested: Catalogue, some: list[str], question: dict[str, Any]
) -> None:
    crawls = "all" if "from_" in question else some
    answer = harvested.captures(**question, crawls=crawls).to_arrow()
    found = by_threads.captures(**question, crawls=crawls)
    assert found.to_arrow().equals(answer)
    assert found.count() == answer.num_rows


def test_accepts_any_executor(harvested_data: Path, settings: Settings, harvested: Catalogue, some: list[str]) -> None:
    executor = Recording()
    with opened(harvested_data, settings, executor) as cat:
        found = cat.captures("*.com", crawls=some[:1], columns=["url"])
        assert found.to_arrow().equals(harvested.captures("*.com", crawls=some[:1], columns=["url"]).to_arrow())
        assert len(executor.tasks) == len(found.plan.files) > 1


def test_stops_at_the_limit(harvested_data: Path, settings: Settings, some: list[str]) -> None:
    executor = Recording({"tcp://10.0.0.1:1": 2})
    with opened(harvested_data, settings, executor) as cat:
        files = len(cat.captures("*", crawls=some, subsets="all").plan.files)
        assert cat.captures("*", crawls=some, subsets="all", where="true", limit=5).to_arrow().num_rows == 5
    assert len(executor.tasks) < files


class Cancelled(ThreadPoolExecutor):
    def submit(self, *_: object, **__: object) -> Future[Any]:
        future: Future[Any] = Future()
        future.cancel()
        return future


@pytest.mark.parametrize(
    ("executor", "message"),
    [(ThreadPoolExecutor(1), r"takes no work .*new one$"), (Cancelled(), r"\(CancelledError\); run it again")],
    ids=["shut down", "cancelled work"],
)
def test_lost_work_is_an_error(
    harvested_data: Path, settings: Settings, some: list[str], executor: ThreadPoolExecutor, message: str
) -> None:
    executor.shutdown()
    with opened(harvested_data, settings, executor) as cat, pytest.raises(WorkersLost, match=message):
        cat.captures("*.com", crawls=some).to_arrow()


def all_errors(kind: type[CatalogueError] = CatalogueError) -> Iterator[type[CatalogueError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from all_errors(each)


def test_every_error_can_be_sent_by_a_worker() -> None:
    """An executor of processes is lost by an error that cannot be made again."""
    options: dict[type, dict[str, Any]] = {
        errors.NothingStored: {"folder": "data"},
        errors.Busy: {"retry_after": 5.0},
        errors.Harvesting: {"crawl": "x", "retry_after": 5.0},
    }
    for kind in all_errors():
        error = kind("message", **options.get(kind, {}))
        sent = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
        assert (type(sent), str(sent), vars(sent)) == (kind, str(error), vars(error))


def test_divides_the_rate_among_machines(
    harvested_data: Path, server: LoopbackServer, tmp_path: Path, some: list[str]
) -> None:
    three = {"tcp://10.0.0.1:40000": 4, "tcp://10.0.0.1:40001": 4, "tcp://10.0.0.2:1": 4, "tcp://[::1]:1": 2}
    settings = Settings(source=server.url, cache=tmp_path, rate=600.0, connections=6)
    executor = Recording(three)
    with opened(harvested_data, settings, executor) as cat:
        cat.captures("*.com", crawls=some[:1], columns=["url"]).to_arrow()
    assert {task.settings.rate for task in executor.tasks} == {200.0}
    assert {task.settings.connections for task in executor.tasks} == {1}
    assert machines_and_tasks(executor) == (3, 14)
    assert machines_and_tasks(ThreadPoolExecutor(5)) == (1, 5)
