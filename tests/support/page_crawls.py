"""Crawls of a few pages and redirects: a CDX index and an archive for each record."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

from catalogue.surt import url_surtkey
from tests.support.archives import warc
from tests.support.cdx_indexes import make_index, replace_index

OLD, NEWER = "CC-MAIN-2022-05", "CC-MAIN-2024-22"


def write_crawl(folder: Path, crawl: str, *captures: tuple[str, str, str]) -> None:
    """Write the CDX index of a crawl and its records.

    Args:
        folder: of the source.
        crawl: its name.
        captures: URL, time, and the target of a redirect, the status of another answer, or ``""`` for a page, whose
            text is its URL and time.
    """
    lines = []
    for number, (url, time, answer) in enumerate(captures):
        redirect = "" if answer.isdigit() else answer
        status = answer if answer.isdigit() else "301" if redirect else "200"
        location = f"Location: {redirect}\r\n" if redirect else ""
        head = f"HTTP/1.1 {status} Any\r\nContent-Type: text/html\r\n{location}\r\n"
        date = f"{datetime.strptime(time, '%Y%m%d%H%M%S').replace(tzinfo=UTC):%Y-%m-%dT%H:%M:%SZ}"
        body = f"<p>{url} {time}</p>".encode()
        member = gzip.compress(warc(body, head=head, WARC_Target_URI=url, WARC_Date=date))
        subset = "warc" if status == "200" else "crawldiagnostics"
        path = f"crawl-data/{crawl}/segments/1/{subset}/{number}.warc.gz"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(member)
        place = {"length": str(len(member)), "offset": "0", "filename": path}
        described = {"url": url, "status": status} | ({"redirect": redirect} if redirect else {})
        lines.append(f"{url_surtkey(url)} {time} {json.dumps(described | place)}")
    replace_index(folder, make_index(crawl, sorted(lines)))
