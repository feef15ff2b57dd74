"""Look up URLs one by one, in one process: ``python -m benchmarks.clients.look_ups SOURCE DATA FILE RATE``."""

import sys
from pathlib import Path

from catalogue.catalogue import Catalogue
from catalogue.session import Session
from catalogue.settings import Settings


def main() -> None:
    source, data, file, rate = sys.argv[1:]
    with Catalogue(Session(Path(data), Settings(source=source, rate=float(rate), cache_size=0))) as cat:
        for url in Path(file).read_text(encoding="utf-8").splitlines():
            if not cat.captures([url], exact_url=True).to_arrow().num_rows:
                message = f"no capture of {url}"
                raise ValueError(message)


if __name__ == "__main__":
    main()
