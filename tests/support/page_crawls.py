"""Crawls of a few pages and redirects: a CDX index and an archive for each record."""

import gzip
from datetime import UTC, datetime
from pathlib import Path

from tests.support.archives import warc
from tests.support.cdx_sources import Archived, write_source

OLD, NEWER = "CC-MAIN-2022-05", "CC-MAIN-2024-22"


def write_crawl(folder: Path, crawl: str, *captures: tuple[str, str, str]) -> None:
    """Write the CDX index of a crawl and its records.

    Captures have a URL, a time, and the target of a redirect, the status of another answer, or ``""`` for a page, whose
    text is its URL and time.
    """
    archived = []
    for number, (url, time, answer) in enumerate(captures):
        redirect = "" if answer.isdigit() else answer
        status = answer if answer.isdigit() else "301" if redirect else "200"
        location = f"Location: {redirect}\r\n" if redirect else ""
        head = f"HTTP/1.1 {status} Any\r\nContent-Type: text/html\r\n{location}\r\n"
        date = f"{datetime.strptime(time, '%Y%m%d%H%M%S').replace(tzinfo=UTC):%Y-%m-%dT%H:%M:%SZ}"
        member = gzip.compress(warc(f"<p>{url} {time}</p>".encode(), head=head, WARC_Target_URI=url, WARC_Date=date))
        subset = "warc" if status == "200" else "crawldiagnostics"
        subset = "robotstxt" if url.endswith("/robots.txt") else subset
        path = f"crawl-data/{crawl}/segments/1/{subset}/{number}.warc.gz"
        fields = {"status": status, "redirect": redirect or None, "mime": None}
        archived.append(Archived(member, url, path, fields=fields, time=time))
    write_source(folder, archived, crawl)
