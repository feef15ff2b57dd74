"""Rule out row groups by the values of their columns, and read dictionary pages where that costs less than chunks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from catalogue.commoncrawl.datasets import Dataset
from catalogue.formatting import plural, size
from catalogue.parquet.dictionary_pages import kind_of_values, missing_bytes
from catalogue.parquet.model import RowGroup
from catalogue.parquet.page_index import Indexes
from catalogue.plan.requests import Cost, Part, PlannedRequest, Purpose, plan_requests
from catalogue.query.random_order import RowGroupId
from catalogue.query.resolved_query import ResolvedQuery, is_untyped
from catalogue.source.byte_ranges import ByteRange
from catalogue.tables.column_values import CrawlValues, collect_values, dictionary_pages
from catalogue.tables.crawl_table import FileMetadata

SAMPLE, LARGEST_SAMPLE = 16, 64
"""Row groups whose dictionary pages show how many of the others can be ruled out: at least, and of many."""
_SHARE = 16
"""A sample is one of so many row groups."""
FEW = 64
"""Row groups of a crawl for which no dictionary pages are read."""
_Incomplete = tuple[FileMetadata, RowGroup, list[Part]]
"""A row group, and its dictionary pages that are not known."""


@dataclass(frozen=True, slots=True)
class RuledOut:
    """Row groups that cannot match by their values, and dictionary pages to read before the crawl is planned again."""

    places: frozenset[RowGroupId] = frozenset()
    requests: tuple[PlannedRequest, ...] = ()
    unknown: tuple[PlannedRequest, ...] = ()
    """Requests for all dictionary pages that may rule out more, if that is many row groups."""
    matching: float = 1.0
    """The share of row groups with known values that have matching ones; values that few have are rare in these."""

    def rest(self, files: Sequence[FileMetadata]) -> list[FileMetadata]:
        """Return the files with the row groups that may match."""
        by_path: dict[str, set[int]] = {}
        for path, ordinal in self.places:
            by_path.setdefault(path, set()).add(ordinal)
        return [file.among({*file.ordinals} - by_path[file.path]) if file.path in by_path else file for file in files]

    def advice(self, crawl: str, table: Dataset) -> str:
        """Return a sentence about a harvest of values; empty if it would not help."""
        if not self.unknown:
            return ""
        parts = [part for request in self.unknown for part in request.parts]
        columns = ",".join(dict.fromkeys(part.column for part in parts))
        row_groups = len({(request.path, part.row_group) for request in self.unknown for part in request.parts})
        files = (table.file(request.path) for request in self.unknown)
        subsets = sorted({file.subset for file in files if file})
        cost = f"{plural(len(self.unknown), 'request')}, {size(sum(len(each.range) for each in self.unknown))}, once"
        return (
            f"{plural(row_groups, 'row group')} may have matching values; to know those that have none ({cost}), run: "
            f"{table.harvest_command(crawl, subsets)} --values {columns}"
        )


def tested_alone(query: ResolvedQuery) -> tuple[str, ...]:
    """Return the columns that have conditions of their own, to which values can be compared."""
    if query.where is None:
        return ()
    from catalogue.query.where import column_conditions

    named = (name for condition in column_conditions(query.where) for name in condition.columns)
    return tuple(name for name in dict.fromkeys(named) if name not in query.table.path_columns)


def rule_out(query: ResolvedQuery, files: Sequence[FileMetadata], stored: CrawlValues, cost: Cost) -> RuledOut:
    """Rule out row groups of ``files`` that may match, by the ``stored`` values of a crawl.

    Dictionary pages are requested where they are likely to pay off.
    """
    typed, declared = tested_alone(query), tested_alone(replace(query, where=query.where_declared))
    if not typed:
        return RuledOut()
    ruled_out = stored.ruled_out(query)
    known = _known(stored, typed)
    considered = {(file.path, ordinal) for file in files for ordinal in file.ordinals}
    left = [
        (file, group)
        for file in files
        for group in file.footer.row_groups
        if (place := (file.path, group.ordinal)) not in ruled_out and known.get(place, frozenset()) != {*typed}
    ]
    if len(left) < FEW:
        return RuledOut(frozenset(ruled_out), matching=_share(considered & known.keys(), ruled_out))
    names = tuple(dict.fromkeys([*typed, *declared]))
    pages = [page for file in files for page in dictionary_pages(file, names) if page.place not in ruled_out]
    fetched = {page.place for page in pages}
    found = collect_values(pages, query.table).ruled_out(query) if pages else set()
    missing = {}
    for file, group in left:
        place, tested = (file.path, group.ordinal), names if is_untyped(file.file.crawl) else typed
        parts = [*_missing(group, tested, known.get(place, frozenset()))]
        if parts and place not in fetched:
            missing[place] = file, group, parts
    requests: list[PlannedRequest] = []
    unknown = [*_requests(missing.values(), cost)] if len(missing) >= FEW else []
    count = len(missing) + len(fetched)
    if query.limit is None and not query.draws and count >= FEW:
        sample = max(SAMPLE, min(LARGEST_SAMPLE, count // _SHARE))
        is_sampled = len(fetched) >= sample
        likely = (len(fetched - found) + 1) / (len(fetched) + 2) if is_sampled else 1 / (sample + 2)
        if _pays_off(query, missing, likely, cost):
            some = missing if is_sampled else _evenly(missing, sample - len(fetched))
            requests = [*_requests((missing[place] for place in some), cost)]
    ruled_out |= found
    share = 1.0 if requests else _share(considered & {*known, *fetched}, ruled_out)
    return RuledOut(frozenset(ruled_out), tuple(requests), tuple(unknown), share)


def _share(known: AbstractSet[RowGroupId], ruled_out: AbstractSet[RowGroupId]) -> float:
    return len(known - ruled_out) / len(known) if len(known) >= SAMPLE else 1.0


def _known(stored: CrawlValues, names: Iterable[str]) -> dict[RowGroupId, frozenset[str]]:
    known: dict[RowGroupId, frozenset[str]] = {}
    for name in names:
        for place, is_known in zip(stored.places, stored.known(name).tolist(), strict=True):
            if is_known:
                known[place] = known.get(place, frozenset()) | {name}
    return known


def _missing(group: RowGroup, names: Iterable[str], known: frozenset[str]) -> Iterator[Part]:
    for name in names:
        chunk = group.chunks[name] if name in group.chunks and name not in known else None
        if chunk and (page := chunk.dictionary_page) and kind_of_values(chunk):
            yield Part(Purpose.DICTIONARY, group.ordinal, name, page)


def _evenly(missing: Mapping[RowGroupId, _Incomplete], count: int) -> list[RowGroupId]:
    places = [*missing]
    step = max(1, len(places) // count)
    return places[step // 2 :: step][:count]


def _requests(some: Iterable[_Incomplete], cost: Cost) -> Iterator[PlannedRequest]:
    by_file: dict[str, list[Part]] = {}
    for file, _, parts in some:
        by_file.setdefault(file.path, []).extend(parts)
    for path, parts in by_file.items():
        yield from plan_requests(path, parts, cost)


def _pays_off(query: ResolvedQuery, missing: Mapping[RowGroupId, _Incomplete], likely: float, cost: Cost) -> bool:
    """Compare dictionary pages, and chunks of a likely share of the row groups, with all chunks."""
    first, chunks = 0.0, 0.0
    for place in _evenly(missing, SAMPLE):
        file, group, parts = missing[place]
        tested = (group.chunks[name] for name in query.tested_columns if name in group.chunks)
        whole = (Part(Purpose.CHUNK, group.ordinal, chunk.column.name, chunk.range) for chunk in tested)
        first += cost.price_of(plan_requests(file.path, parts, cost))
        chunks += cost.price_of(plan_requests(file.path, whole, cost))
    return first + likely * chunks < chunks


def missing_dictionaries(files: Iterable[FileMetadata], names: Sequence[str], cost: Cost) -> Iterator[PlannedRequest]:
    """Yield requests for dictionary pages that are not stored, and for the rest of those cut short."""
    for file in files:
        parts = []
        for group in file.footer.row_groups:
            stored = (file.indexes(group.ordinal) or Indexes()).dictionaries
            for part in _missing(group, names, frozenset()):
                data = stored.get(part.column)
                if data is None:
                    parts.append(part)
                elif rest := missing_bytes(data, group.chunks[part.column]):
                    parts.append(part._replace(range=ByteRange(part.range.start, part.range.start + len(data) + rest)))
        yield from plan_requests(file.path, parts, cost)


def cut_dictionaries(request: PlannedRequest, body: bytes) -> dict[int, Indexes]:
    """Return the dictionary pages in an answer, by row group."""
    found: dict[int, Indexes] = {}
    for part in request.parts:
        if part.purpose is Purpose.DICTIONARY:
            start = part.range.start - request.range.start
            page = Indexes(dictionaries={part.column: body[start : start + len(part.range)]})
            found[part.row_group] = found.get(part.row_group, Indexes()).joined(page)
    return found
