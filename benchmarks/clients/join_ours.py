"""A join of keys with a crawl: ``python -m benchmarks.clients.join_ours HOW SOURCE CRAWL DATA KEYS OUTPUT``."""

import json
import sys
from pathlib import Path

from catalogue.catalogue import Catalogue
from catalogue.session import Session
from catalogue.settings import Settings


def main() -> None:
    how, source, crawl, data, keys, output = sys.argv[1:]
    with Catalogue(Session(Path(data), Settings(source=source, cache_size=0))) as cat:
        if how == "harvest":
            cat.harvest(crawl, pages=True)
            return
        done = cat.join(keys, output, how=how, crawls=crawl)
        about = {"requests": done.requests, "bytes": done.bytes, "complete": done.complete, "slices": done.slices}
    print(json.dumps(about))


if __name__ == "__main__":
    main()
