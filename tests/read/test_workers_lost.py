"""Plans in processes, and in a Dask cluster that loses a worker."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalogue import Catalogue, QueryError
from catalogue.commoncrawl.capture import capture_of
from catalogue.errors import SourceError, Unreachable, WorkersLost
from catalogue.output.fetch_captures import fetch_by_workers
from catalogue.output.formats import FormatSpec
from catalogue.read.dask_cluster import client_machines, connect_to_cluster
from catalogue.read.workers import SLICE, Workers, run, tasks
from catalogue.records.fetch_records import record_fetches
from catalogue.settings import Settings
from tests.support.amounts import COMPLETE
from tests.support.commands import Command, ended
from tests.support.crawls import CRAWL, crawl_of, harvest_footers, index_path, table, write_manifest
from tests.support.executors import opened
from tests.support.faults import FaultServer


@pytest.fixture(scope="module")
def forks() -> Iterator[BaseContext]:
    """Where processes come from, Dask's too: they are forked by one that has imported, once, what takes them long."""
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        context: BaseContext = get_mp_context()  # or it would set its own list later
        of_dask = ["distributed", "dask.dataframe"] if COMPLETE else []
        context.set_forkserver_preload([*of_dask, "pyarrow.parquet", "catalogue.read.workers"])
        yield context


@pytest.fixture(scope="module")
def processes(forks: BaseContext) -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=forks) as executor:
        yield executor


@pytest.fixture(scope="module")
def cluster(forks: BaseContext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import dask
    from distributed import LocalCluster

    assert forks.get_start_method() == dask.config.get("distributed.worker.multiprocessing-method")
    folder = str(tmp_path_factory.mktemp("dask"))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=folder) as made:
        yield made


def address_of(cluster: Any) -> str:
    return str(cluster.scheduler_address)


SOME = ["url", "fetch_time", "warc_record_offset"]
"""Columns to read of every row group of some crawls: what they are makes no difference to who reads them."""


@pytest.fixture(scope="module")
def everything(harvested: Catalogue, some: list[str]) -> pa.Table:
    return harvested.captures("*", crawls=some, columns=SOME).to_arrow()


def test_processes_return_the_same_rows(
    harvested_data: Path, settings: Settings, some: list[str], everything: pa.Table, processes: Executor
) -> None:
    with opened(harvested_data, settings, processes) as cat:
        found = cat.captures("*", crawls=some, columns=SOME)
        assert found.to_arrow().equals(everything)
        assert cat.requests == found.plan.requests
        assert cat.bytes == found.plan.bytes


def test_explains_errors_of_workers(tmp_path: Path, processes: Executor) -> None:
    folder = crawl_of(tmp_path / "source", *(table([f"com,example)/{n}/{m}" for m in range(9)]) for n in range(3)))
    moved = next(folder.rglob("part-00001*")).rename(index_path(folder, 1, subset="robotstxt"))
    write_manifest(folder)
    settings = Settings(source=str(folder), cache=tmp_path / "cache")
    with opened(tmp_path / "data", settings, processes) as cat:
        cat.harvest(CRAWL, subsets="all")
        with pytest.raises(QueryError, match="Conversion Error"):
            cat.captures("*", where="CAST(url AS INTEGER) = 1").to_arrow()
        moved.unlink()
        run = f"run: catalogue harvest --crawl {CRAWL} --subset robotstxt --refresh"
        with pytest.raises(SourceError, match=f"part-00001.*; {run}"):
            cat.captures("*", subsets="all").to_arrow()


def test_reports_dead_processes(forks: BaseContext, harvested_data: Path, settings: Settings) -> None:
    with ProcessPoolExecutor(1, mp_context=forks) as executor, opened(harvested_data, settings, executor) as cat:
        batches = cat.captures("*", columns=SOME).batches()
        next(batches)
        for process in executor._processes.values():  # noqa: SLF001 - whom to kill
            os.kill(process.pid or 0, signal.SIGKILL)
        with pytest.raises(WorkersLost, match="terminated abruptly"):
            list(batches)


def kill_one(client: Any) -> None:
    os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)


@pytest.mark.in_soak
def test_cluster_survives_a_lost_worker(
    harvested_data: Path, settings: Settings, some: list[str], everything: pa.Table, cluster: Any
) -> None:
    from distributed import Client

    with Client(cluster) as client, opened(harvested_data, settings, client.get_executor(pure=False)) as cat:
        batches = cat.captures("*", crawls=some, columns=SOME).batches()
        first = next(batches)
        kill_one(client)
        found = pa.Table.from_batches([first, *batches])
        assert found.equals(everything)


def test_fetches_large_records_alone(harvested: Catalogue, settings: Settings, crawl: str) -> None:
    rows = harvested.captures("*.com", crawls=crawl, limit=30).to_arrow().to_pylist()
    fetches = list(record_fetches(map(capture_of, rows), max_gap=1 << 20))
    with ThreadPoolExecutor(2) as executor:
        workers = Workers(executor, settings, at_once=2)
        made = list(fetch_by_workers(fetches, workers, FormatSpec("warc"), print, max_bytes=1))
    assert Counter(each[0] for each in made if isinstance(each, tuple)) == Counter(map(capture_of, rows))
    assert workers.requests > len(fetches)


@pytest.mark.in_soak
def test_backfill_by_workers_keeps_its_budget_and_continues(tmp_path: Path) -> None:
    tables = [table([f"com,example)/{n}/{m:05}" for m in range(900)]) for n in range(6)]
    folder = crawl_of(tmp_path / "source", *tables, write_page_index=False, write_statistics=False)
    with FaultServer(folder) as server, ThreadPoolExecutor(3) as executor:
        settings = Settings(source=server.url, cache=tmp_path / "cache", patience=0.0)
        with opened(tmp_path / "data", settings, executor) as cat:
            harvest_footers(cat)
            filling = cat.backfill()
            budget = filling.estimate.bytes // 2
            done = filling.run(budget=budget)
            assert done.done == 3
            assert done.bytes <= budget
            paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))
            (folder / paths[4]).unlink()
            done = cat.backfill().run()
            assert done.done == 2
            assert list(done.failures) == [paths[4]]


@pytest.mark.in_soak
def test_dask_frame_has_the_rows(harvested: Catalogue, cluster: Any) -> None:
    from distributed import Client

    with Client(cluster):
        found = harvested.captures("*.example.com", columns=["url", "fetch_status", "fetch_time"])
        frame = found.to_dask()
        assert frame.npartitions == len(found.plan.files)
        here, there = (
            rows.sort_values(["crawl", "subset", "url", "fetch_time", "fetch_status"]).reset_index(drop=True)
            for rows in (found.to_pandas(), frame.compute())
        )
        assert there["url"].tolist() == here["url"].tolist()
        assert there["fetch_time"].equals(here["fetch_time"])
        assert there["fetch_status"].equals(here["fetch_status"])
        assert frame["fetch_status"].sum().compute() == here["fetch_status"].sum()
        assert client_machines() == 1
    nothing = harvested.captures("no.such.host").to_dask()
    assert nothing.compute().empty
    assert list(nothing.columns) == list(harvested.captures("no.such.host").to_pandas().columns)
    for wrong in ({"limit": 3}, {"ordered": True}):
        with pytest.raises(QueryError, match="leave out limit, ordered"):
            harvested.captures("*.com", **wrong).to_dask()


@pytest.mark.in_soak
def test_command_uses_a_cluster(asking: Command, cluster: Any, harvested: Catalogue) -> None:
    with asking.start("query", "*.is", "--columns", "url", "--scheduler", address_of(cluster)) as process:
        ran = ended(process)
    assert ran.status == 0, ran.err
    found = [line["url"] for line in ran.json_lines()]
    assert found == harvested.captures("*.is", columns=["url"]).to_arrow().column("url").to_pylist()


def test_rejects_invalid_schedulers() -> None:
    for address in ("", "x", "tcp://", "tcp://a b:1", "http://x:1", "tcp://host:port"):
        with pytest.raises(QueryError, match="use one such as tcp://host:8786"), connect_to_cluster(address):
            pass
    with (
        pytest.raises(Unreachable, match=r"no scheduler answers at tcp://127\.0\.0\.1:1:"),
        connect_to_cluster("tcp://127.0.0.1:1", patience=0.2),
    ):
        pass


@pytest.mark.in_soak
def test_rejects_workers_without_this_package(tmp_path: Path) -> None:
    from distributed import LocalCluster

    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "__init__.py").touch()
    settings = tmp_path / "catalogue" / "settings.py"
    settings.write_text("raise ModuleNotFoundError('not here')")
    with LocalCluster(n_workers=0, dashboard_address=":0") as empty:
        words = [sys.executable, "-m", "distributed.cli.dask_worker", empty.scheduler_address, "--no-nanny"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            [*words, "--no-nanny"], env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL
        ) as worker:
            try:
                empty.wait_for_workers(1, timeout=30)
                with pytest.raises(QueryError, match="lack this package"), connect_to_cluster(address_of(empty)):
                    pass
                settings.write_text("def package_version(): return '0.0.1'")  # what failed is imported again
                with pytest.raises(QueryError, match=r"have version 0\.0\.1"), connect_to_cluster(address_of(empty)):
                    pass
            finally:
                worker.terminate()


def test_worker_uses_its_own_cache_folder(harvested: Catalogue, settings: Settings, tmp_path: Path) -> None:
    plan = harvested.captures("*.is").fetch_indexes()
    elsewhere = Settings(source=settings.source, cache=tmp_path / "not" / "here")
    found = [run(task).value[0] for task in tasks(plan, elsewhere, size=SLICE)]
    assert pa.concat_tables(found).num_rows == harvested.captures("*.is").count()
    assert not (tmp_path / "not").exists()
