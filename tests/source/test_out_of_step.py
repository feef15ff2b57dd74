"""Servers and proxies that send surplus responses on a connection, and equal files."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.settings import Settings
from catalogue.source.byte_ranges import SuffixRange
from catalogue.source.http import HttpSource
from catalogue.store.database import Store
from tests.support.commands import Command
from tests.support.crawls import CRAWL, crawl_of, index_path, table
from tests.support.faults import FaultServer, Step

FILES = 6


def written(folder: Path) -> Path:
    return crawl_of(folder, *(table([f"com,example{number})/", f"com,example{number})/a"]) for number in range(FILES)))


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("step", [Step.TWICE, Step.TWICE_SLOWLY, Step.BEHIND])
@pytest.mark.parametrize("pages", [False, True])
def test_each_file_gets_its_own_footer_from_out_of_step_connections(
    tmp_path: Path, step: Step, connections: int, *, pages: bool
) -> None:
    mirror = written(tmp_path / "mirror")
    with FaultServer(mirror) as server:
        server.step = step
        settings = Settings(source=server.url, cache=tmp_path / "cache", connections=connections)
        with catalogue.open(tmp_path / "data", settings=settings) as cat:
            (outcome,) = cat.harvest(CRAWL, pages=pages)
            assert (outcome.failures, outcome.progress.done) == ({}, FILES)
    with catalogue.open(tmp_path / "data", settings=Settings(source=str(mirror), cache=tmp_path / "cache")) as cat:
        for number in range(FILES):
            assert cat.captures(f"example{number}.com/*").count() == 2
        checked = cat.check(read_subset="100%")
        assert (checked.complete, checked.equal) == (True, FILES)


def test_a_connection_that_sent_more_than_was_requested_is_not_used_again() -> None:
    files = {f"{number}.parquet": bytes([number]) * (64 << 10) for number in range(4)}
    with FaultServer(files) as server:
        server.step = Step.TWICE
        source = HttpSource(server.url, user_agent="test", connections=1)
        try:
            for path, content in files.items():
                assert source.get(path, SuffixRange(len(content))).body == content
                server.settle()  # all of both answers has been sent
        finally:
            source.close()
        assert [exchange.connection for exchange in server.settle()] == [*range(len(files))]


def test_suffix_lengths_differ_between_successive_requests(tmp_path: Path) -> None:
    """Then each response states another range, if files are longer than the suffix."""
    mirror = written(tmp_path / "mirror")
    with FaultServer(mirror) as server:
        settings = Settings(source=server.url, cache=tmp_path / "cache")
        with catalogue.open(tmp_path / "data", settings=settings) as cat:
            cat.harvest(CRAWL)
        ranges = [exchange.range_header for exchange in server.settle() if exchange.path.endswith(".parquet")]
    assert len(ranges) == len({*ranges}) == FILES


def test_files_with_the_same_footer_are_reported(tmp_path: Path) -> None:
    """One response may be for the other file, even if that was stored before."""
    mirror = written(tmp_path / "mirror")
    one, same = (index_path(mirror, number) for number in (1, 4))
    command = Command(tmp_path / "data", str(mirror), tmp_path)
    assert command("harvest", "--crawl", CRAWL).status == 0
    same.write_bytes(one.read_bytes())
    with Store(tmp_path / "data" / "footers.sqlite") as store:
        store.delete("files", [str(same.relative_to(mirror))])
    ran = command("harvest", "--crawl", CRAWL)
    assert ran.status == 1
    for path, other in ((one, same), (same, one)):
        assert f"{path.relative_to(mirror)} has the same footer or page index as {other.relative_to(mirror)}" in ran.err
    ran = command("query", "*.com", "--count")
    assert (ran.status, ran.out) == (1, f"{2 * (FILES - 2)}\n")
    assert "the answer may be incomplete" in ran.err
    pq.write_table(table(["com,example4)/"]), same)
    assert command("harvest", "--crawl", CRAWL).status == 0
    assert command("query", "*.com", "--count").out == f"{2 * FILES - 1}\n"
