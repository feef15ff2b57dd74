"""cdx_toolkit, an unmodified client of index.commoncrawl.org, finds the same as a scan."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copytree
from subprocess import PIPE, Popen
from threading import Timer
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from catalogue.catalogue import Catalogue
from catalogue.demo import LoopbackServer
from catalogue.selection import stored_crawls
from catalogue.settings import Settings
from tests.support.amounts import in_soak
from tests.support.cdx_oracle import Capture, read_captures
from tests.support.padded import padded_mirror
from tests.support.serving import serving

SITE = "example.com"
LIBRARY = """
import json, sys
import cdx_toolkit
for line in sys.stdin:
    options, method, given = json.loads(line)
    fetcher = cdx_toolkit.CDXFetcher(source="cc", **options)
    answer = getattr(fetcher, method)(given.pop("url"), **given)
    print(json.dumps(answer if isinstance(answer, int) else [each.data for each in answer]), flush=True)
"""
SECONDS = 60
"""Seconds; some errors are retried for ever."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """cdx_toolkit with a home and environment of its own; one process runs all calls, because importing it is slow."""

    base: str
    home: Path
    downloads: str = ""
    _running: list[Popen[str]] = field(default_factory=list)
    """The process of the library, once started."""

    def close(self) -> None:
        for process in self._running:
            process.communicate()

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CDXT_CACHE_DIR": f"{self.home}/collinfo/",
            "CDXT_DEFAULT_MIN_RETRY_INTERVAL": "0",
            "CDXT_MAX_ERRORS": "0",
        }

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            cwd=self.home,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _library(self, method: str, url: str, crawl: list[str] | None, **given: object) -> Any:
        options = {"cc_mirror": self.base, "crawl": crawl, "warc_download_prefix": self.downloads or None}
        log = self.home / "log"
        if not self._running:
            words, environment = [sys.executable, "-c", LIBRARY], self._environment()
            with log.open("w") as errors:
                started = Popen(
                    words, cwd=self.home, env=environment, text=True, stdin=PIPE, stdout=PIPE, stderr=errors
                )
            self._running.append(started)
        (process,) = self._running
        assert process.stdin
        assert process.stdout
        timer = Timer(SECONDS, process.kill)
        timer.start()
        try:
            print(json.dumps([options, method, {"url": url, **given}]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
        finally:
            timer.cancel()
        assert answer, log.read_text()
        return json.loads(answer)

    def iter(self, url: str, *, crawl: list[str] | None = None, **given: object) -> list[dict[str, str]]:
        captures: list[dict[str, str]] = self._library("iter", url, crawl, **given)
        return captures

    def get(self, url: str, *, crawl: list[str] | None = None, **given: object) -> list[dict[str, str]]:
        captures: list[dict[str, str]] = self._library("get", url, crawl, **given)
        return captures

    def size(self, url: str, *, crawl: list[str] | None = None, **given: object) -> int:
        estimate: int = self._library("get_size_estimate", url, crawl, **given)
        return estimate

    def command(self, *words: str, crawl: str | None = None) -> str:
        which = ["--crawl", crawl] if crawl else ["--cc"]
        return self._run("-m", "cdx_toolkit.cli", "--cc-mirror", self.base, *which, *words)

    def warc(self, url: str, *, crawl: str, options: tuple[str, ...] = ()) -> list[Path]:
        self.command(*options, "warc", "--prefix", "TEST", "--warc-download-prefix", self.downloads, url, crawl=crawl)
        return sorted(self.home.glob("TEST*.warc.gz"))


@pytest.fixture(scope="module")
def base(
    mirror: Path, untaught_data: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server whose source lists all crawls; a few are harvested."""
    folder = tmp_path_factory.mktemp("clients")
    padded = padded_mirror(mirror, folder / "mirror")
    data = Path(copytree(untaught_data, folder / "data"))
    with serving(data, replace(settings, source=str(padded))) as address:
        yield address


@pytest.fixture(scope="module")
def captures(mirror: Path, harvested: Catalogue) -> dict[str, list[Capture]]:
    """All captures of the site, by crawl."""
    return {crawl: of_site(read_captures(mirror, crawl, "com,example")) for crawl in stored_crawls(harvested.session)}


@pytest.fixture(scope="module")
def all_captures(mirror: Path, crawl: str) -> list[Capture]:
    """All captures of one crawl."""
    return read_captures(mirror, crawl)


def of_site(captures: list[Capture]) -> list[Capture]:
    return [each for each in captures if each.key.startswith(("com,example)", "com,example,", "com,example:"))]


@pytest.fixture(scope="module")
def toolkit(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolkit]:
    with closing(Toolkit(base, tmp_path_factory.mktemp("toolkit"))) as made:
        yield made


@in_soak
def test_cdx_toolkit_reads_all_crawls(toolkit: Toolkit, captures: dict[str, list[Capture]]) -> None:
    found = toolkit.iter(f"*.{SITE}", from_ts="2008")
    expected = [each.fields for name in sorted(captures, reverse=True) for each in captures[name]]
    assert len(expected) > 100
    assert found == expected


@in_soak
def test_cdx_toolkit_reads_all_pages(toolkit: Toolkit, all_captures: list[Capture], crawl: str) -> None:
    assert toolkit.size("*", crawl=[crawl], as_pages=True, pageSize="1") > 1
    assert toolkit.iter("*", crawl=[crawl], pageSize="1") == [each.fields for each in all_captures]


@in_soak
def test_cdx_toolkit_ends_without_captures(toolkit: Toolkit, crawl: str) -> None:
    assert toolkit.iter("*.com", crawl=[crawl], pageSize="1", filter=["=status:299"]) == []
    assert toolkit.iter("nosuch.example") == []


@in_soak
def test_cdx_toolkit_filters_and_limits(toolkit: Toolkit, captures: dict[str, list[Capture]], crawl: str) -> None:
    expected = [each.fields for each in captures[crawl] if each.fields["status"] == "200"]
    assert len(expected) > 7
    found = toolkit.iter(f"*.{SITE}", crawl=[crawl], filter=["=status:200"], limit=7)
    assert found == expected[:7]
    got = toolkit.get(f"*.{SITE}", crawl=[crawl], filter=["=status:200"], from_ts="2008")  # else of the last year
    assert got == expected[:1000]


def test_cdx_toolkit_estimates_sizes(toolkit: Toolkit, all_captures: list[Capture], crawl: str) -> None:
    count = sum(each.key.startswith("com") for each in all_captures)
    assert abs(toolkit.size("*.com", crawl=[crawl], pageSize="1") - count) < 3000
    assert toolkit.size("nosuch.example", crawl=[crawl]) == 0


def test_cdxt_prints_lines(toolkit: Toolkit, captures: dict[str, list[Capture]], crawl: str) -> None:
    printed = toolkit.command("iter", f"{SITE}/*", crawl=crawl)
    assert len(printed.splitlines()) == sum(each.key.startswith("com,example)/") for each in captures[crawl]) > 0


def test_cdxt_downloads_records(
    base: str, mirror: Path, captures: dict[str, list[Capture]], crawl: str, tmp_path: Path
) -> None:
    expected = [each for each in captures[crawl] if each.fields["status"] == "200"][:5]
    assert len(expected) == 5
    with LoopbackServer(mirror) as archives:
        toolkit = Toolkit(base, tmp_path, archives.url.rstrip("/"))
        files = toolkit.warc(f"*.{SITE}", crawl=crawl, options=("--limit", "5", "--filter", "=status:200"))
    urls = []
    for file in files:
        with file.open("rb") as opened:
            records = ArchiveIterator(opened)
            urls += [each.rec_headers.get_header("WARC-Target-URI") for each in records if each.rec_type == "response"]
    assert Counter(urls) == Counter(each.fields["url"] for each in expected)
