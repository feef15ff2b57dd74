"""Lists of blocks of the CDX index: harvested, shown, checked, used and forgotten."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from io import BytesIO
from itertools import count
from pathlib import Path
from shutil import copytree
from threading import Barrier, Event

import duckdb
import pytest

import catalogue
from benchmarks.cluster import make_list
from catalogue import Catalogue
from catalogue.cdx.block_file import write_blocks
from catalogue.cdx.cluster import BlockList, list_path, parse_blocks
from catalogue.errors import BadCdx, NotHarvested, QueryError, StoreDamaged, UnknownCrawl
from catalogue.plan.block_lists import BlockLists
from catalogue.plan.cdx_index import CdxIndex
from catalogue.progress import Progress
from catalogue.store.database import Store
from catalogue.store.stored_lists import forget_list, open_list
from tests.support.block_lists import CRAWL, OTHER, write_list
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.fault_kinds import Fault, Kind, Request
from tests.support.faults import FaultServer
from tests.support.gates import Gate


@cache
def some_lines() -> bytes:
    return make_list(9000)


@cache
def some_blocks() -> BlockList:
    return parse_blocks(CRAWL, some_lines())


PART = 16 << 20


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    write_list(tmp_path / "mirror", some_lines())
    return tmp_path / "mirror"


@pytest.fixture
def cat(mirror: Path, tmp_path: Path) -> Iterator[Catalogue]:
    with catalogue_in(tmp_path, mirror) as opened:
        yield opened


def rows_of(blocks: BlockList) -> list[tuple[object, ...]]:
    columns = blocks.columns.to_pydict()
    return [(first.decode(), *rest) for first, *rest in zip(*columns.values(), strict=True)]


def shown(cat: Catalogue) -> list[tuple[object, ...]]:
    """The view ``blocks``, in the form of ``rows_of``; made-up times have invalid seconds, which it shows as null."""
    sql = """
        SELECT first_key || ' ' || r.first_time, path[-8:-4]::INTEGER, b."offset", b.length, number
        FROM blocks AS b JOIN read_parquet($file) AS r USING (crawl, number, first_key)
        WHERE b.first_time IS NULL OR strftime(b.first_time, '%Y%m%d%H%M%S') = r.first_time
        ORDER BY number
    """
    with cat.connect() as connection:
        file = cat.session.data / "blocks" / f"{CRAWL}.parquet"
        return connection.execute(sql, {"file": str(file)}).fetchall()


def test_view_has_every_block_and_estimates_count_lists(cat: Catalogue) -> None:
    needed = cat.harvest_estimate(CRAWL, index="cdx")
    assert (needed.crawls, needed.files, needed.requests) == (1, 1, 9)
    (outcome,) = cat.harvest(CRAWL, index="cdx")
    assert cat.harvest_estimate(CRAWL, index="cdx").requests == 0
    assert cat.harvest_estimate(CRAWL, subsets=(), index="both").files == 300  # the default
    assert outcome.fetched == {list_path(CRAWL)}
    assert shown(cat) == rows_of(some_blocks())
    crawls = cat.sql("SELECT crawl, files_harvested, blocks FROM crawls WHERE blocks IS NOT NULL")
    assert crawls.fetchall() == [(CRAWL, 0, len(some_blocks()))]
    paths = {path for (path,) in cat.sql("SELECT DISTINCT path FROM blocks").fetchall()}
    assert paths == {some_blocks().path(place) for place in range(len(some_blocks()))}
    (stored,) = (cat.session.data / "blocks").iterdir()
    assert stored.stat().st_size < len(some_lines()) / 3


def test_crawls_are_shown_with_lists(both_data: Path, whole_mirror: Path, tmp_path: Path) -> None:
    data = copytree(both_data, tmp_path / "data")
    ran = Command(data, str(whole_mirror), tmp_path)("crawls")
    assert re.search(rf"^{CRAWL} .* files: crawldiagnostics, robotstxt, warc; list of blocks$", ran.out, re.MULTILINE)


def test_view_after_a_move(cat: Catalogue, tmp_path: Path) -> None:
    """The database names the folder where it was written; a variable names another one."""
    cat.harvest(CRAWL, index="cdx")
    cat.close()
    moved = cat.session.data.rename(tmp_path / "moved")
    with duckdb.connect(moved / "catalogue.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT blocks FROM crawls").fetchall() == [(len(some_blocks()),)]
        with pytest.raises(duckdb.IOException, match=r"data/blocks/.*\.parquet"):
            connection.execute("FROM blocks")
        connection.execute("SET VARIABLE catalogue_folder = $folder", {"folder": str(moved)})
        assert connection.execute("SELECT count(*) FROM blocks").fetchall() == [(len(some_blocks()),)]
    with catalogue.open(moved, settings=cat.session.settings) as opened:
        assert opened.sql("SELECT count(*) FROM blocks").fetchall() == [(len(some_blocks()),)]
    with duckdb.connect(moved / "catalogue.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM blocks").fetchall() == [(len(some_blocks()),)]


def large_list() -> bytes:
    return b"".join(
        b"com,example)/%06d/%b 20220807000000\tcdx-00000.gz\t%d\t100\t%d\n"
        % (number, b"x" * 60_000, number * 100, number + 1)
        for number in range(300)
    )


def test_takes_few_requests_and_continues(mirror: Path, tmp_path: Path) -> None:
    lines = large_list()
    write_list(mirror, lines)
    parts = -(-(len(lines) - (16 << 10)) // PART)
    assert parts > 1

    def fail(request: Request) -> Fault | None:
        is_second = request.headers.get("range", "").startswith(f"bytes={PART}-")
        return Fault(Kind.NOT_FOUND) if is_second else None

    with FaultServer(mirror, script=fail) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        words = ["harvest", "--crawl", CRAWL, "--index", "cdx"]
        ran = asks(*words)
        assert ran.status == 1
        assert list_path(CRAWL) in ran.err
        left = [*(tmp_path / "data/blocks").iterdir()]
        assert [path.stat().st_size for path in left] == [PART]
    with FaultServer(mirror) as server:
        asks = Command(tmp_path / "data", server.url, tmp_path)
        ran = asks(*words, "--json")
        assert ran.status == 0, ran.err
        row = ran.json()
        assert (row["crawl"], row["index"], row["harvested"], row["taken"]) == (CRAWL, "cdx", 1, 1)
        assert row["requests"] == len([each for each in server.log if each.path != "collinfo.json"]) == 2 + parts
        server.reset()
        (tmp_path / f"data/blocks/.{CRAWL}.0.part").touch()  # as of a command killed after it stored the list
        assert asks(*words, "--json").json()["taken"] == 0
        assert {each.path for each in server.log} <= {"collinfo.json"}
        server.reset()
        assert asks(*words, "--refresh", "--json").json()["taken"] == 0
        assert [each.path for each in server.log if each.path != "collinfo.json"] == [list_path(CRAWL)]
    assert [path.name for path in (tmp_path / "data/blocks").iterdir()] == [f"{CRAWL}.parquet"]
    with catalogue_in(tmp_path, mirror) as cat:
        assert shown(cat) == rows_of(parse_blocks(CRAWL, lines))


@pytest.mark.in_soak
def test_refresh_stores_another_version(cat: Catalogue, mirror: Path) -> None:
    cat.harvest(CRAWL, index="cdx")
    other = make_list(3000)
    write_list(mirror, other)
    assert not cat.harvest(CRAWL, index="cdx")[0].fetched
    assert cat.harvest(CRAWL, index="cdx", refresh=True)[0].fetched
    assert shown(cat) == rows_of(parse_blocks(CRAWL, other))


def test_invalid_lists_are_not_stored(cat: Catalogue, mirror: Path) -> None:
    lines = some_lines().splitlines(keepends=True)
    for changed, why in (
        (some_lines()[:-1], "is not the start of a complete line"),
        (some_lines()[: some_lines().rindex(b"cdx-00003") - 200], "is not the start of a complete line"),
        (b"".join(line for line in lines if b"cdx-00009" not in line), "number"),
        (some_lines().replace(b"\tcdx-00002.gz\t0\t", b"\tcdx-00002.gz\t1\t"), "does not start at the end"),
        (b"zzz" + some_lines()[some_lines().index(b" ") :], "the key is less than the key before it"),
        (some_lines().replace(b"\t5000\n", b"\t5001\n"), "the number of the block is not the next one"),
        (some_lines().replace(b"com,", b"com\xff", 1), "is not a line of a list"),
        (b"\n" * 1000, "is not a line of a list"),
    ):
        (mirror / list_path(CRAWL)).write_bytes(changed)
        (outcome,) = cat.harvest(CRAWL, index="cdx")
        assert why in outcome.failures[list_path(CRAWL)]
        assert not cat.session.block_lists.stored
        assert not [*(cat.session.data / "blocks").iterdir()]
    write_list(mirror, some_lines())
    assert cat.harvest(CRAWL, index="cdx")[0].fetched


def test_long_keys_are_refused() -> None:
    def line(number: int) -> bytes:
        key = b"com,%05d" % number + b"a" * 900_000
        return key + b" 20220807000000\tcdx-00000.gz\t%d\t100\t%d\n" % (100 * (number - 1), number)

    parts = (parse_blocks(CRAWL, line(number), start=number - 1, ends=False) for number in range(1, 100))
    with pytest.raises(BadCdx, match="has keys that are too long"):
        write_blocks(BytesIO(), CRAWL, parts)


def test_requests_for_an_invalid_list_end_before_the_harvest_does(mirror: Path, tmp_path: Path) -> None:
    """The first part is found invalid while the second one arrives, which counts for this crawl."""
    write_list(mirror, large_list().replace(b"\t2\n", b"\t3\n", 1))
    gate = Gate(lambda request: request.headers.get("range", "").startswith(f"bytes={PART}-"))
    first_part = Event()

    def report(progress: Progress) -> None:
        if progress.done > 1:
            first_part.set()

    with (
        FaultServer(mirror, gate=gate) as server,
        catalogue_in(tmp_path, server.url) as cat,
        ThreadPoolExecutor(1) as executor,
    ):
        running = executor.submit(cat.harvest, CRAWL, index="cdx", report=report)
        gate.wait()
        first_part.wait()
        with pytest.raises(TimeoutError):
            running.result(timeout=0.3)
        gate.open()
        (outcome,) = running.result()
        assert "the number of the block is not the next one" in outcome.failures[list_path(CRAWL)]
        log = [exchange for exchange in server.log if exchange.path != "collinfo.json"]
        assert outcome.progress.requests == len(log)
        assert outcome.progress.bytes == sum(exchange.body_bytes_sent for exchange in log)


def test_damaged_files_are_found_and_dropped(cat: Catalogue, mirror: Path, tmp_path: Path) -> None:
    cat.harvest(CRAWL, index="cdx")
    asks = Command(tmp_path / "data", str(mirror), tmp_path)
    assert asks("check").status == 0
    stored = tmp_path / f"data/blocks/{CRAWL}.parquet"
    whole = stored.read_bytes()
    for damaged in (whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:], whole[:-100], b""):
        stored.write_bytes(damaged)
        ran = asks("check", "--json")
        assert ran.status == 1
        assert [(each["kind"], each["key"]) for each in ran.json()["findings"]] == [("blocks", f"blocks/{CRAWL}")]
    for lost in (stored, tmp_path / "data/catalogue.duckdb"):
        lost.unlink()
    shown = asks("sql", "from blocks")
    assert (shown.status, f"lists of blocks of {CRAWL} cannot be read" in shown.err) == (1, True)
    plan = asks("plan", "example.com", "--crawl", CRAWL, "--json")
    assert plan.json()["searches"] == 1
    assert "cannot be used" in plan.err
    with cat.session.store.harvesting(CRAWL):
        assert asks("check", "--repair").status == 75
    assert f"run: catalogue harvest --crawl {CRAWL} --index cdx" in asks("check", "--repair").err
    assert not stored.exists()
    assert asks("check").status == 0


def test_forget_deletes_lists_and_missing_ones_are_named(cat: Catalogue, mirror: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownCrawl, match=f"has no CDX index of {OTHER}"):
        cat.harvest(OTHER, index="cdx")
    with pytest.raises(QueryError, match="invalid index 'all'; use columnar, cdx or both"):
        cat.harvest(CRAWL, index="all")
    cat.harvest(CRAWL, index="cdx")
    write_list(mirror, make_list(2000), OTHER)
    cat.harvest(OTHER, index="cdx")
    status = Command(tmp_path / "data", str(mirror), tmp_path)("status", "--json").json()
    expected = [(CRAWL, len(some_blocks())), (OTHER, 2000)]
    assert [(each["crawl"], each["blocks"]) for each in status["blocks"]] == expected
    cat.forget(CRAWL)
    assert cat.session.block_lists.stored == [OTHER]
    assert cat.sql("SELECT DISTINCT crawl FROM blocks").fetchall() == [(OTHER,)]
    (tmp_path / f"data/blocks/.{OTHER}.0.part").touch()  # as of an interrupted harvest
    cat.forget(OTHER)
    with pytest.warns(catalogue.IncompleteAnswer, match="nothing is stored for the view blocks yet"):
        assert cat.sql("FROM blocks").fetchall() == []
    assert not [*(tmp_path / "data/blocks").iterdir()]
    with pytest.raises(NotHarvested):
        cat.forget(OTHER)


@pytest.mark.parametrize("moment", range(4))
def test_plans_while_another_process_forgets_the_list(cat: Catalogue, moment: int) -> None:
    cat.harvest(CRAWL, index="cdx")
    query = cat.captures("*.com", crawls=CRAWL, index="cdx").question.query
    session, uses = cat.session, count()

    def store() -> Store:
        if next(uses) == moment:
            forget_list(session.store, CRAWL)
        return session.store

    lists = BlockLists(lambda: session.source, store, session.create_store, lambda _: {}, session.notify)
    index = CdxIndex(CRAWL, ("warc",), lists, lambda: session.source, session.cost(), tuple, _is_outside=False)
    plan = index.plan(query)
    assert plan.blocks or plan.search


def test_lists_can_be_deleted_at_any_moment_while_they_are_opened(cat: Catalogue, tmp_path: Path) -> None:
    cat.harvest(CRAWL, index="cdx")
    stored, whole = tmp_path / f"data/blocks/{CRAWL}.parquet", tmp_path / "whole"
    stored.rename(whole)
    both = Barrier(2)

    def delete(turn: int) -> None:
        both.wait()
        for _ in range(5 * turn):
            stored.exists()
        stored.unlink()

    with ThreadPoolExecutor(1) as executor:
        for turn in range(100):
            stored.hardlink_to(whole)
            deleting = executor.submit(delete, turn)
            both.wait()
            with suppress(StoreDamaged):
                open_list(cat.session.store, CRAWL)
            deleting.result()
