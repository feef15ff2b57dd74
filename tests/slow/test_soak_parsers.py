"""Parsers of what strangers send, with bytes damaged by chance; and with those for which one of them once failed."""

from pathlib import Path

import pytest

from tests.slow.parsers import TARGETS, run

FINDINGS = {
    "a name of half a character": ("surt", b"dns:example\x80.com"),
    "a setting's name that is no text for a terminal": ("held", b'[3, {"s\x7furce": "x"}]\n'),
    "a table's name of any length": (
        "table",
        b'{"name":"' + b"x" * 20_000 + b'","key":"k","keys":"text","manifest":""}',
    ),
    "captures in lists in lists": ("listed", b'{"a":' + b"[" * 100_000),
    "a range of any length": ("content_ranges", b"bytes " + b"0" * 20_000),
    "a form whose link to the CDX API asks for something else": ("api_request", b"url=*&matchType=prefix"),
    "an order of any length": ("api_request", b"url=example.com&order=" + b"x" * 20_000),
    "a time of any length": ("api_request", b"url=example.com&from=2022" + b"(" * 20_000),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_what_was_found(name: str) -> None:
    target, data = FINDINGS[name]
    TARGETS[target].accepts(data)


@pytest.mark.timeout(600)
def test_damaged_bytes_are_refused_or_make_sense(mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "mirror").symlink_to(mirror)  # so that it need not make one
    figures = run(4000, 1, tmp_path)
    accepted = figures["accepted"]
    assert isinstance(accepted, dict)
    assert accepted.keys() == TARGETS.keys()
    assert min(accepted.values()) > 0
