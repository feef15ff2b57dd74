"""Clients of index.commoncrawl.org, unmodified or reimplemented, end and find the same as a scan."""

import gzip
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from warcio.archiveiterator import ArchiveIterator

from catalogue.catalogue import Catalogue
from catalogue.demo import LoopbackServer
from catalogue.settings import Settings
from catalogue.stored import stored_crawls
from tests.support.cdx_clients import (
    WAYMORE_CODES,
    WAYMORE_MIMES,
    Aborted,
    cdx_index_client,
    comcrawl,
    gau,
    waymore,
)
from tests.support.cdx_oracle import Capture, read_captures
from tests.support.cdx_toolkit_runs import Toolkit
from tests.support.padded import padded_mirror
from tests.support.serving import serving

SITE = "example.com"


@pytest.fixture(scope="module")
def newest(harvested: Catalogue) -> str:
    return stored_crawls(harvested.session)[0]


@pytest.fixture(scope="module")
def base(
    mirror: Path, untaught_data: Path, settings: Settings, newest: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server whose source lists all crawls; a few are harvested, with the newest."""
    folder = tmp_path_factory.mktemp("clients")
    padded = padded_mirror(mirror, folder / "mirror", newest=newest)
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


def test_cdx_toolkit_reads_all_crawls(toolkit: Toolkit, captures: dict[str, list[Capture]]) -> None:
    found = toolkit.iter(f"*.{SITE}", from_ts="2008")
    expected = [each.fields for name in sorted(captures, reverse=True) for each in captures[name]]
    assert len(expected) > 100
    assert found == expected


def test_cdx_toolkit_reads_all_pages(toolkit: Toolkit, all_captures: list[Capture], crawl: str) -> None:
    assert toolkit.size("*", crawl=[crawl], as_pages=True, pageSize="1") > 1
    assert toolkit.iter("*", crawl=[crawl], pageSize="1") == [each.fields for each in all_captures]


def test_cdx_toolkit_ends_without_captures(toolkit: Toolkit, crawl: str) -> None:
    assert toolkit.iter("*.com", crawl=[crawl], pageSize="1", filter=["=status:299"]) == []
    assert toolkit.iter("nosuch.example") == []


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


@pytest.mark.parametrize("gzipped", [False, True])
def test_cdx_index_client_downloads_all_pages(
    base: str, all_captures: list[Capture], crawl: str, *, gzipped: bool
) -> None:
    (done,) = cdx_index_client(
        base, "*", crawl=crawl, options={"output": "json", "fl": "url,timestamp"}, page_size=1, gzipped=gzipped
    )
    assert done.pages == len(done.files) > 1
    assert (done.without_results, done.retried, done.given_up) == ([], [], [])
    assert done.compressed == (set(done.files) if gzipped else set())
    pages = [gzip.decompress(done.files[page]) if gzipped else done.files[page] for page in range(done.pages)]
    assert len(b"".join(pages).decode().splitlines()) == len(all_captures)


def test_cdx_index_client_ends_in_every_crawl(base: str, captures: dict[str, list[Capture]]) -> None:
    done = cdx_index_client(base, f"{SITE}/*", crawl="all", options={"output": "json"})
    assert len(done) >= 60
    assert sum(each.pages for each in done) == sum(len(each.files) for each in done) >= len(captures)
    assert not any(each.given_up for each in done)


def test_comcrawl_finds_the_first_page_of_every_crawl(base: str, captures: dict[str, list[Capture]]) -> None:
    found = comcrawl(base, f"*.{SITE}", threads=4)
    expected = [each.fields for of in captures.values() for each in of]
    assert Counter(map(str, found)) == Counter(map(str, expected))


def test_waymore_finds_links(base: str, captures: dict[str, list[Capture]]) -> None:
    unexpected = ("warc/revisit", *WAYMORE_MIMES.split(","))
    expected = {
        each.fields["url"]
        for of in captures.values()
        for each in of
        if not each.fields.get("mime", "").startswith(unexpected)
        and not each.fields["status"].startswith(tuple(WAYMORE_CODES.split(",")))
    }
    found = waymore(base, SITE)
    assert found.links == expected
    assert (found.stopped, found.failed, found.unread) == (False, [], 0)
    assert found.requested >= 60


def test_gau_finds_the_urls_of_the_newest_crawl(base: str, captures: dict[str, list[Capture]], newest: str) -> None:
    assert gau(base, SITE) == [each.fields["url"] for each in captures[newest]]
    filtered = gau(base, SITE, filters=[("filter", "!=status:404"), ("filter", "mime:html")])
    assert filtered == [
        each.fields["url"]
        for each in captures[newest]
        if each.fields["status"] != "404" and "html" in each.fields.get("mime", "")
    ]


def test_gau_stops_without_captures(base: str) -> None:
    assert gau(base, "nosuch.example") == []
    with pytest.raises(Aborted, match="answers 404"):
        gau(base, SITE, filters=[("filter", "=status:299")])
