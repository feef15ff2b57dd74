"""Thousands of URLs in one query: ``python -m benchmarks.clients.many_ours URL FILE`` with a URL on each line."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.clients.lookup_asking import COLUMNS, measure
from benchmarks.paced import LATENCY, RATE
from benchmarks.real_size import CRAWL
from catalogue.catalogue import Catalogue
from catalogue.errors import UnknownCrawl
from catalogue.session import Session
from catalogue.settings import Settings

SINGLE = 50
"""URLs with one query each."""


def main() -> None:
    """Harvest and query, with each index alone and with both; ask for some URLs one by one."""
    source, file = sys.argv[1:]
    urls = Path(file).read_text(encoding="utf-8").splitlines()
    folder = Path(mkdtemp())
    # Pages are not cached between steps.
    settings = Settings(source=source, cache=folder / "cache", cache_size=0, latency=LATENCY, bandwidth=RATE)
    with Catalogue(Session(folder / "data", settings)) as cat:

        def ask(patterns: list[str]) -> int:
            return sum(batch.num_rows for batch in cat.captures(patterns, columns=COLUMNS, exact_url=True).batches())

        cat.harvest(CRAWL)
        steps = [
            measure(source, "footers stored", lambda: ask(urls)),
            measure(source, "page indexes stored", lambda: ask(urls)),
            measure(source, "some URLs, one by one", lambda: sum(ask([url]) for url in urls[:SINGLE])),
        ]
        try:
            cat.harvest(CRAWL, index="cdx")
        except UnknownCrawl:
            pass
        else:
            steps += [
                measure(source, "list of blocks stored, too", lambda: ask(urls)),
                measure(source, "the same again", lambda: ask(urls)),
                measure(source, "the same, one by one", lambda: sum(ask([url]) for url in urls[:SINGLE])),
            ]
    print(json.dumps([asdict(step) for step in steps]))


if __name__ == "__main__":
    main()
