"""The slow tests with small counts; ``python -m tests.slow`` runs them at full size."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slow import both_indexes, ends, mutations, parsers, traffic
from tests.support.sources import TEMPORARY
from tests.support.synthetic_crawl import SyntheticCrawl, write_synthetic_crawl

ROWS = 20_000
"""Of the synthetic crawl."""
FINDINGS = {
    "a host with half a character": ("surt", b"dns:example\x80.com"),
    "an unprintable name of a setting": ("stored_value", b'[3, {"s\x7furce": "x"}]\n'),
    "a long name of a dataset": ("dataset", b'{"name":"' + b"x" * 20_000 + b'","key":"k","keys":"text","manifest":""}'),
    "nested captures": ("capture_list", b'{"a":' + b"[" * 100_000),
    "a long Content-Range": ("content_ranges", b"bytes " + b"0" * 20_000),
    "a form with another query in its CDX link": ("search_form", b"url=*&match=prefix"),
    "a long order": ("search_form", b"url=example.com&order=" + b"x" * 20_000),
    "a long time": ("search_form", b"url=example.com&from=2022" + b"(" * 20_000),
}
"""Bytes with which a parser failed once."""


@pytest.fixture
def folder(mirror: Path, tmp_path: Path) -> Path:
    (tmp_path / "mirror").symlink_to(mirror)  # so that none is written
    return tmp_path


@pytest.mark.timeout(400)  # longer than any step's own timeout, which shows where it hangs
def test_answers_are_right_while_three_of_ten_responses_are_faulty(folder: Path) -> None:
    figures: dict[str, Any] = traffic.run(400, 1, folder)
    assert 0.25 < figures["faulted"] / figures["requests"] < 0.35
    assert len({kind.value for kind in TEMPORARY} - figures["faults"].keys()) <= 2  # each is rare


@pytest.mark.in_soak
@pytest.mark.skipif(sys.platform != "linux", reason="the state of processes is read from /proc")
@pytest.mark.timeout(400)
def test_commands_that_end_early_say_so_in_one_line(folder: Path) -> None:
    assert sum(int(str(number)) for number in ends.run(8, 1, folder).values()) == 8


def test_damaged_files_are_refused_or_read_correctly(folder: Path) -> None:
    verdicts: Any = mutations.run(750, 1, folder)["verdicts"]
    assert min(verdicts[what] for what in ("refused", "right", "right without an index")) > 5


@pytest.mark.parametrize("name", FINDINGS)
def test_parsers_survive_earlier_findings(name: str) -> None:
    target, data = FINDINGS[name]
    getattr(parsers, target)(data)


def test_damaged_bytes_are_refused_or_parsed_consistently(folder: Path) -> None:
    accepted: Any = parsers.run(500, 1, folder)["accepted"]
    assert min(accepted.values()) > 0


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> SyntheticCrawl:
    return write_synthetic_crawl(tmp_path_factory.mktemp("synthetic") / "mirror", ROWS, 2)


def test_both_indexes_return_the_same_rows_in_order(crawl: SyntheticCrawl, tmp_path: Path) -> None:
    compared = both_indexes.compare_queries(6, 27, tmp_path, crawl)
    assert compared["rows"] > 500
    assert compared["empty"] < 3
    assert compared["known"] > 2
