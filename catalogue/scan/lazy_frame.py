"""A LazyFrame of polars, which becomes a query when it is collected."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from catalogue.captures import Captures
from catalogue.cdx.lines import COLUMNS
from catalogue.commoncrawl.crawls import subset_place
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError, TooExpensive, warn
from catalogue.find_captures import known_columns, run_query, select
from catalogue.formatting import format_cost, plural, size
from catalogue.plan.plan import ReadPlan
from catalogue.query.key_intervals import Intervals
from catalogue.query.query import Query, resolve
from catalogue.query.resolved_query import ResolvedQuery, schema_of
from catalogue.read.streams import in_turns
from catalogue.scan.pushdown import Pushdown, push_down
from catalogue.selection import Selection
from catalogue.session import Session
from catalogue.surt.interval import intersect

_OF_POLARS = {"limit": ".head(…)", "unique": ".unique(…)", "latest": ".sort(…).unique(…, keep='last')"}
_ADVICE = "narrow it by url_surtkey, url_host_registered_domain or crawl, or raise max_requests and max_bytes"


def scan(session: Session, query: Query, max_requests: int, max_bytes: int) -> pl.LazyFrame:
    # Options that would select rows before the conditions of polars.
    for name, given in (("limit", query.limit is not None), ("unique", query.unique), ("latest", query.latest)):
        if given:
            raise QueryError(f"scan has no parameter {name}; use {_OF_POLARS[name]} of its LazyFrame instead")
    selection = select(session, query)  # raises an error for invalid crawls before rows are collected
    if query.columns is None:
        query = replace(query, columns=("*",) if _have_footers(session, selection) else COLUMNS)
    columns = known_columns(session, selection.crawls)
    resolved, _ = resolve(query, session.dataset, columns)
    schema = schema_of(resolved, resolved.columns)
    source = _Source(session, query, columns, schema, max_requests, max_bytes)
    kinds = pl.DataFrame(schema.empty_table()).schema
    return register_io_source(source.frames, schema=kinds, validate_schema=True, is_pure=True)


def _have_footers(session: Session, selection: Selection) -> bool:
    """Return whether the columnar index can answer completely, so that there are all of its columns."""
    if session.dataset != COMMON_CRAWL:
        return True
    shown, subsets = session.metadata() if session.store_path.exists() else None, selection.subsets
    return shown is not None and all(
        shown.answers(crawl, subsets) and not shown.missing(crawl, subsets) for crawl in selection.crawls
    )


@dataclass(eq=False, slots=True)
class _Source:
    session: Session
    query: Query
    columns: Mapping[str, str]
    schema: pa.Schema
    max_requests: int
    max_bytes: int

    def frames(
        self, columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _rows: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows to polars, which may take the next frame in another thread."""
        chosen = self.schema.names if columns is None else columns
        return in_turns(self._frames(chosen, predicate, limit), self.session.turns)

    def _frames(
        self, columns: list[str], predicate: pl.Expr | None, limit: int | None
    ) -> Generator[pl.DataFrame, None, None]:
        yield pl.DataFrame(self.schema.empty_table()).select(columns)
        # With a limit, polars applies the predicate to the first rows only.
        pushed_down = predicate if limit is None else None
        needed = dict.fromkeys([*columns, *(predicate.meta.root_names() if predicate is not None else ())])
        pushed = push_down(pushed_down, self.schema, self.session.dataset)
        query = replace(self.query, columns=tuple(needed), where=(*self.query.where, *pushed.where), limit=limit)
        # Types are those of all selected crawls, as in the schema.
        resolved = _narrowed(resolve(query, self.session.dataset, self.columns)[0], pushed)
        if resolved is None or limit == 0:
            return
        selection = self._in_partitions(select(self.session, query), pushed)
        if selection is None:
            return
        captures = run_query(self.session, resolved, selection, query.index)
        with closing(self._batches(captures)) as batches:
            for batch in batches:
                frame = pl.DataFrame(batch)
                yield (frame if predicate is None else frame.filter(predicate)).select(columns)

    def _batches(self, captures: Captures) -> Generator[pa.RecordBatch, None, None]:
        spent = self.session.spending()

        def check(plan: ReadPlan | None = None) -> None:
            """Compare what was read, and with a plan what it needs, with the limits."""
            requests, received = spent()
            more, more_bytes = plan.committed if plan else (0, 0)
            if requests + more > self.max_requests or received + more_bytes > self.max_bytes:
                if plan:
                    raise TooExpensive(f"this takes {format_cost(plan)}; {_ADVICE}")
                raise TooExpensive(f"{plural(requests, 'request')} and {size(received)} were not enough; {_ADVICE}")

        with closing(captures.agreed(check, check).batches()) as batches:
            yield from batches

    def _in_partitions(self, selection: Selection, pushed: Pushdown) -> Selection | None:
        """Keep crawls and subsets for which the conditions on them are true."""
        if not pushed.paths:
            return selection
        subsets_of = {crawl: selection.subsets or self.session.metadata().subsets(crawl) for crawl in selection.crawls}
        pairs = pl.DataFrame(
            [(crawl, subset) for crawl, subsets in subsets_of.items() for subset in subsets],
            schema={"crawl": pl.String, "subset": pl.String},
            orient="row",
        )
        for expression in pushed.paths:
            pairs = pairs.filter(expression)
        kept: dict[str, set[str]] = {}
        for crawl, subset in pairs.rows():
            kept.setdefault(crawl, set()).add(subset)
        if not kept:
            for problem in selection.missing:
                warn(problem)
            return None
        subsets, *others = kept.values()
        selection = replace(selection, crawls=tuple(kept))
        # A query has one list of subsets; where crawls differ, polars alone compares them.
        is_narrower = any(found != {*subsets_of[crawl]} for crawl, found in kept.items())
        if is_narrower and all(other == subsets for other in others):
            selection = replace(selection, subsets=tuple(sorted(subsets, key=subset_place)))
        return selection


def _narrowed(query: ResolvedQuery, pushed: Pushdown) -> ResolvedQuery | None:
    """Return the query with the keys and times of the conditions; None if it has no rows."""
    keys = query.intervals if pushed.keys is None else Intervals(intersect(tuple(query.intervals), pushed.keys))
    first = max((each for each in (query.from_ms, pushed.from_ms) if each is not None), default=None)
    end = min((each for each in (query.to_ms, pushed.to_ms) if each is not None), default=None)
    is_empty = not len(keys) or (first is not None and end is not None and first >= end)
    return None if is_empty else replace(query, intervals=keys, from_ms=first, to_ms=end)
