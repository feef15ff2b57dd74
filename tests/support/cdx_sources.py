"""Sources that have a CDX index and an archive for each of a few captures."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalogue.surt import url_surtkey
from tests.support.archives import TIME, URL, warc
from tests.support.cdx_indexes import make_index, replace_index
from tests.support.crawls import CRAWL

OLD, NEWER = "CC-MAIN-2022-05", "CC-MAIN-2024-22"
FOLDER = f"crawl-data/{CRAWL}/segments/1/warc"


@dataclass(frozen=True)
class Archived:
    """A capture, whose archive has one record."""

    member: bytes
    url: str = URL
    filename: str = f"{FOLDER}/x.warc.gz"
    """Of its line."""
    path: str = ""
    """Of its archive in the source, if it is another one than in the line."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of its line; None leaves one out."""
    time: str = f"{TIME:%Y%m%d%H%M%S}"

    @property
    def line(self) -> str:
        known = {"url": self.url, "mime": "text/html", "status": "200", "length": str(len(self.member)), "offset": "0"}
        every = known | {"filename": self.filename} | self.fields
        fields = {name: value for name, value in every.items() if value is not None}
        return f"{url_surtkey(self.url)} {self.time} {json.dumps(fields)}"


def write_source(folder: Path, captures: Iterable[Archived], crawl: str = CRAWL) -> str:
    captures = [*captures]
    for each in captures:
        archive = folder / (each.path or each.filename)
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.write_bytes(each.member)
    replace_index(folder, make_index(crawl, sorted((each.line for each in captures), key=str.encode)))
    return str(folder)


def write_crawl(folder: Path, crawl: str, *captures: tuple[str, str, str]) -> None:
    """Write the CDX index of a crawl of pages and redirects, and its records.

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
