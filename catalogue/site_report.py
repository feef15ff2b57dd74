"""What a crawl has of a site."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from catalogue.commoncrawl.crawls import ROBOTS, SUBSETS, CrawlWords
from catalogue.errors import BadRecord, NotArchived, QueryError, SourceError
from catalogue.find_captures import find_captures
from catalogue.formatting import ReprMixin, clock, in_utc, join_first, number, plural, printable
from catalogue.get_page import get_page
from catalogue.parquet.arrow_arrays import text
from catalogue.plan.plan import ReadPlan
from catalogue.query.filters import DECLARED_TYPE, DETECTED_TYPE
from catalogue.query.query import Query
from catalogue.query.resolved_query import is_untyped
from catalogue.records.page import Page
from catalogue.selection import only_crawl, select_listed
from catalogue.session import Session
from catalogue.surt.pattern import parse_pattern

_COLUMNS = ("fetch_time", "fetch_status", "content_languages")
_NOT_MODIFIED = 304
_REDIRECT = 3
_ROBOTS_FILE = "/robots.txt"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, repr=False)
class SiteReport(ReprMixin):
    """Captures of a host and its subdomains in a crawl, by kind; ``Catalogue.site`` makes it."""

    site: str
    crawl: str
    pages: int
    redirects: int
    not_modified: int
    """Pages that had not changed since an earlier crawl (status 304)."""
    errors: int
    robots: dict[str, int]
    """Captures of robots.txt files by status; the most frequent first, as in the others."""
    first_fetch: datetime | None
    last_fetch: datetime | None
    types: dict[str, int]
    """Pages by media type: the detected one; in old crawls, else the declared one."""
    languages: dict[str, int]
    """Pages by language (ISO 639-3); a page may have several."""
    robots_txt: Page | None
    """The newest archived robots.txt of the host; None if its captures redirect to other pages."""
    missing: tuple[str, ...]
    """Sentences about what could not be read; if any, the report may be incomplete."""

    @property
    def complete(self) -> bool:
        return not self.missing

    def summary(self) -> dict[str, Any]:
        """Return the report as values of JSON, with the text of robots.txt."""
        page = self.robots_txt
        archived = page and {"url": page.url, "time": page.time, "status": page.status, "text": page.text}
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "missing"}
        return found | {"robots_txt": archived, "complete": self.complete, "missing": self.missing}

    def _line(self) -> str:
        return f"of {self.site} in {self.crawl}: {plural(self.pages, 'page')}"

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield names and texts of what was found."""
        yield "pages", number(self.pages)
        yield "redirects", number(self.redirects)
        if self.not_modified:
            yield "not modified", number(self.not_modified)
        yield "errors", number(self.errors)
        yield "robots.txt captures", _listed(self.robots) or "0"
        if self.first_fetch and self.last_fetch:
            yield "first fetch", f"{clock(self.first_fetch)} UTC"
            yield "last fetch", f"{clock(self.last_fetch)} UTC"
        yield "content types", _listed(self.types) or "-"
        yield "languages", _listed(self.languages) or "-"

    def _rows(self) -> Iterator[tuple[str, str]]:
        return self.details()

    def _notes(self) -> Iterator[str]:
        yield from (f"The report may be incomplete: {problem}" for problem in self.missing)


def _listed(counts: dict[str, int]) -> str:
    return join_first([f"{name} ({count:,})" for name, count in counts.items()], 5)


def site_report(
    session: Session, site: str, *, crawl: CrawlWords = "latest", approve: Callable[[ReadPlan], None] | None = None
) -> SiteReport:
    """Report what a crawl has of a site; see ``Catalogue.site``."""
    host = _host(site)
    selected = select_listed(session, crawl)
    name = only_crawl(selected.crawls)
    mime = (DETECTED_TYPE, DECLARED_TYPE) if is_untyped(name) else (DETECTED_TYPE,)
    captures = find_captures(session, Query.of(f"*.{host}", crawls=name, subsets=SUBSETS, columns=(*_COLUMNS, *mime)))
    if approve:
        captures = captures.agreed(approve)
    statuses, types, languages = Counter[tuple[str, int | None]](), Counter[str | None](), Counter[str]()
    times: list[datetime] = []
    with session.bars("parts") as bar:
        for batch in captures.batches(warn=False, report=bar):
            pages = batch.filter(pc.equal(batch.column("subset"), text(SUBSETS[0])))
            statuses.update(zip(*(batch.column(each).to_pylist() for each in ("subset", "fetch_status")), strict=True))
            types.update(_counts(pc.coalesce(*map(pages.column, mime))))
            for together, count in _counts(pages.column("content_languages")).items():
                languages.update(dict.fromkeys((together or UNKNOWN).split(","), count))
            ends = pc.min_max(batch.column("fetch_time").cast(pa.timestamp("ms"))).as_py()  # in UTC, without a zone
            times += [in_utc(each) for each in ends.values() if each]
    diagnosed = Counter({status: count for (subset, status), count in statuses.items() if subset == SUBSETS[1]})
    redirects = sum(n for status, n in diagnosed.items() if status and status // 100 == _REDIRECT)
    not_modified = diagnosed[_NOT_MODIFIED]
    robots = Counter({f"{s or UNKNOWN}": count for (subset, s), count in statuses.items() if subset == ROBOTS})
    archived, problem = _archived_robots(session, host, name) if robots else (None, None)
    return SiteReport(
        host,
        name,
        sum(count for (subset, _), count in statuses.items() if subset == SUBSETS[0]),
        redirects - not_modified,
        not_modified,
        diagnosed.total() - redirects,
        dict(robots.most_common()),
        min(times, default=None),
        max(times, default=None),
        {each or UNKNOWN: count for each, count in types.most_common()},
        dict(languages.most_common()),
        archived,
        (*selected.missing, *captures.plan.missing, *([problem] if problem else [])),
    )


def _host(site: str) -> str:
    host = site.strip().rpartition("://")[2].removeprefix("*.").partition("/")[0].partition("?")[0]
    host = host.rpartition("@")[2]  # a password would be printed
    if not host or "*" in host:
        raise QueryError(f"{printable(site[:200])!r} is not a site; use a host, such as example.com")
    parse_pattern(f"*.{host}")
    return host


def _counts(column: pa.Array) -> Counter[Any]:
    counted = pc.value_counts(column)
    return Counter(dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)))


def _archived_robots(session: Session, host: str, crawl: str) -> tuple[Page | None, str | None]:
    try:
        page = get_page(session, f"https://{host}/robots.txt", crawls=crawl)
        # Many hosts redirect files that they do not have to their home page.
        found, problem = (page, page.record.coding_error) if urlsplit(page.url).path == _ROBOTS_FILE else (None, None)
    except NotArchived:
        return None, None
    except (SourceError, BadRecord) as error:
        found, problem = None, str(error)
    return (None, f"the archived robots.txt cannot be read: {problem}") if problem else (found, None)
