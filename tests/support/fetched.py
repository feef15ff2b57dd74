"""Read fetched records with warcio."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from catalogue import Catalogue

MANY = "*.org"
"""Some hundred records of all archives of a crawl."""


def many_rows(harvested: Catalogue, crawl: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = harvested.captures(MANY, crawls=crawl, subsets="all").to_arrow().to_pylist()
    return found


def records_in(*files: Path) -> list[tuple[str, str, bytes]]:
    """Record id, URL and content of what the index knows, in the order of the files."""
    found = []
    for file in files:
        with file.open("rb") as opened:
            for number, each in enumerate(ArchiveIterator(opened, check_digests="raise")):
                assert (each.rec_type == "warcinfo") is (number == 0)
                if number:
                    headers = each.rec_headers
                    ident, url = headers.get_header("WARC-Record-ID"), headers.get_header("WARC-Target-URI")
                    found.append((ident, url, each.raw_stream.read()))
    return found


def check(*files: Path) -> None:
    checker = Checker(SimpleNamespace(inputs=[str(file) for file in files], verbose=False))
    checker.process_all()
    assert checker.exit_value == 0
