"""Records of captures: ``python -m benchmarks.clients.fetch_records URL FILE CLIENT`` with a capture on each line.

``one at a time`` and ``16 at a time`` are what scripts do: a range request for each record, on connections that are
kept open, and warcio to read it. ``catalogue`` keeps them in a WARC file besides, and checks them.
"""

import http.client
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from warcio.archiveiterator import ArchiveIterator

from benchmarks.clients.lookup_asking import measure
from catalogue.catalogue import Catalogue
from catalogue.session import Session
from catalogue.settings import Settings

RATE = 5
"""Requests a second that Common Crawl is asked for at most."""
THREADS = {"one at a time": 1, "16 at a time": 16}


def main() -> None:
    """Fetch them, and say as JSON what it took."""
    source, file, client = sys.argv[1:]
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]

    def fetch() -> int:
        return (
            _ours(source, rows) if client == "catalogue" else _each(source, rows, int(client == "one at a time") or 16)
        )

    print(json.dumps(asdict(measure(source, client, fetch))))


def _ours(source: str, rows: list[dict[str, Any]]) -> int:
    with TemporaryDirectory() as folder:
        home = Path(folder)
        # Requests come a hundred times as fast as Common Crawl is asked, and cost as many bytes as there, so that what
        # is read as one is the same.
        bandwidth = 100 * Settings().bandwidth
        settings = Settings(source=source, cache=home / "cache", rate=100 * RATE, bandwidth=bandwidth)
        with Catalogue(Session(home / "data", settings)) as cat:
            return cat.fetch(rows, home / "found.warc.gz").records


def _each(source: str, rows: list[dict[str, Any]], threads: int) -> int:
    host = urlsplit(source).netloc
    local = threading.local()

    def fetch(row: dict[str, Any]) -> int:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(host)
        start = row["warc_record_offset"]
        asked = {"Range": f"bytes={start}-{start + row['warc_record_length'] - 1}"}
        local.connection.request("GET", f"/{row['warc_filename']}", headers=asked)
        body = local.connection.getresponse().read()
        return sum(len(record.content_stream().read()) > 0 for record in ArchiveIterator(BytesIO(body)))

    with ThreadPoolExecutor(threads) as executor:
        return sum(executor.map(fetch, rows))


if __name__ == "__main__":
    main()
