"""The slow tests with small counts; ``python -m tests.slow`` runs them at full size."""

from pathlib import Path
from typing import Any

import pytest

from tests.slow import mutations, parsers, traffic
from tests.support.sources import TEMPORARY

FINDINGS = {
    "a host with half a character": ("surt", b"dns:example\x80.com"),
    "an unprintable name of a setting": ("stored_value", b'[3, {"s\x7furce": "x"}]\n'),
    "a long name of a dataset": ("dataset", b'{"name":"' + b"x" * 20_000 + b'","key":"k","keys":"text","manifest":""}'),
    "nested captures": ("capture_list", b'{"a":' + b"[" * 100_000),
    "a long Content-Range": ("content_ranges", b"bytes " + b"0" * 20_000),
    "a form with another query in its CDX link": ("search_form", b"url=*&matchType=prefix"),
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
    figures: dict[str, Any] = traffic.run(1500, 1, folder)
    assert 0.25 < figures["faulted"] / figures["requests"] < 0.35
    assert {kind.value for kind in TEMPORARY} <= figures["faults"].keys()


def test_damaged_files_are_refused_or_read_correctly(folder: Path) -> None:
    verdicts: Any = mutations.run(400, 1, folder)["verdicts"]
    assert min(verdicts[what] for what in ("refused", "right", "right without an index")) > 10


@pytest.mark.parametrize("name", FINDINGS)
def test_parsers_survive_earlier_findings(name: str) -> None:
    target, data = FINDINGS[name]
    getattr(parsers, target)(data)


def test_damaged_bytes_are_refused_or_parsed_consistently(folder: Path) -> None:
    accepted: Any = parsers.run(1000, 1, folder)["accepted"]
    assert min(accepted.values()) > 0
