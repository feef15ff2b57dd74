"""Joins that are run again: after other options, other files, an incomplete result, or a change of what is stored."""

import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import QueryError, StoreLocked, TooExpensive
from catalogue.formatting import plural, size
from catalogue.progress import Progress
from catalogue.surt.pattern import Match
from tests.join.test_join import SMALL, Oracle, expected, of_result, refuse, run, texts_of
from tests.support.catalogues import catalogue_in
from tests.support.faults import Fault, FaultServer, Kind, Script, only
from tests.support.mirrors import copy_crawl


@pytest.fixture(scope="module")
def crawl(both: Catalogue) -> str:
    return both.session.metadata().crawls[-2]


@pytest.fixture(scope="module")
def oracle(rows: pa.Table, crawl: str) -> Oracle:
    return Oracle(rows, [crawl])


@pytest.fixture
def incomplete(crawl: str, whole_mirror: Path, tmp_path: Path) -> Iterator[tuple[Catalogue, Path]]:
    """A catalogue that lacks a file of a crawl, which its source lists; and the file in the mirror."""
    copied = copy_crawl(whole_mirror, crawl, tmp_path / "mirror")
    lost = max(copied.rglob(f"crawl={crawl}/subset=warc/*.parquet"), key=lambda path: path.stat().st_size)
    lost.unlink()
    with catalogue_in(tmp_path, copied) as cat:
        cat.harvest(crawl, subsets="all", pages=True)
        yield cat, lost


def test_stays_incomplete_until_everything_is_stored(
    incomplete: tuple[Catalogue, Path], oracle: Oracle, crawl: str, whole_mirror: Path, tmp_path: Path
) -> None:
    cat, lost = incomplete
    texts = texts_of(oracle, 20, seed=1)
    for how in ("inner", "anti", "anti"):
        found = run(cat, texts, tmp_path / how, how, crawls=crawl, index="columnar")
        assert not found.complete
        assert "is not harvested" in found.problems[0] or "are not harvested" in found.problems[0]
        if how == "anti":
            assert not found.rows
    folder = Path(str(cat.session.settings.source))
    lost.write_bytes((whole_mirror / lost.relative_to(folder)).read_bytes())
    cat.harvest(crawl, subsets="all")
    for how in ("inner", "anti"):
        found = run(cat, texts, tmp_path / how, how, crawls=crawl, index="columnar")
        assert found.complete
        right = expected(oracle, texts, how, Match.EXACT)
        assert of_result(found) == right
        counts = [pq.read_metadata(path).num_rows for path in (tmp_path / how).glob("*.parquet")]
        assert sum(counts) == len(right)  # no file of the earlier run is left
    assert of_result(run(cat, texts, tmp_path / how, how, crawls=crawl, index="columnar")) == right


def test_other_index_answers_where_footers_are_missing(
    incomplete: tuple[Catalogue, Path], oracle: Oracle, crawl: str, tmp_path: Path
) -> None:
    cat, _ = incomplete
    texts = texts_of(oracle, 20, seed=2)
    for folder in ("before", "after"):
        found = run(cat, texts, tmp_path / folder, "inner", crawls=crawl)
        assert found.complete
        assert of_result(found) == expected(oracle, texts, "inner", Match.EXACT)
        cat.harvest(crawl, index="cdx")


def test_finished_join_is_not_done_again(both: Catalogue, oracle: Oracle, crawl: str, tmp_path: Path) -> None:
    texts = texts_of(oracle, 20, seed=3)
    first = run(both, texts, tmp_path / "out", "inner", crawls=crawl)
    times = {path: path.stat().st_mtime_ns for path in first.files}
    second = run(both, texts, tmp_path / "out", "inner", crawls=crawl)
    assert (second.rows, second.input_rows, second.requests) == (first.rows, first.input_rows, 0)
    assert {path: path.stat().st_mtime_ns for path in second.files} == times
    assert not (tmp_path / "out/.join/keys").exists()
    for given, how in ((texts, "semi"), (texts[:-1], "inner")):
        with pytest.raises(QueryError, match="another join"):
            run(both, given, tmp_path / "out", how, crawls=crawl)


def test_refused_start_leaves_the_output_free(both: Catalogue, oracle: Oracle, crawl: str, tmp_path: Path) -> None:
    texts, before = texts_of(oracle, 20, seed=4), both.requests
    with pytest.raises(TooExpensive):
        run(both, texts, tmp_path / "out", "inner", crawls=crawl, agree=refuse)
    assert both.requests == before
    for given, crawls in ((["no url"], crawl), (texts * 100, "CC-MAIN-2013-20")):
        with pytest.raises(QueryError):
            run(both, given, tmp_path / "out", "semi", crawls=crawls)
    done = run(both, texts, tmp_path / "out", "semi", crawls=crawl)
    assert of_result(done) == expected(oracle, texts, "semi", Match.EXACT)


def test_output_is_not_the_input_nor_in_use(both: Catalogue, oracle: Oracle, crawl: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"url": texts_of(oracle, 5, seed=5)}), keys)
    before = keys.read_bytes()
    for output, message in ((keys, "is the list of keys"), (tmp_path, "other files"), (tmp_path / "x.csv", "Parquet")):
        with pytest.raises(QueryError, match=message):
            both.join(keys, output, crawls=crawl)
    assert keys.read_bytes() == before
    join = partial(both.join, keys, tmp_path / "found.parquet", crawls=crawl)
    locked: list[bool] = []

    def join_during_its_end(event: str, given: tuple[object, ...]) -> None:
        if event == "shutil.rmtree" and given[0] == tmp_path / ".found.parquet.join" and not locked:
            locked.append(True)
            with pytest.raises(StoreLocked, match="another process writes to"):
                join()

    sys.addaudithook(join_during_its_end)
    join()
    assert locked
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.parquet", "keys.parquet"]


@pytest.mark.in_soak
def test_one_key_of_many_patterns(both: Catalogue, oracle: Oracle, crawl: str, tmp_path: Path) -> None:
    """URLs that differ in a session id only, and whose key starts a slice."""
    url = next(str(row["url"]) for row in oracle.rows if str(row["url"]).count("/") == 3 and "?" not in str(row["url"]))
    texts = [f"{url}?sid={hashlib.md5(str(n).encode(), usedforsecurity=False).hexdigest()}" for n in range(40)]
    texts += texts_of(oracle, 20, seed=6)
    for index in ("columnar", "cdx"):
        sizes = replace(SMALL, keys=1, row_groups=1, blocks=1, batch=7)
        found = run(both, texts, tmp_path / index, "semi", sizes=sizes, index=index, crawls=crawl)
        assert of_result(found) == expected(oracle, texts, "semi", Match.EXACT)


@pytest.mark.in_soak
def test_lost_parts_are_read_again(both: Catalogue, oracle: Oracle, crawl: str, tmp_path: Path) -> None:
    texts = texts_of(oracle, 40, seed=7)
    output = tmp_path / "crawl=CC-MAIN-1999-01" / "found[1]*"  # DuckDB would see patterns and columns in it
    output.parent.mkdir()
    first = run(both, texts, output, "inner", crawls=crawl)
    first.files[0].unlink()
    (output / "mine.parquet").write_bytes(b"")
    killed = output / f".{first.files[0].name}.part"
    killed.write_bytes(b"half a part")
    second = run(both, texts, output, "inner", crawls=crawl)
    assert not killed.exists()
    (output / "mine.parquet").unlink()  # which was left alone
    assert of_result(second) == expected(oracle, texts, "inner", Match.EXACT)
    crawls = run(both, texts, output.parent / "x[1]", "crawls", crawls=crawl)
    assert of_result(crawls) == expected(oracle, texts, "crawls", Match.EXACT)


def test_finished_result_is_made_again_after_changes(both: Catalogue, rows: pa.Table, tmp_path: Path) -> None:
    """Of the index of one of two crawls, and of the result itself."""
    pair = both.session.metadata().crawls[-3:-1]
    oracle = Oracle(rows, pair)
    texts = texts_of(oracle, 15, seed=9)
    kinds = ("anti", "latest")
    right = {how: expected(oracle, texts, how, Match.EXACT) for how in kinds}
    with catalogue.open(tmp_path / "data", settings=both.session.settings) as cat:
        cat.harvest(pair, subsets="all")
        for how in kinds:
            assert of_result(run(cat, texts, tmp_path / how, how, crawls=pair)) == right[how]
        cat.harvest(pair[0], subsets="all", refresh=True)
        for how in kinds:
            assert of_result(run(cat, texts, tmp_path / how, how, crawls=pair)) == right[how]
            last = max((tmp_path / how).glob("*.parquet"))
            last.unlink()
            again = run(cat, texts, tmp_path / how, how, crawls=pair)
            assert last.exists()
            assert of_result(again) == right[how]
            assert not run(cat, texts, tmp_path / how, how, crawls=pair).requests


@pytest.mark.in_soak
def test_crawl_without_known_keys_is_read_by_the_other_index(both: Catalogue, rows: pa.Table, tmp_path: Path) -> None:
    """Row groups of unknown keys would be read for each slice of many keys."""
    sizes = replace(SMALL, unbounded=1)
    every = both.session.metadata().crawls
    crawls = [*every[:2], every[-1]]
    refused = []
    with catalogue.open(tmp_path / "data", settings=both.session.settings) as cat:
        cat.harvest(crawls, subsets="all", index="both")
        for crawl in crawls:
            oracle = Oracle(rows, [crawl])
            texts = texts_of(oracle, 10, seed=10)
            try:
                run(cat, texts, tmp_path / f"columnar {crawl}", "semi", crawls=crawl, index="columnar", sizes=sizes)
            except QueryError as error:
                refused.append(str(error).endswith(f"run: catalogue backfill --crawl {crawl}"))
            found = run(cat, texts, tmp_path / crawl, "semi", crawls=crawl, sizes=sizes)
            assert of_result(found) == expected(oracle, texts, "semi", Match.EXACT)
    assert all(refused)
    assert 0 < len(refused) < len(crawls)


@pytest.mark.in_soak
def test_refused_cost_keeps_a_finished_result(
    incomplete: tuple[Catalogue, Path], oracle: Oracle, crawl: str, tmp_path: Path
) -> None:
    cat, _ = incomplete
    cat.harvest(crawl, index="cdx")
    texts = texts_of(oracle, 30, seed=8)
    first = run(cat, texts, tmp_path / "out", "inner", crawls=crawl, index="cdx")
    assert first.complete
    cat.harvest(crawl, subsets="all", refresh=True)
    with pytest.raises(TooExpensive):
        run(cat, texts, tmp_path / "other", "inner", crawls=crawl, index="cdx", agree=refuse)
    assert of_result(run(cat, texts, tmp_path / "out", "inner", crawls=crawl, index="cdx")) == of_result(first)


@pytest.mark.filterwarnings("ignore::catalogue.IncompleteAnswer")
def test_failed_slice_leaves_no_rows(
    both: Catalogue, oracle: Oracle, crawl: str, whole_mirror: Path, tmp_path: Path
) -> None:
    texts = texts_of(oracle, 150, seed=9)
    broken = max(whole_mirror.rglob(f"crawl={crawl}/subset=warc/*.parquet"), key=lambda path: path.stat().st_size)
    with (
        FaultServer(whole_mirror, script=only(str(broken.relative_to(whole_mirror)), Kind.NOT_FOUND)) as server,
        catalogue_in(tmp_path, server.url, data=both.session.folder, cache_size=0) as cat,
    ):
        sizes = replace(SMALL, keys=5)
        some = run(cat, texts, tmp_path / "out", "inner", sizes=sizes, index="columnar", crawls=crawl)
    assert not some.complete
    with pytest.warns(catalogue.IncompleteAnswer, match="could not be read"):
        assert len(some.to_arrow()) == some.rows
    assert {*of_result(some)} < {*expected(oracle, texts, "inner", Match.EXACT)}
    assert not [*(tmp_path / "out").glob(".*.part")]


@pytest.mark.parametrize("how", ["inner", "crawls"])
def test_slices_are_read_by_the_other_index(
    both: Catalogue, oracle: Oracle, crawl: str, whole_mirror: Path, tmp_path: Path, how: str
) -> None:
    texts, messages = texts_of(oracle, 150, seed=9), list[str]()
    script: Script = lambda request: Fault(Kind.NOT_FOUND) if "/cdx-" in request.path else None  # noqa: E731
    with (
        FaultServer(whole_mirror, script=script) as server,
        catalogue_in(tmp_path, server.url, data=both.session.folder, cache_size=0) as cat,
    ):
        cat.session.notify = messages.append
        found = run(cat, texts, tmp_path / "out", how, sizes=replace(SMALL, keys=50), crawls=crawl)
    assert {exchange.status for exchange in server.log} == {206, 404}
    assert found.complete
    assert [message.partition(":")[0] for message in messages] == [
        f"the CDX index of {crawl} cannot be used, so the columnar index answers"
    ]
    assert of_result(found) == expected(oracle, texts, how, Match.EXACT)


@pytest.mark.in_part(2)
@pytest.mark.filterwarnings("ignore::catalogue.IncompleteAnswer")
@pytest.mark.parametrize(("how", "index"), [("inner", "columnar"), ("anti", "cdx")])
def test_a_budget_reads_some_slices_at_a_time(
    both: Catalogue, oracle: Oracle, crawl: str, how: str, index: str, tmp_path: Path
) -> None:
    """In all as much as without one; what is not read yet is not called absent.

    An incomplete inner join may have captures of other URLs with the same keys.
    """
    texts = texts_of(oracle, 80, seed=8)
    right = expected(oracle, texts, how, Match.EXACT)
    of_keys = expected(oracle, texts, how, Match.EXACT, of_keys=True) if how == "inner" else []
    whole = run(both, texts, tmp_path / "whole", how, crawls=crawl, index=index)
    output, received, runs = tmp_path / "out.parquet", 0, 0
    refused = run(both, texts, output, how, crawls=crawl, index=index, budget=1)
    assert (refused.complete, refused.bytes, refused.left) == (False, 0, refused.slices)
    budget = max(refused.next_bytes, whole.bytes // 3)
    left, next_one = f"{refused.left} of {plural(refused.slices, 'slice')} left", size(refused.next_bytes)
    assert refused.problems == [
        f"{left}, the next of which takes {next_one}; run the join again with a budget above that"
    ]
    while True:
        done = run(both, texts, output, how, crawls=crawl, index=index, budget=budget)
        received, runs = received + done.bytes, runs + 1
        assert done.bytes <= budget
        if done.complete:
            break
        assert 0 < done.left < done.slices
        assert {*of_result(done)} <= {*right, *of_keys}
        budget = max(budget, done.next_bytes)
    assert runs > 1
    assert received == whole.bytes
    assert of_result(done) == right


def test_files_that_others_forget_meanwhile_are_not_called_searched(
    both: Catalogue, oracle: Oracle, crawl: str, tmp_path: Path
) -> None:
    settings, texts = both.session.settings, texts_of(oracle, 20, seed=9)
    changes: dict[str, Callable[[Catalogue], object]] = {
        "sorting keys": lambda other: other.forget(crawl),
        "reading": lambda other: other.session.store.delete("files", other.session.store.keys("files")[:1]),
    }

    def change(at: Progress) -> None:
        with catalogue.open(tmp_path / "data", settings=settings) as other:
            if at.name in changes:
                changes.pop(at.name)(other)

    with catalogue.open(tmp_path / "data", settings=settings) as cat:
        cat.harvest(crawl, subsets="all")
        with pytest.raises(StoreLocked, match="another process has changed what is stored of"):
            run(cat, texts, tmp_path / "anti", "anti", crawls=crawl, report=change)
        cat.harvest(crawl, subsets="all")
        done = run(cat, texts, tmp_path / "out", "anti", crawls=crawl, index="columnar", report=change)
        assert (done.rows, done.complete) == (0, False)
