"""Servers and proxies that send surplus responses on a connection, and equal files."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from catalogue.harvest.tails import FIRST_TAIL_WITH_PAGES
from catalogue.parquet.footer import USUAL_TAIL
from catalogue.source.byte_ranges import SuffixRange
from catalogue.source.http import HttpSource
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.crawls import CRAWL, crawl_of, index_path, table
from tests.support.faults import FaultServer, Step

FILES = 6


def written(folder: Path, tail: int = USUAL_TAIL) -> Path:
    """Write files of different sizes that are longer than their requested ends, as those of Common Crawl are."""
    texts = [pa.array([Random(number).randbytes(tail + number).hex(), ""]) for number in range(FILES)]
    keys = ([f"com,example{number})/", f"com,example{number})/a"] for number in range(FILES))
    return crawl_of(folder, *(table(some, text=text) for some, text in zip(keys, texts, strict=True)))


@pytest.mark.in_part(5)
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("step", [Step.TWICE, Step.TWICE_SLOWLY, Step.BEHIND])
@pytest.mark.parametrize("pages", [False, True])
def test_each_file_gets_its_own_footer_from_out_of_step_connections(
    tmp_path: Path, step: Step, connections: int, *, pages: bool
) -> None:
    mirror = written(tmp_path / "mirror", FIRST_TAIL_WITH_PAGES if pages else USUAL_TAIL)
    with FaultServer(mirror) as server:
        server.step = step
        with catalogue_in(tmp_path, server.url, connections=connections) as cat:
            (outcome,) = cat.harvest(CRAWL, pages=pages)
            assert (outcome.failures, outcome.progress.done) == ({}, FILES)
    with catalogue_in(tmp_path, mirror) as cat:
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
        with catalogue_in(tmp_path, server.url) as cat:
            cat.harvest(CRAWL)
        ranges = [exchange.range_header for exchange in server.settle() if exchange.path.endswith(".parquet")]
    assert len(ranges) == len({*ranges}) == FILES


def test_files_with_equal_footers_are_stored_and_reported_by_check(tmp_path: Path) -> None:
    """One of the responses may be for the other file; the source may also have equal files."""
    mirror = written(tmp_path / "mirror")
    one, same = (index_path(mirror, number) for number in (1, 4))
    same.write_bytes(one.read_bytes())
    command = Command(tmp_path / "data", str(mirror), tmp_path)
    assert command("harvest", "--crawl", CRAWL).status == 0
    ran = command("query", "*.com", "--count", "--index", "columnar")
    assert (ran.status, ran.out) == (0, f"{2 * FILES}\n")
    checked = command("check")
    assert checked.status == 1
    for path in (one, same):
        assert str(path.relative_to(mirror)) in checked.out + checked.err
