"""The crawls of a join."""

import math
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import pyarrow as pa

from catalogue.captures import Captures
from catalogue.cdx.block_file import StoredList
from catalogue.commoncrawl.crawls import AUTO, CDX, COLUMNAR
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import CatalogueError, NotHarvested, QueryError, StoreChanged, StoreDamaged, StoreLocked
from catalogue.find_captures import crawl_indexes, known_columns, run_query, select
from catalogue.formatting import plural
from catalogue.join.joined import CrawlPrice
from catalogue.join.keys import JoinKeys, Lookups
from catalogue.join.kinds import Kind, newest_columns
from catalogue.join.slices import Sizes, Slice, cut, pieces_of_blocks, pieces_of_row_groups
from catalogue.query.query import Query, resolve
from catalogue.query.resolved_query import schema_of
from catalogue.session import Session
from catalogue.store.stored_lists import LISTS

_SEARCHED = 1_000
"""Patterns that are searched for in a list of blocks that is not stored."""
_MUCH_DEARER = 5
"""A slice whose index failed is left out if the other one costs more than so many times as much."""


class _Unbounded(QueryError):
    """Row groups whose keys are not known would be read for each slice."""


class JoinScope:
    """What a join reads."""

    def __init__(self, session: Session, query: Query, kind: Kind, sizes: Sizes) -> None:
        if session.dataset != COMMON_CRAWL:
            raise QueryError(f"a join needs crawls, which {session.dataset.name} does not have")
        self._session, self._kind, self._index = session, kind, query.index
        self.sizes = sizes
        self.selection = select(session, query)
        resolved, _ = resolve(query, session.dataset, known_columns(session, self.selection.crawls))
        if query.columns and kind.columns is not None:
            raise QueryError(f"the result of how='{kind.name}' has no columns of captures; leave out columns")
        columns = resolved.columns if kind.columns is None else kind.columns
        columns = newest_columns(columns) if kind.name == "latest" else columns
        columns = (*columns, "url") if kind.exact else columns
        self.query = replace(resolved, columns=tuple(dict.fromkeys([session.dataset.key, *columns])))
        """The query, without intervals of keys."""
        self.states = {crawl: self._state(crawl) for crawl in self.selection.crawls}
        """Digests of what was stored of each crawl when the join began."""
        self._indexes_of = crawl_indexes(session, self.query, self.selection, query.index)

    def _state(self, crawl: str) -> str:
        session = self._session
        if not session.store_path.exists():
            return " "
        document = session.store.get("documents", LISTS + crawl)
        listed = blake2b(document.data, digest_size=16).hexdigest() if document else ""
        return f"{session.metadata().state_of(crawl, self.selection.subsets)} {listed}"

    def missing(self, crawl: str, index: str) -> tuple[str, ...]:
        """Return sentences about files that are not stored, or not any more, and may have captures."""
        if index != COLUMNAR or not (columnar := self._indexes_of(crawl).columnar):
            return ()
        return columnar.missing or self._session.metadata().missing(crawl, self.selection.subsets)

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.query, self.query.columns)

    def captures(self, each: Slice, lookups: Lookups) -> Captures:
        intervals = lookups.intervals
        patterns = (plural(len(intervals), "key"),)
        # Only an inner join returns captures as they come; the others collect them by pattern.
        query = replace(self.query, intervals=intervals, patterns=patterns, any_order=self._kind.collect is not None)
        subsets = (each.subset,) if each.subset else self.selection.subsets
        selection = replace(self.selection, crawls=(each.crawl,), subsets=subsets, missing=())
        return run_query(self._session, query, selection, each.index)

    def by_other(self, each: Slice, lookups: Lookups, price: float, error: CatalogueError) -> Captures | None:
        """Return the captures of a slice by the other index; None if it is not stored, or costs far more than this."""
        indexes, by_cdx = self._indexes_of(each.crawl), each.index == COLUMNAR
        has_list = indexes.cdx is not None and each.crawl in self._session.block_lists.stored
        has_footers = indexes.columnar is not None and not indexes.columnar.missing
        if self._index != AUTO or not (has_list if by_cdx else has_footers):
            return None
        captures = self.captures(replace(each, index=CDX if by_cdx else COLUMNAR), lookups)
        if sum(plan.price for plan in captures.plan.crawls) > _MUCH_DEARER * price:
            return None
        indexes.refuse(each.crawl, each.index, error)
        return captures

    def way(self, crawl: str, keys: JoinKeys) -> tuple[CrawlPrice, list[Slice]]:
        """Return the lower price of the indexes for a crawl, and its slices.

        Raises:
            NotHarvested: if neither index is stored.
        """
        ways: list[tuple[CrawlPrice, list[Slice]]] = []
        indexes = self._indexes(crawl, keys)
        if not indexes:
            raise self._not_stored(keys)
        for index in indexes:
            try:
                slices = self._cut(crawl, index, keys)
                ways.append((self.price(crawl, index, slices, keys), slices))
            except (NotHarvested, StoreLocked, _Unbounded):  # the first: too many blocks for a pattern
                if index == indexes[-1] and not ways:
                    raise
            except StoreDamaged as error:
                if crawl not in self._session.block_lists.stored:
                    raise
                self._session.block_lists.lose(crawl, error)
                return self.way(crawl, keys)
        return min(ways, key=lambda way: self._session.cost().price(way[0].requests, way[0].bytes))

    def price(self, crawl: str, index: str, slices: Sequence[Slice], keys: JoinKeys) -> CrawlPrice:
        """Price slices by the plans of some of them, evenly distributed."""
        step = max(1, math.ceil(len(slices) / self.sizes.planned))
        some = slices[step // 2 :: step]
        plans = [self.captures(each, keys.between(each.keys.start, each.keys.end)).plan for each in some]
        share = 1.0
        if len(some) < len(slices):
            share = sum(keys.count(each.keys) for each in slices) / max(1, sum(keys.count(each.keys) for each in some))
        costs = [(each.requests, each.bytes, each.round_trips) for each in plans]
        totals = [math.ceil(share * sum(values)) for values in zip(*costs, strict=True)]
        requests, received, trips = totals or (0, 0, 0)
        seconds = self._session.cost().seconds(requests, received, trips)
        exact = share == 1 and all(each.exact for each in plans)
        return CrawlPrice(crawl, index, len(slices), requests, received, seconds, exact)

    def _indexes(self, crawl: str, keys: JoinKeys) -> list[str]:
        indexes = self._indexes_of(crawl)
        has_list = crawl in self._session.block_lists.stored
        # Without --index columnar, footers answer only where all of them are stored.
        columnar = indexes.columnar is not None and not (self._index == AUTO and indexes.columnar.missing)
        cdx = indexes.cdx is not None and (has_list or (not columnar and keys.patterns <= _SEARCHED))
        return [CDX] * cdx + [COLUMNAR] * columnar

    def _not_stored(self, keys: JoinKeys) -> NotHarvested:
        crawls = [crawl for crawl in self.selection.crawls if not self._indexes(crawl, keys)]
        what = crawls[0] if len(crawls) == 1 else f"{len(crawls):,} crawls"
        needed = f"a join of {plural(keys.patterns, 'key')} needs a harvest of {what}"
        return self._session.dataset.not_harvested(needed, crawls, self.selection.subsets, index=self._index)

    def _cut(self, crawl: str, index: str, keys: JoinKeys) -> list[Slice]:
        if index == CDX:
            listed = self._session.block_lists.get(crawl)
            pieces = pieces_of_blocks(listed, self.sizes.run) if isinstance(listed, StoredList) else ()
            # A block may have the first key of the next one, too.
            return cut(crawl, index, "", pieces, keys, self.sizes, splits=False)
        if self._state(crawl).partition(" ")[0] != self.states[crawl].partition(" ")[0]:  # the part about footers
            raise StoreChanged(crawl)
        found: list[Slice] = []
        shown = self._session.metadata()
        for subset in self.selection.subsets:
            if not shown.has_files(crawl, [subset]):
                continue
            bounds, unbounded, signed = shown.bounds_of(crawl, subset)
            unbounded += 0 if keys.is_ascii else signed
            if unbounded and len(keys) > self.sizes.unbounded:
                raise _Unbounded(
                    f"{crawl} has {plural(unbounded, 'row group')} without bounds, which the join would read once for "
                    f"each part of its {len(keys):,} keys; run: catalogue backfill --crawl {crawl}"
                )
            pieces = () if unbounded else pieces_of_row_groups(bounds)
            # Bounds in signed order do not say where the keys of an interval are; see KeyIntervals.span.
            found += cut(crawl, index, subset, pieces, keys, self.sizes, splits=not signed)
        return found
