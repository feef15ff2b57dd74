"""Thousands of URLs in one query: ``python -m benchmarks.clients.many_ours URL FILE INDEX`` with a URL on each line.

The index is ``cdx``, where URLs are only asked for one by one, or ``both``.
"""

import json
import sys
from contextlib import suppress
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
    source, file, index = sys.argv[1:]
    urls = Path(file).read_text(encoding="utf-8").splitlines()
    folder = Path(mkdtemp())
    # Pages are not cached between steps.
    settings = Settings(source=source, cache=folder / "cache", cache_size=0, latency=LATENCY, bandwidth=RATE)
    with Catalogue(Session(folder / "data", settings)) as cat:

        def ask(patterns: list[str]) -> int:
            return sum(batch.num_rows for batch in cat.captures(patterns, columns=COLUMNS, exact_url=True).batches())

        def ask_one_by_one() -> int:
            return sum(ask([url]) for url in urls[:SINGLE])

        if index == "cdx":
            cat.harvest(CRAWL, index="cdx")
            steps = [measure(source, "list of blocks stored, one by one", ask_one_by_one)]
        else:
            cat.harvest(CRAWL)
            steps = [
                measure(source, "footers stored", lambda: ask(urls)),
                measure(source, "the same a second time", lambda: ask(urls)),
                measure(source, "some URLs, one by one", ask_one_by_one),
            ]
            with suppress(UnknownCrawl):
                cat.harvest(CRAWL, index="cdx")
                steps += [
                    measure(source, "list of blocks stored, too", lambda: ask(urls)),
                    measure(source, "the same by both again", lambda: ask(urls)),
                    measure(source, "the same by both, one by one", ask_one_by_one),
                ]
    print(json.dumps([asdict(step) for step in steps]))


if __name__ == "__main__":
    main()
