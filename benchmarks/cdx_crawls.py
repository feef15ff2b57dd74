"""Crawls with both indexes, for CDX servers, and queries for their captures.

The CDX index has blocks of 3,000 lines, as Common Crawl's: ``catalogue`` and pywb read the same blocks.
"""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import mkdtemp
from urllib.parse import urlencode

from benchmarks.peers import CACHE
from benchmarks.report import say
from benchmarks.zipnum import LINES, publish_cluster, write_cluster
from catalogue.cdx.cluster import index_folder
from catalogue.demo import write_miniature
from tests.support.cdx_oracle import plain_key
from tests.support.synthetic_crawl import CRAWL as SYNTHETIC
from tests.support.synthetic_crawl import write_synthetic_crawl

EXACT, HOST, DOMAIN = "Exact URL", "Host", "Domain"
"""Kinds of queries."""

MINIATURE = "CC-MAIN-2022-05"
_VERSION = 2
"""To be raised when the crawls change: they are cached."""
PORT = re.compile(r"[^)]*:\d+\)")
"""Start of the keys of hosts with an explicit port."""
_SHARE = 20
"""URLs to draw from, for each that is drawn."""
_MOST_LINES = 5_000
"""Lines of the answer to a query; more do not fit in a page of five blocks."""


@dataclass(frozen=True, slots=True)
class Crawl:
    """A crawl in a folder that is laid out as data.commoncrawl.org, and its CDX index in a folder for pywb."""

    name: str
    captures: int
    folder: Path
    cluster: Path

    def lines(self) -> Iterator[str]:
        """Yield the lines of the CDX index, without line ends."""
        return _lines(self.folder, self.name)


def small_crawl() -> Crawl:
    """Return the miniature crawl with 40,000 captures."""
    return _crawl(MINIATURE, 40_000)


def large_crawl() -> Crawl:
    """Return a synthetic crawl with two million captures; it is written once, which takes some minutes."""
    return _crawl(SYNTHETIC, 2_000_000)


def _crawl(name: str, captures: int) -> Crawl:
    complete = CACHE / f"cdx-{_VERSION}-{name}-{captures}"
    if not complete.exists():
        say(f"writing a crawl of {captures:,} captures")
        CACHE.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(prefix="crawl-", dir=CACHE))
        folder, cluster = made / "crawl", made / "cluster"
        if name == MINIATURE:
            write_miniature(folder, pages_per_crawl=captures)
        else:
            write_synthetic_crawl(folder, captures, 1)
        cluster.mkdir()
        write_cluster(cluster, name, _lines(folder, name))
        rmtree(folder / index_folder(name))
        publish_cluster(cluster, folder, name)
        made.rename(complete)
    return Crawl(name, captures, complete / "crawl", complete / "cluster")


def _lines(folder: Path, crawl: str) -> Iterator[str]:
    for shard in sorted((folder / index_folder(crawl)).glob("cdx-*.gz")):
        with gzip.open(shard, "rt", encoding="utf-8", newline="\n") as lines:
            yield from (line.rstrip("\n") for line in lines)


# ---- queries ----


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries of each kind, for captures of a crawl."""

    exact: Sequence[str]
    """Few, of different hosts."""
    host: Sequence[str]
    domain: Sequence[str]
    once: Sequence[str]
    """Many different exact URLs."""
    apart: Sequence[str]
    """Exact URLs, each in another block."""

    def by_kind(self) -> dict[str, Sequence[str]]:
        """Return the queries that are repeated, by the title of the kind."""
        return {EXACT: self.exact, HOST: self.host, DOMAIN: self.domain}


def draw(crawl: Crawl, count: int, once: int) -> Queries:
    """Draw queries, uniformly from all hosts, domains or URLs.

    Args:
        crawl: the crawl.
        count: number of queries of each kind, at most.
        once: number of different exact URLs.
    """
    rng, share = Random(1), _SHARE * once / crawl.captures
    urls: dict[str, list[str]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    by_block: dict[int, str] = {}
    for number, line in enumerate(crawl.lines()):
        key = line.split(" ", 1)[0]
        if not PORT.match(key):
            sizes[host := _host_of(key)] += 1
            if not key[:1].isdigit() and (host not in urls or rng.random() < share):
                url = json.loads(line.split(" ", 2)[2])["url"]
                if _has_plain_key(url, key):
                    urls[host].append(url)
                    if number % LINES > LINES // 4:  # not at the start, where the block before is read, too
                        by_block.setdefault(number // LINES, url)
    by_domain: dict[str, int] = defaultdict(int)
    for host, size in sizes.items():
        by_domain[_domain_of(host)] += size
    hosts = sorted(host for host in urls if "." in host and by_domain[_domain_of(host)] <= _MOST_LINES)
    domains = sorted({_domain_of(host) for host in hosts})
    drawn = rng.sample(hosts, min(count, len(hosts)))
    distinct = sorted({url for host in hosts for url in urls[host]})
    return Queries(
        exact=[_query(crawl, rng.choice(urls[host])) for host in drawn],
        host=[_query(crawl, host, matchType="host") for host in drawn],
        domain=[_query(crawl, f"*.{domain}") for domain in rng.sample(domains, min(count, len(domains)))],
        apart=[_query(crawl, url) for url in rng.sample([*by_block.values()], min(count, len(by_block)))],
        once=[_query(crawl, url) for url in rng.sample(distinct, min(once, len(distinct)))],
    )


def _host_of(key: str) -> str:
    return ".".join(reversed(key.partition(")")[0].split(",")))


def _domain_of(host: str) -> str:
    return ".".join(host.split(".")[-2:])


def _has_plain_key(url: str, key: str) -> bool:
    """Whether pywb and the crawler agree on the key; their rules differ in rare cases."""
    try:
        return plain_key(url) == key
    except ValueError:
        return False


def _query(crawl: Crawl, url: str, **more: str) -> str:
    return f"/{crawl.name}-index?{urlencode({'url': url, 'output': 'json', **more})}"
