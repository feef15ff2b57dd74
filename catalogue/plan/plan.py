"""A plan: the requests that answer a query, crawl by crawl, and what they cost."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from catalogue.commoncrawl.crawls import INDEX_NAMES
from catalogue.formatting import ReprMixin, duration, join_first, plural, size, without_key_range
from catalogue.parquet.arrow_arrays import array_of
from catalogue.plan.crawl_plan import Awaited, CrawlPlan, PlannedBlocks, PlannedFile, PlannedRowGroup
from catalogue.plan.requests import Cost, PlannedRequest, Purpose
from catalogue.query.resolved_query import ResolvedQuery, schema_of

_MOST_SHOWN = 10
"""Crawls that are shown one by one."""

READS = pa.schema(
    [
        ("path", pa.string()),  # relative to the source
        ("crawl", pa.string()),
        ("subset", pa.string()),
        ("row_group", pa.int32()),
        ("column", pa.string()),
        ("start", pa.int64()),  # of the file's byte
        ("end", pa.int64()),  # exclusive
        ("bytes", pa.int64()),
    ]
)
"""A plan as a table; the last four are null until page indexes are fetched."""


@dataclass(frozen=True, repr=False)
class ReadPlan(ReprMixin):
    """The plans of the crawls that answer a query."""

    query: ResolvedQuery
    cost: Cost
    crawls: tuple[CrawlPlan, ...]
    """Newest first; a limit leaves out crawls that may not be needed."""
    unlisted: tuple[str, ...] = ()
    """Sentences about crawls that may exist."""
    files: tuple[PlannedFile, ...] = field(init=False, compare=False)
    """The files of the columnar index to read, in the order of the result."""
    blocks: tuple[PlannedBlocks, ...] = field(init=False, compare=False)
    """The blocks of the CDX index to read, newest crawl first, by key."""
    indexes: tuple[PlannedRequest, ...] = field(init=False, compare=False)
    """Page indexes to fetch before the query is planned again."""
    awaited: tuple[Awaited, ...] = field(init=False, compare=False)
    """Row groups whose page indexes must be fetched first; they are not in ``files`` yet."""
    searched: tuple[str, ...] = field(init=False, compare=False)
    """Crawls whose lists of blocks are searched before the query is planned again."""
    missing: tuple[str, ...] = field(init=False, compare=False)
    """Sentences about what is not stored; if any, the result may be incomplete."""

    def __post_init__(self) -> None:
        for name in ("files", "blocks", "indexes", "awaited", "missing"):
            self.__dict__[name] = tuple(chain.from_iterable(map(attrgetter(name), self.crawls)))
        self.__dict__["missing"] = (*self.unlisted, *self.missing)
        self.__dict__["searched"] = tuple([each.crawl for each in self.crawls if each.search])

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadPlan, (self.query, self.cost, self.crawls, self.unlisted)  # the rest follows from these

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        return schema_of(self.query, self.query.columns)

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The schema before the residual filter."""
        return schema_of(self.query, self.query.row_columns)

    @property
    def waves(self) -> tuple[tuple[PlannedRequest, ...], ...]:
        """Requests that can be sent at the same time; the second wave is a maximum, which depends on the first."""
        numbered = zip_longest(*(each.waves for each in self.crawls), fillvalue=())
        return tuple(tuple(fetch for wave in number for fetch in wave) for number in numbered)

    @property
    def is_ready(self) -> bool:
        """Whether all page indexes are fetched, and all searches are made."""
        return not (self.indexes or self.searched)

    @property
    def considered(self) -> int:
        """Row groups of the requested subsets in the columnar index."""
        return sum(each.considered for each in self.crawls)

    @property
    def ruled_out(self) -> int:
        """Row groups that the keys allow and that have no matching values."""
        return sum(each.ruled_out for each in self.crawls)

    @property
    def counted(self) -> dict[str, int]:
        """Number of rows in each crawl that are counted without reading them."""
        return {each.crawl: each.counted for each in self.crawls if each.counted}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about invalid page indexes, expensive reads, and columns that old crawls do not have."""
        found = [sentence for each in self.crawls for sentence in each.defects]
        groups, bytes_ = self.unbounded
        if groups:
            found.append(f"{without_key_range(groups)} ({bytes_:,} bytes); catalogue backfill saves that")
        reads = [*self._row_groups()]
        if len(reads) == self.considered > 1 and all(sum(map(len, group.rows)) == group.num_rows for group in reads):
            found.append("this query cannot be pruned: every row group is read")
        found += [each.values_advice for each in self.crawls if each.values_advice]
        return (*found, *self.query.absences(each.crawl for each in self.crawls))

    def _row_groups(self) -> Iterator[PlannedRowGroup]:
        return (group for each in self.crawls for file in each.files for group in file.row_groups)

    @property
    def requests(self) -> int:
        """Number of requests: an estimate without page indexes, a maximum with a limit or a second wave."""
        return sum(each.requests for each in self.crawls)

    @property
    def bytes(self) -> int:
        """Bytes to receive: an estimate or a maximum, as ``requests``."""
        return sum(each.bytes for each in self.crawls)

    @property
    def cached_bytes(self) -> int:
        return sum(len(fetch.range) for each in self.crawls for wave in each.waves for fetch in wave if fetch.cached)

    @property
    def row_groups(self) -> int:
        return sum(len(file.row_groups) for file in self.files) + len(self.awaited)

    @property
    def is_columnar(self) -> bool:
        """Whether the columnar index answers for a crawl."""
        return any(each.files or each.awaited or each.counted for each in self.crawls)

    @property
    def index_files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([file.file.path for file in self.files] + [each.file.path for each in self.awaited]))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files."""
        of_blocks = dict.fromkeys(read.path for planned in self.blocks for read in planned.reads)
        return (*self.index_files, *of_blocks)

    @property
    def pages(self) -> int:
        """Data pages to read outside of whole column chunks; an estimate or a maximum."""
        known = sum(group.pages for group in self._row_groups())
        return math.ceil(known + sum(each.pages for each in self.awaited))

    @property
    def chunks(self) -> int:
        """Column chunks that are read whole."""
        return sum(column.index is None for group in self._row_groups() for column in group.columns)

    @property
    def block_count(self) -> int:
        """Blocks of the CDX index to read."""
        return sum(len(read.blocks) for planned in self.blocks for read in planned.reads)

    @property
    def rows(self) -> int:
        """Rows that are read or counted; the maximum size of the result."""
        looked_at = sum(len(run) for group in self._row_groups() for run in group.rows)
        return sum(self.counted.values()) + looked_at + sum(each.num_rows for each in self.awaited)

    @property
    def unbounded(self) -> tuple[int, int]:
        """Number and bytes of row groups that are read because their bounds are unknown."""
        unbounded = [group for group in self._row_groups() if not group.bounded]
        first = [column for group in unbounded for column in group.columns if not column.later]
        return len(unbounded), sum(len(part.range) for column in first for part in column.parts(0))

    @property
    def seconds(self) -> float:
        return self.cost.seconds(self.requests, self.bytes, self.round_trips)

    @property
    def price(self) -> str:
        what = f"{plural(self.requests, 'request')}, {size(self.bytes)}, {duration(self.seconds)}"
        return f"{self.about}{what}"

    @property
    def about(self) -> str:
        """``at least``, ``about``, ``at most``, or empty if requests and bytes are exact."""
        if any(each.search and each.search.is_least for each in self.crawls):
            return "at least "
        return "about " if self.estimated else "" if self.exact or not self.requests else "at most "

    @property
    def round_trips(self) -> int:
        """Number of waves, with those of page indexes and searches."""
        return max((each.round_trips for each in self.crawls), default=0)

    @property
    def estimated(self) -> bool:
        """Whether page indexes, places of blocks or pages with a rare value must be found before the cost is exact."""
        return any(each.awaited or each.search for each in self.crawls) or any(
            group.needed < 1 for group in self._row_groups()
        )

    @property
    def exact(self) -> bool:
        """Whether requests and bytes are exact; otherwise they are maximums, or ``estimated``."""
        return not (self.estimated or self.query.stops_early or any(len(each.waves) > 1 for each in self.crawls))

    @property
    def committed(self) -> tuple[int, int]:
        """Requests and bytes that a budget must cover before the first request.

        They are those of page indexes and searches alone, if a limit may end the read early. A search takes at most
        about twice the estimated requests, and one for the list of files; what it finds is priced again then.
        """
        searches = [each.search for each in self.crawls if each.search]
        requests = sum(2 * search.round_trips + 1 for search in searches)
        received = sum(search.list_bytes for search in searches)
        if self.query.stops_early:
            return requests + len(self.indexes), received + sum(len(fetch.range) for fetch in self.indexes)
        others = [each for each in self.crawls if not each.search]
        requests += sum(each.requests for each in others)
        return max(requests, self.requests), max(received + sum(each.bytes for each in others), self.bytes)

    def _line(self) -> str:
        groups = f"{self.row_groups:,} of {plural(self.considered, 'row group')}"
        patterns = join_first(self.query.patterns)
        blocks = plural(self.block_count, "block") if self.blocks else "unknown blocks"
        parts = [f"{blocks} of the CDX index"] if self.searched or self.blocks else []
        parts += [f"{plural(len(self.index_files), 'file')}, {groups}"] if self.is_columnar or not parts else []
        return f"of {patterns}: {', '.join(parts)}, {self.price}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        from_blocks = bool(self.searched or self.blocks)
        if from_blocks:
            yield "blocks of the CDX index", f"{self.block_count:,}" if self.blocks else "not known yet"
        if self.is_columnar or not from_blocks:
            yield "files", f"{len(self.index_files):,}"
            yield "row groups", f"{self.row_groups:,} of {self.considered:,}"
        if self.ruled_out:
            yield "row groups ruled out by their values", f"{self.ruled_out:,}"
        if self.pages:
            yield "pages", f"{self.about}{self.pages:,}"
        if self.chunks:
            yield "column chunks read whole", f"{self.chunks:,}"
        if not from_blocks:
            yield "captures in them", f"{self.rows:,}"
        yield "requests", f"{self.about}{self.requests:,}"
        yield "bytes", f"{self.about}{size(self.bytes)}"
        if self.cached_bytes:
            yield "from the cache", size(self.cached_bytes)
        yield "time", f"about {duration(self.seconds)}"

    def _notes(self) -> Iterator[str]:
        yield from (f"{sentence[0].upper()}{sentence[1:]}." for sentence in self.preparations())
        yield from self.choices()
        yield from (f"Note: {warning}" for warning in self.warnings)
        yield from (f"The answer may be incomplete: {problem}" for problem in self.missing)

    def preparations(self) -> Iterator[str]:
        """Yield sentences about what is read before the query is planned again."""
        if self.indexes:
            needed = f"{plural(len(self.indexes), 'request')}, {size(sum(len(fetch.range) for fetch in self.indexes))}"
            values = any(part.purpose is Purpose.DICTIONARY for fetch in self.indexes for part in fetch.parts)
            what = "dictionary pages" if values else "page indexes"
            yield f"this is an estimate: the query first fetches {what} ({needed})"
        if self.searched:
            crawls = plural(len(self.searched), "crawl")
            what = "a minimum" if self.about == "at least " else "an estimate"
            yield f"this is {what}: the query first searches for the right blocks in {crawls}"

    def choices(self) -> Iterator[str]:
        """Yield sentences about the chosen indexes, unless the query names one."""
        chosen = [each for each in self.crawls if each.why]
        if len(chosen) > _MOST_SHOWN:
            counts = Counter(each.index for each in chosen)
            parts = (f"{plural(count, 'crawl')} by the {INDEX_NAMES[index]}" for index, count in counts.items())
            yield f"{', '.join(parts)}."
            return
        for each in chosen:
            if each.other:
                other = INDEX_NAMES[each.other.index]
                yield f"{each.crawl}: the {INDEX_NAMES[each.index]} takes {each}; the {other} would take {each.other}."
            else:
                yield f"{each.crawl}: the {INDEX_NAMES[each.index]} answers, because {each.why}."

    def to_arrow(self) -> pa.Table:
        """Return a row for each half-open byte range of a column; see ``READS``."""
        rows: list[tuple[object, ...]] = []
        for read in self.files:
            for group in read.row_groups:
                place = (read.file.path, read.file.crawl, read.file.subset, group.ordinal)
                parts = (part for column in group.columns for part in column.parts(group.ordinal))
                rows += ((*place, part.column, part.range.start, part.range.end, len(part.range)) for part in parts)
        for planned in self.blocks:
            for each_read in planned.reads:
                at = each_read.range
                rows.append((each_read.path, planned.crawl, None, None, None, at.start, at.end, len(at)))
        for each in self.awaited:
            rows.append((each.file.path, each.file.crawl, each.file.subset, each.row_group, None, None, None, None))
        columns = zip(*rows, strict=True) if rows else ((),) * len(READS)
        arrays = [array_of(field.type, column) for column, field in zip(columns, READS, strict=True)]
        return pa.Table.from_arrays(arrays, schema=READS)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of ``plan --json``."""
        groups, size = self.unbounded
        return {
            "files": len(self.paths),
            "row_groups": self.row_groups,
            "row_groups_considered": self.considered,
            "row_groups_ruled_out": self.ruled_out,
            "blocks": self.block_count,
            "pages": self.pages,
            "chunks": self.chunks,
            "rows": self.rows,
            "requests": self.requests,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 1),
            "waves": self.round_trips,
            "exact": self.exact,
            "estimated": self.estimated,
            "searches": len(self.searched),
            "crawls": [each.summary() for each in self.crawls],
            "indexes": {"requests": len(self.indexes), "bytes": sum(len(fetch.range) for fetch in self.indexes)},
            "cached_bytes": self.cached_bytes,
            "complete": not self.missing,
            "missing": list(self.missing),
            "without_bounds": {"row_groups": groups, "bytes": size},
            "warnings": list(self.warnings),
        }


class Section(NamedTuple):
    """A subset of a crawl in the columnar index, or all requested subsets of a crawl in the CDX index."""

    crawl: str
    subsets: tuple[str, ...]
    """Sorted like the result."""
    of_blocks: bool = False


def sections(plan: ReadPlan) -> list[Section]:
    found: dict[Section, None] = {}
    for each in plan.crawls:
        for file in each.files:
            found[Section(each.crawl, (file.file.subset,))] = None
        for planned in each.blocks[:1]:
            found[Section(each.crawl, planned.subsets, of_blocks=True)] = None
    return [*found]
