"""Sources that have a CDX index and an archive for each of a few captures."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalogue.surt import url_surtkey
from tests.support.archives import TIME, URL
from tests.support.cdx_indexes import make_index, replace_index
from tests.support.crawls import CRAWL

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
