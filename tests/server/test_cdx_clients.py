"""cdx_toolkit, an unmodified client of index.commoncrawl.org, finds the same as a scan."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.crawls import COLLINFO
from catalogue.demo import LoopbackServer
from catalogue.settings import Settings
from tests.support.cdx_oracle import Capture, read_captures
from tests.support.serving import serving

SITE = "example.com"
LIBRARY = """
import json, sys
import cdx_toolkit
for line in sys.stdin:
    options, method, url, given = json.loads(line)
    answer = getattr(cdx_toolkit.CDXFetcher(source="cc", **options), method)(url, **given)
    print(json.dumps(answer if isinstance(answer, int) else [each.data for each in answer]), flush=True)
"""
SECONDS = 60
"""Seconds; some errors are retried for ever."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    base: str
    home: Path

    def run(self, *words: str, given: str = "") -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "CDXT_CACHE_DIR": f"{self.home}/collinfo/"}
        environment |= {"CDXT_DEFAULT_MIN_RETRY_INTERVAL": "0", "CDXT_MAX_ERRORS": "0"}
        options: dict[str, Any] = {"cwd": self.home, "env": environment, "input": given, "timeout": SECONDS}
        done = subprocess.run([sys.executable, *words], **options, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def ask(self, *calls: tuple[str, str, dict[str, Any]], crawl: str = "") -> list[Any]:
        """Call methods of the library with a URL and options, in one process, because importing it is slow."""
        options = {"cc_mirror": self.base, "crawl": [crawl] if crawl else None}
        given = "".join(json.dumps([options, *call]) + "\n" for call in calls)
        return [json.loads(line) for line in self.run("-c", LIBRARY, given=given).splitlines()]

    def command(self, crawl: str, *words: str) -> str:
        return self.run("-m", "cdx_toolkit.cli", "--cc-mirror", self.base, "--crawl", crawl, *words)


@pytest.fixture(scope="module")
def base(
    mirror: Path, untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server whose source lists 70 crawls more, since cdx_toolkit believes no short list; a few are harvested."""
    folder = tmp_path_factory.mktemp("clients")
    listed = Path(copytree(mirror, folder / "mirror")) / COLLINFO
    names = [f"CC-MAIN-{year}-{week:02}" for year in range(2014, 2024) for week in range(3, 52, 7)]
    crawls = {name: listed_crawl(name) for name in (*names, "CC-MAIN-2012", "CC-MAIN-2008-2009")}
    crawls |= {each["id"]: each for each in json.loads(listed.read_bytes())}
    listed.write_text(json.dumps([crawls[name] for name in sorted(crawls, reverse=True)]), encoding="utf-8")
    data = Path(copytree(untaught_data, folder / "data"))
    with serving(data, replace(settings, source=str(folder / "mirror"))) as address:
        yield address


def listed_crawl(name: str) -> dict[str, str]:
    """Return an entry of https://index.commoncrawl.org/collinfo.json."""
    server, year = f"https://index.commoncrawl.org/{name}", name[8:12]
    times = {"from": f"{year}-01-01T00:00:00", "to": f"{year}-12-31T00:00:00"}
    return {"id": name, "name": f"{name} Index", "timegate": f"{server}/", "cdx-api": f"{server}-index", **times}


@pytest.fixture(scope="module")
def captures(mirror: Path, harvested: Catalogue) -> dict[str, list[Capture]]:
    every = {crawl: read_captures(mirror, crawl, "com,example") for crawl in harvested.session.stored_crawls()}
    return {name: [each for each in some if each.key[11] in "),:"] for name, some in every.items()}


@pytest.fixture(scope="module")
def toolkit(base: str, tmp_path_factory: pytest.TempPathFactory) -> Toolkit:
    return Toolkit(base, tmp_path_factory.mktemp("toolkit"))


@pytest.mark.in_soak
def test_cdx_toolkit_reads_all_crawls_and_pages_filters_and_limits(
    toolkit: Toolkit, mirror: Path, captures: dict[str, list[Capture]], crawl: str
) -> None:
    found, nothing = toolkit.ask(("iter", f"*.{SITE}", {"from_ts": "2008"}), ("iter", "nosuch.example", {}))
    expected = [each.fields for name in sorted(captures, reverse=True) for each in captures[name]]
    assert len(expected) > 100
    assert (found, nothing) == (expected, [])
    good = [each.fields for each in captures[crawl] if each.fields["status"] == "200"]
    assert len(good) > 7
    pages, found, *filtered = toolkit.ask(
        ("get_size_estimate", "*", {"as_pages": True, "pageSize": "1"}),
        ("iter", "*", {"pageSize": "1"}),
        ("iter", f"*.{SITE}", {"filter": ["=status:200"], "limit": 7}),
        ("get", f"*.{SITE}", {"filter": ["=status:200"], "from_ts": "2008"}),  # else of the last year
        ("iter", "*.com", {"pageSize": "1", "filter": ["=status:299"]}),
        crawl=crawl,
    )
    assert pages > 1
    assert found == [each.fields for each in read_captures(mirror, crawl)]
    assert filtered == [good[:7], good[:1000], []]


def test_cdx_toolkit_estimates_sizes(toolkit: Toolkit, mirror: Path, crawl: str) -> None:
    calls: Any = ("get_size_estimate", "*.com", {"pageSize": "1"}), ("get_size_estimate", "nosuch.example", {})
    estimate, nothing = toolkit.ask(*calls, crawl=crawl)
    assert abs(estimate - len(read_captures(mirror, crawl, "com"))) < 3000
    assert nothing == 0


def test_cdxt_prints_lines_and_downloads_records(
    toolkit: Toolkit, mirror: Path, captures: dict[str, list[Capture]], crawl: str
) -> None:
    printed = toolkit.command(crawl, "iter", f"{SITE}/*")
    assert len(printed.splitlines()) == sum(each.key.startswith("com,example)/") for each in captures[crawl]) > 0
    expected = [each for each in captures[crawl] if each.fields["status"] == "200"][:5]
    assert len(expected) == 5
    with LoopbackServer(mirror) as archives:
        place = ("--prefix", "TEST", "--warc-download-prefix", archives.url.rstrip("/"))
        toolkit.command(crawl, "--limit", "5", "--filter", "=status:200", "warc", *place, f"*.{SITE}")
    urls = []
    for file in toolkit.home.glob("TEST*.warc.gz"):
        with file.open("rb") as opened:
            records = ArchiveIterator(opened)
            urls += [each.rec_headers.get_header("WARC-Target-URI") for each in records if each.rec_type == "response"]
    assert Counter(urls) == Counter(each.fields["url"] for each in expected)
