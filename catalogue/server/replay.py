"""What was archived of a URL at about a time, found and fetched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.capture import capture_of
from catalogue.commoncrawl.crawls import check_crawl_name
from catalogue.query.query import time_bounds
from catalogue.records.document import Documents
from catalogue.records.metadata import metadata_of, text_of
from catalogue.records.record import Record
from catalogue.surt import Match

_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Replayed:
    """A record, and how it was found."""

    crawl: str
    record: Record


def replay(catalogue: Catalogue, crawl: str, url: str, moment: str) -> tuple[Replayed | None, tuple[str, ...]]:
    """Fetch the record of the capture of a URL, among all subsets of a crawl, that lies nearest to a time.

    Args:
        catalogue: to look into.
        crawl: its name.
        url: of which spellings are equal that have the same key; of these the one that is asked for goes first.
        moment: 1 to 14 digits, UTC. All that begins so is as near; of what is equally near it is the last.

    Returns:
        The record, None if there is no capture of it; and what of the crawl is not held, a sentence each, so that a
        capture in it might lie nearer.

    Raises:
        UnknownCrawl: if the crawl is none.
        NotHarvested: if it is not harvested.
        QueryError: if the URL is none.
        BadRecord: if the record is damaged, or not the one that the index says.
        SourceError: if it could not be had.
    """
    first, behind = time_bounds(moment, moment)
    captures = catalogue.captures(url, crawls=check_crawl_name(crawl), match=Match.EXACT)
    spelled = _spelling(url)

    def rank(row: Mapping[str, Any]) -> tuple[bool, float, float, str, int]:
        """What orders captures, the best first."""
        time = row["fetch_time"].timestamp() * 1000 if row["fetch_time"] else float("-inf")
        away = max((first or 0) - time, time - (behind or 0) + 1, 0)
        return (
            _spelling(row["url"] or "") != spelled,
            away,
            -time,
            row["warc_filename"] or "",
            row["warc_record_offset"] or 0,
        )

    best: dict[str, Any] | None = None
    for batch in captures.batches(warn=False):  # many a robots.txt was captured thousands of times
        best = min([*batch.to_pylist(), *([best] if best else [])], key=rank, default=None)
    missing = captures.plan.missing
    return Replayed(crawl, catalogue.record(capture_of(best))) if best else None, missing


def text(found: Replayed, documents: Documents) -> str | None:
    """The text of a page; None where there is none, as of a picture.

    Raises:
        BadDocument: if the document cannot be parsed.
        BadRecord: if its coding is damaged.
    """
    told: str | None = text_of(found.record, documents.look)["text"]
    return told


def described(found: Replayed, documents: Documents) -> dict[str, Any]:
    """A record but for its payload: where it lies, its headers, and what is in its document.

    Returns:
        ``crawl``, ``warc_filename``, ``warc_record_offset``, ``warc_record_length``, ``record_headers`` and
        ``http_headers`` (lists of names and values), ``http_status_line``, and ``metadata``, which is described in
        ``catalogue.records.metadata``.
    """
    record = found.record
    return {
        "crawl": found.crawl,
        "warc_filename": record.capture.filename,
        "warc_record_offset": record.capture.offset,
        "warc_record_length": record.capture.length,
        "record_headers": record.headers,
        "http_status_line": record.status_line,
        "http_headers": record.http_headers,
        "metadata": metadata_of(record, documents.look),
    }


def _spelling(url: str) -> str:
    """A URL as it is sent: without a fragment, and with what is no ASCII escaped."""
    return quote(url.partition("#")[0], safe=_PRINTABLE, errors="replace")
