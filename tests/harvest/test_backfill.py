"""Backfill: bounds that footers lack are read once, stored, and equal those of a scan."""

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree

import pyarrow.parquet as pq
import pytest

from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.demo import LoopbackServer
from catalogue.parquet.page_index import cut_bounds
from tests.harvest.test_harvest import killed
from tests.support.catalogues import catalogue_in, harvested_in
from tests.support.commands import Command
from tests.support.crawls import CRAWL, crawl_of, table, write_manifest
from tests.support.faults import FaultServer, Kind, only
from tests.support.footers import without_statistics
from tests.support.stores import raw

COLUMNS = [KEY_COLUMN, "url", "fetch_status"]
OLD = "CC-MAIN-2018-05"


def copied(mirror: Path, folder: Path, change: Callable[[bytes], bytes]) -> Path:
    """Copy two files of the crawl whose bounds other readers ignore."""
    for path in sorted(mirror.rglob(f"crawl={OLD}/*/*.parquet"))[:3:2]:
        copy = folder / path.relative_to(mirror)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(change(path.read_bytes()))
    write_manifest(folder, OLD)
    return folder


CHANGES: dict[str, Callable[[bytes], bytes]] = {"as written": bytes, "without statistics": without_statistics}
bare = pytest.mark.parametrize("source", ["without statistics"], indirect=True)
"""The test is about the crawl without any bounds."""


@pytest.fixture(scope="module", params=CHANGES)
def source(request: pytest.FixtureRequest, whole_mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That crawl, with its bounds and without."""
    return copied(whole_mirror, tmp_path_factory.mktemp("source"), CHANGES[request.param])


@pytest.fixture(scope="module")
def stored(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harvested_in(tmp_path_factory.mktemp("stored"), source, OLD, "all")[0]


@pytest.fixture
def server(source: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(source) as running:
        yield running


@pytest.fixture
def cat(server: LoopbackServer, stored: Path, tmp_path: Path) -> Iterator[Catalogue]:
    copytree(stored, tmp_path / "data")
    with catalogue_in(tmp_path, server.url, cache_size=0, bandwidth=1e6, latency=0.001) as opened:
        yield opened


def keys_of(folder: Path) -> dict[tuple[str, int], list[str]]:
    """By path and row group."""
    found = {}
    for path in folder.rglob("*.parquet"):
        file = pq.ParquetFile(path)
        for ordinal in range(file.num_row_groups):
            keys = file.read_row_group(ordinal, [KEY_COLUMN])[KEY_COLUMN].to_pylist()
            found[str(path.relative_to(folder)), ordinal] = keys
    return found


def test_finds_the_bounds_of_all_keys(cat: Catalogue, source: Path, server: LoopbackServer) -> None:
    before = cat.row_groups()
    filling = cat.backfill()
    needed = filling.estimate
    server.log.clear()
    done = filling.run()
    assert done.failures == {}
    assert (done.done, done.row_groups) == (needed.files, needed.row_groups)
    assert len(server.log) == done.requests == needed.requests
    assert sum(exchange.sent_bytes for exchange in server.log) == done.bytes == needed.bytes
    after = cat.row_groups()
    assert len(after) == len(before)
    assert "missing" not in set(after.bounds_from)
    assert {"scan"} >= {*after.bounds_from[(before.bounds_from == "missing").to_numpy()]}
    keys_in = keys_of(source)
    for _, row in after.iterrows():
        keys = sorted(keys_in[row.path, row.row_group])
        first, last = keys[0], keys[-1]
        if row.bounds_from == "scan":  # long ones are cut
            bounds = cut_bounds(first.encode(), last.encode())
            first, last = bounds.min.decode(), bounds.max.decode()
        assert (row.min_url_surtkey, row.max_url_surtkey) == (first, last)
    assert cat.pages(OLD).empty
    again = cat.backfill()
    assert (again.estimate.files, again.estimate.requests) == (0, 0)
    server.log.clear()
    assert again.run().done == 0
    assert not server.log


def test_uses_page_indexes_where_bounds_are_missing(tmp_path: Path) -> None:
    keys = sorted(f"com,host{number % 7})/{number:05}" for number in range(9000))
    folder = crawl_of(
        tmp_path / "source",
        table(keys),
        change=without_statistics,
        row_group_size=3000,
        data_page_size=1 << 12,
    )
    with LoopbackServer(folder) as server, catalogue_in(tmp_path, server.url, cache_size=0) as cat:
        cat.harvest(CRAWL)
        assert set(cat.row_groups().bounds_from) == {"missing"}
        needed = cat.backfill().estimate
        server.log.clear()
        done = cat.backfill().run()
        assert (done.requests, done.bytes) == (needed.requests, needed.bytes)
        assert done.bytes < sum(len(each) for each in keys) / 10
        assert len(server.log) == 1
        rows = cat.row_groups().sort_values("row_group")
        assert set(rows.bounds_from) == {"page index"}
        for start, (_, row) in enumerate(rows.iterrows()):
            mine = keys[3000 * start : 3000 * (start + 1)]
            assert row.min_url_surtkey <= mine[0] <= mine[-1] <= row.max_url_surtkey
        assert cat.backfill().estimate.files == 0


@bare
def test_limits_files_and_bytes(cat: Catalogue) -> None:
    missing = cat.row_groups().query("bounds_from == 'missing'")
    needed = cat.backfill().estimate
    assert needed.row_groups == len(missing)
    assert cat.backfill(only_gaps=True).estimate == needed  # which callers of earlier versions pass
    some = cat.backfill(files="*part-00000-*").estimate
    assert 0 < some.files < needed.files
    assert cat.backfill(files=["*part-00000-*", "*"]).estimate == needed
    assert cat.backfill(files="nothing").estimate.files == 0
    budget = needed.bytes - 1
    done = cat.backfill().run(budget=budget)
    assert 0 < done.done < needed.files
    assert 0 < done.bytes <= budget
    left = cat.backfill().estimate
    assert left.files == needed.files - done.done
    assert left.bytes == needed.bytes - done.bytes
    assert cat.backfill().run().done == left.files


@bare
def test_continues_after_a_kill(source: Path, stored: Path, tmp_path: Path) -> None:
    copytree(stored, tmp_path / "data")
    with killed(source, tmp_path, 1, "backfill", "--yes") as command:
        needed = command("backfill", "--dry-run", "--json").json()
        ran = command("backfill", "--yes", "--json")
        assert (ran.status, ran.json()["complete"]) == (0, True)
        assert ran.json()["requests"] == needed["requests"]
        assert all(round(each["seconds"], 1) == each["seconds"] for each in (needed, ran.json()))
        assert command("backfill", "--dry-run", "--json").json()["files"] == 0


@bare
def test_missing_file_is_reported_and_others_continue(source: Path, stored: Path, tmp_path: Path) -> None:
    files = len(list(source.rglob("*.parquet")))  # none has bounds
    removed = min(str(path.relative_to(source)) for path in source.rglob("*subset=warc/*.parquet"))
    with FaultServer(source, script=only(removed, Kind.NOT_FOUND)) as server:
        ran = Command(copytree(stored, tmp_path / "data"), server.url, tmp_path)("backfill", "--yes", "--json")
        assert ran.status == 1
        assert list(ran.json()["failures"]) == [removed]
        assert ran.json()["done"] == files - 1
        assert "run the same command again" in ran.err


@bare
def test_reports_a_missing_crawl_the_price_and_unsaved_bounds(source: Path, stored: Path, tmp_path: Path) -> None:
    command = Command(copytree(stored, tmp_path / "data"), str(source), tmp_path)
    ran = command("backfill", "--crawl", "CC-MAIN-2099-24")
    assert (ran.status, ran.out, "is not harvested yet" in ran.err) == (2, "", True)
    refused = command("backfill", "--budget", "1B", "--yes")
    assert (refused.status, "the budget is too small for another file; choose a larger one" in refused.err) == (1, True)
    shown = command("backfill", "--dry-run", "--quiet")
    assert (shown.status, "row groups of" in shown.out, shown.err) == (0, True, "")
    with raw(tmp_path / "data" / "footers.sqlite") as other:
        other.execute("BEGIN IMMEDIATE")  # as another process that writes to the store and does not end
        ran = command("backfill", "--yes", "--json")
        assert (ran.status, ran.out) == (75, "")
        other.execute("ROLLBACK")
    assert command("backfill", "--yes", "--json").json()["complete"]


@bare
def test_bounds_of_forgotten_footers_are_not_reported_as_done(cat: Catalogue) -> None:
    filling = cat.backfill()
    assert filling.estimate.requests  # this decodes the footers
    forgotten: list[int] = []

    def forget(_: object) -> None:
        if not forgotten:
            forgotten.append(cat.forget(OLD))

    done = filling.run(report=forget)
    assert (done.done, len(done.failures)) == (0, len(filling.gaps))
    assert not cat.session.store.keys("indexes")
