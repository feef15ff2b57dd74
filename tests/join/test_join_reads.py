"""What joins read: no byte twice, no more than their estimate; and what they do when it fails or they are stopped."""

import pickle
import random
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import catalogue
from catalogue import Catalogue
from catalogue.join.joined import JoinEstimate
from catalogue.progress import Progress
from catalogue.surt.pattern import Match
from tests.join.test_join import Oracle, expected, hosts_of, of_result, run, texts_of
from tests.support.catalogues import catalogue_in
from tests.support.executors import Recording
from tests.support.faults import Fault, FaultServer, Kind, Request


@pytest.fixture(scope="module")
def crawls(crawls: list[str]) -> list[str]:
    return crawls[-3:]


@pytest.mark.in_part(3)
@pytest.mark.parametrize(("how", "index"), [("inner", "columnar"), ("inner", "cdx"), ("anti", "columnar")])
def test_reads_no_byte_twice(
    both: Catalogue, oracle: Oracle, crawls: list[str], whole_mirror: Path, index: str, how: str, tmp_path: Path
) -> None:
    texts = texts_of(oracle, 60, seed=1)
    estimates: list[JoinEstimate] = []
    with FaultServer(whole_mirror) as server:
        with catalogue_in(tmp_path, server.url, data=both.session.folder, cache_size=0) as cat:
            done = run(cat, texts, tmp_path / "out", how, index=index, crawls=crawls, agree=estimates.append)
        log = server.settle()
    assert of_result(done) == expected(oracle, texts, how, Match.EXACT)
    assert done.slices > 6
    ranges = defaultdict(list)
    for each in log:
        start, end = (each.range_header or "").removeprefix("bytes=").split("-")
        ranges[each.path].append((int(start), int(end)))
    for found in ranges.values():
        assert [pair for pair in pairwise(sorted(found)) if pair[0][1] >= pair[1][0]] == []
    (estimate,) = estimates
    assert len(log) == done.requests <= estimate.requests
    assert sum(each.body_bytes_sent for each in log) <= estimate.bytes


def test_estimate_reads_nothing(both: Catalogue, oracle: Oracle, crawls: list[str]) -> None:
    texts = texts_of(oracle, 50, seed=2)
    before = both.requests
    estimate = both.join_estimate(texts, crawls=crawls)
    assert both.requests == before
    assert [each.crawl for each in estimate.crawls] == crawls[::-1]
    assert estimate.requests == sum(each.requests for each in estimate.crawls) > 0
    assert estimate.rows == len(texts)
    assert " by the CDX index, " in str(both.join_estimate(texts, crawls=crawls, index="cdx"))


@pytest.mark.in_part(2)
@pytest.mark.parametrize("how", ["inner", "crawls"])
def test_continues_after_an_interruption(both: Catalogue, some: Oracle, how: str, tmp_path: Path) -> None:
    texts = texts_of(some, 60, seed=4)
    chance = random.Random(how)

    class Stopped(Exception):
        pass

    requests = 0
    for stop in (chance.randrange(1, 4), chance.randrange(4, 7)):

        def report(at: Progress, stop: int = stop) -> None:
            if at.name == "reading" and at.done == stop:
                raise Stopped

        with pytest.raises(Stopped):
            run(both, texts, tmp_path / "out", how, index="cdx", crawls=some.crawls, report=report)
        requests = both.requests
    done = run(both, texts, tmp_path / "out", how, index="cdx", crawls=some.crawls)
    assert of_result(done) == expected(some, texts, how, Match.EXACT)
    spent = both.requests - requests
    again = run(both, texts, tmp_path / "out", how, index="cdx", crawls=some.crawls)
    assert of_result(again) == of_result(done)
    assert both.requests == requests + spent
    assert again.requests == 0


@pytest.mark.filterwarnings("ignore::catalogue.IncompleteAnswer")
def test_keys_that_could_not_be_read_are_not_called_absent(
    both: Catalogue, oracle: Oracle, crawls: list[str], whole_mirror: Path, tmp_path: Path
) -> None:
    texts = texts_of(oracle, 60, seed=5)
    broken = next(str(path.relative_to(whole_mirror)) for path in whole_mirror.rglob(f"crawl={crawls[-1]}/*=warc/*"))

    def script(request: Request) -> Fault | None:
        return Fault(Kind.NOT_FOUND) if broken and request.path.endswith(broken) else None

    with (
        FaultServer(whole_mirror, script=script) as server,
        catalogue_in(tmp_path, server.url, data=both.session.folder, cache_size=0) as cat,
    ):
        some = run(cat, texts, tmp_path / "out", "anti", index="columnar", crawls=crawls)
        assert not some.complete
        assert some.problems
        found = of_result(some)
        assert {*found} < {*expected(oracle, texts, "anti", Match.EXACT)}
        listed = run(cat, texts, tmp_path / "crawls", "crawls", index="columnar", crawls=crawls).to_arrow()
        broken = ""
        done = run(cat, texts, tmp_path / "out", "anti", index="columnar", crawls=crawls)
    right = expected(oracle, texts, "anti", Match.EXACT)
    assert done.complete
    assert of_result(done) == right
    absent = {number for number, _ in right}
    for row in listed.to_pylist():
        assert not row["complete"] or (row["captures"] == 0) == (row["row_id"] in absent)
    assert 0 < sum(listed["complete"].to_pylist()) < len(texts)


class Sending(Recording):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        sent = pickle.dumps((fn, args, kwargs))
        self.sizes.append(len(sent))
        fn, args, kwargs = pickle.loads(sent)  # noqa: S301 - our own
        return super().submit(fn, *args, **kwargs)


@pytest.mark.in_soak
@pytest.mark.parametrize(("match", "index"), [(Match.EXACT, "columnar"), (Match.DOMAIN, "cdx")])
def test_other_processes_read(both: Catalogue, some: Oracle, index: str, match: Match, tmp_path: Path) -> None:
    texts = hosts_of(some, 10, seed=9) if match is Match.DOMAIN else texts_of(some, 60, seed=8)
    executor = Sending()
    with catalogue.open(both.session.folder, settings=both.session.settings, executor=executor) as cat:
        done = run(cat, texts, tmp_path / "out", "inner", match, index=index, crawls=some.crawls)
        assert done.complete
        assert of_result(done) == expected(some, texts, "inner", match)
    assert len(executor.sizes) >= done.slices // 2
    assert max(executor.sizes) < 200_000
