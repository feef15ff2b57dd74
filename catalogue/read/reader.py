"""Run a plan."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from operator import itemgetter

import numpy as np
import pyarrow as pa

from catalogue.commoncrawl.crawls import COLUMNAR
from catalogue.errors import BadPageIndex, FormatError
from catalogue.parquet.arrow_arrays import positions
from catalogue.plan.crawl_plan import ColumnRead
from catalogue.plan.plan import ReadPlan
from catalogue.query.resolved_query import DRAWN_ORDER, Matching, Residual
from catalogue.read.decode import Numbered, aligned, checked, decode, requested, valid
from catalogue.read.key_order import KeysLeft, Piece, leasts_after, result_of
from catalogue.read.prefetch import IN_FLIGHT, Bundle, LoadedRowGroup, Prefetcher, bundle_sizes
from catalogue.read.streams import BATCH_ROWS, ReadEvents
from catalogue.source.checks import Source
from catalogue.surt.interval import END

_FEW_ROWS = 1 << 12
"""Rows of a piece that take less time than a further piece."""
_MOST_DECIDED = 1 << 30
"""Maximum decoded bytes that wait for other columns; repeated values are small in a file."""


def read(
    plan: ReadPlan, source: Source, executor: Executor, events: ReadEvents | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of a plan in batches, with its schema, in the order of the result; see ``key_order``.

    The page indexes of the plan have been fetched. Where pages differ from their index, the row group is read whole.
    Threads of ``executor`` make requests while rows are decoded.

    Raises:
        SourceError: if a request fails; rows that were returned before are valid.
        QueryError: if ``where`` fails on a row.
    """
    if not plan.is_ready:
        raise AssertionError("the page indexes of the plan must be fetched first, and its searches made")
    if plan.query.limit == 0:
        return
    with ExitStack() as stack:
        matching: Matching | None = None
        if plan.query.where:
            from catalogue.query.where import connect, where_positions

            matching = partial(where_positions, connection=stack.enter_context(connect()))
        events = events or ReadEvents()
        columnar: Iterable[Piece] = ()
        blocks: Iterable[Piece] = ()
        if plan.files:
            reading = _Reading(plan, Prefetcher(plan, source, executor, events), matching, events)
            columnar = stack.enter_context(closing(reading.pieces()))
        if plan.blocks:
            from catalogue.read.block_reader import block_pieces

            blocks = stack.enter_context(closing(block_pieces(plan, source, executor, matching, events)))
        if plan.files and plan.blocks and not plan.query.stops_early:
            # The requests for the first rows of both start here.
            columnar, blocks = (chain([*islice(rest, 1)], rest) for rest in map(iter, (columnar, blocks)))
        yield from result_of(plan, columnar, blocks)


_Rows = tuple[pa.Table, bytes]
"""Rows, and a lower bound of the keys after them in the same row group."""


class _Reading:
    def __init__(self, plan: ReadPlan, arrivals: Prefetcher, matching: Matching | None, events: ReadEvents) -> None:
        self._plan = plan
        self._arrivals = arrivals
        self._events = events
        self._matching = matching
        self._key, self._path_columns = plan.query.table.key, plan.query.table.path_columns
        self._valid = partial(valid, dataset=plan.query.table)
        places = [((f.file.crawl, f.file.subset), group.least) for f in plan.files for group in f.row_groups]
        self._leasts_after = leasts_after(places) if plan.query.is_inorder else None

    def pieces(self) -> Generator[Piece, None, None]:
        """Yield rows, and an empty piece after each row group or bundle."""
        waiting: deque[Bundle] = deque()
        size = done = 0
        groups = self._arrivals.groups()
        try:
            for count in bundle_sizes(self._plan):
                # No variable, which would keep the bytes of the last one while those of the next are awaited.
                for _ in map(waiting.append, self._choose(Bundle(list(islice(groups, count))))):
                    size += waiting[-1].size
                # While a row group waits for bytes, start the next ones, unless a limit may end the read early.
                while waiting and (size > IN_FLIGHT or self._plan.query.stops_early or not waiting[0].is_awaited):
                    size -= waiting[0].size
                    done, first = done + len(waiting[0].groups), done
                    yield from self._pieces_of(waiting.popleft(), first)
            while waiting:
                done, first = done + len(waiting[0].groups), done
                yield from self._pieces_of(waiting.popleft(), first)
        finally:
            groups.close()
            for left in waiting:
                left.cancel()

    def _pieces_of(self, bundle: Bundle, first: int) -> Iterator[Piece]:
        if self._leasts_after is None:
            yield from (Piece(rows, b"") for rows, _ in self._rows(bundle))
            return
        after = self._leasts_after[first + len(bundle.groups) - 1]
        if len(bundle.groups) == 1:
            bound = b""
            for rows, least in self._rows(bundle):
                bound = min(least, after)
                yield Piece(rows, bound)
            if bound != after:
                yield Piece(None, after)
        else:
            found = [rows for rows, _ in self._rows(bundle)]
            yield Piece(pa.concat_tables(found) if found else None, after)

    def _choose(self, bundle: Bundle) -> Iterator[Bundle]:
        """Choose the rows to decode and request their other columns, unless all rows are read.

        After an error, the row groups are tried one by one.
        """
        columns = bundle.groups[0].read.columns
        if len(bundle.groups) == 1 and not any(read.index or read.later for read in columns):
            yield bundle
            return
        try:
            for group in bundle.groups:
                group.check(later=False)
            chosen = self._decide(bundle)
        except FormatError as error:
            if len(bundle.groups) > 1:
                for group in bundle.groups:
                    yield from self._choose(Bundle([group]))
            else:
                yield self._again(bundle, error)
        else:
            yield chosen

    def _decide(self, bundle: Bundle) -> Bundle:
        residual = Residual(self._plan.query.of(bundle.crawl), self._matching)
        query = residual.query
        candidates = bundle.candidates
        columns = {}
        for reads in bundle.columns:
            name = reads[0].chunk.column.name
            if reads[0].later or name not in query.deciding_columns:
                continue
            columns[name] = requested(self._decoded(bundle, reads), candidates)
        available = {*columns, *(name for name in self._path_columns if name in query.tested_columns)}
        names = [name for name in self._plan.row_schema.names if name in available]
        schema = pa.schema([self._plan.row_schema.field(name) for name in names])
        numbers, tables, start, size = [], [pa.Table.from_batches([], schema)], 0, 0
        for table in aligned(columns, candidates, schema, bundle, self._plan.query.table):
            matching, where = residual.keep(self._valid(table, bundle, columns=query.tested_columns))
            numbers.append(candidates[start + where])
            tables.append(matching)
            start += table.num_rows
            size += matching.nbytes
            if size > _MOST_DECIDED:
                raise BadPageIndex(f"what decides about its rows takes more than {_MOST_DECIDED:,} bytes")
        rows = np.concatenate([np.arange(0), *numbers])
        decided = pa.concat_tables(tables)
        parts = zip(bundle.groups, bundle.parts(rows), bundle.starts.tolist(), strict=False)
        chosen = [group.narrowed(rows[part] - begin) for group, part, begin in parts]
        if chosen[0].read.drawn:
            decided = decided.append_column(*_order_column(Bundle(chosen), rows))
        later = []
        for group in chosen:
            columns_later = [read for read in group.read.columns if read.later and group.read.rows]
            later += self._arrivals.request(group, columns_later)
        return Bundle(chosen, decided, rows, later)

    def _rows(self, bundle: Bundle) -> Iterator[_Rows]:
        """Yield the rows of a bundle; after an error, those of its row groups one by one, or read again."""
        returned = 0
        try:
            bundle.complete()
            tables = self._streamed(bundle) if bundle.decided is None else self._chosen(bundle, bundle.decided)
            for rows, least in list(tables) if len(bundle.groups) > 1 else tables:
                returned += rows.num_rows
                yield rows, least
        except FormatError as error:
            if len(bundle.groups) > 1:
                for alone in bundle.split():
                    yield from self._rows(alone)
                return
            for rows, least in self._rows(self._again(bundle, error, returned)):
                if rows.num_rows > returned:
                    yield rows.slice(returned), least
                returned -= min(returned, rows.num_rows)
            return
        for _ in bundle.groups:
            self._events.done()

    def _chosen(self, bundle: Bundle, decided: pa.Table) -> Iterator[_Rows]:
        for group in bundle.groups:
            group.check(later=True)
        residual = Residual(self._plan.query.of(bundle.crawl), self._matching)
        if decided.num_rows < _FEW_ROWS * max((column.num_chunks for column in decided.columns), default=0):
            decided = decided.combine_chunks()
        columns = {
            name: iter(decided.column(name).chunks) for name in decided.column_names if name not in self._path_columns
        }
        for reads in bundle.columns:
            if (name := reads[0].chunk.column.name) not in columns:
                columns[name] = requested(self._decoded(bundle, reads, bundle.rows), bundle.rows)
        undecided = {*residual.query.tested_columns} - {*decided.column_names}
        # All keys match if they are not read.
        tests = decided.column_names if self._key in columns else [*decided.column_names, self._key]
        keys = self._keys_left(decided.column(self._key).chunks) if self._key in decided.column_names else None
        stop = 0
        for table in aligned(columns, bundle.rows, self._plan.row_schema, bundle, self._plan.query.table):
            stop += table.num_rows
            tested = self._valid(table, bundle, columns=undecided)
            rows, _ = residual.keep(tested, decided=tests)
            if rows.num_rows:
                yield self._valid(rows, bundle), _least_after(stop, len(bundle.rows), keys)

    def _keys_left(self, keys: Sequence[pa.StringArray]) -> KeysLeft | None:
        if self._leasts_after and sum(map(len, keys)) > BATCH_ROWS:
            return KeysLeft(piece.cast(pa.binary()) for piece in keys)
        return None

    def _streamed(self, bundle: Bundle) -> Iterator[_Rows]:
        (group,) = bundle.groups
        residual = Residual(self._plan.query.of(bundle.crawl), self._matching)
        columns = {}
        keys: KeysLeft | None = None
        for read in group.read.columns:
            values: Iterator[pa.Array] = map(itemgetter(1), self._decoded(bundle, [read]))
            if read.chunk.column.name == self._key and self._leasts_after:
                first = [*values]  # all keys are known before the first row is returned
                keys = self._keys_left(first)
                first.reverse()
                values = (first.pop() for _ in range(len(first)))  # and free them
            columns[read.chunk.column.name] = values
        decided = [] if self._key in columns else [self._key]  # all keys match if they are not read
        numbers, drawn = range(group.read.num_rows), group.read.drawn
        stop = 0
        for table in aligned(columns, numbers, self._plan.row_schema, bundle, self._plan.query.table):
            rows = table
            start, stop = stop, stop + table.num_rows
            if drawn:
                among = drawn.rows[slice(*np.searchsorted(drawn.rows, (start, start + table.num_rows)))]
                rows = table.drop_columns([DRAWN_ORDER]).take(positions(among - start))
                rows = rows.append_column(*_order_column(bundle, among))
            tested = self._valid(rows, bundle, columns=residual.query.tested_columns)
            matching, _ = residual.keep(tested, decided=decided)
            if matching.num_rows:
                yield self._valid(matching, bundle), _least_after(stop, len(numbers), keys)

    def _decoded(
        self, bundle: Bundle, reads: Sequence[ColumnRead], rows: np.ndarray | None = None
    ) -> Iterator[Numbered]:
        name = reads[0].chunk.column.name
        numbered = decode(bundle, reads, self._plan.row_schema.field(name).type, rows)
        return checked(bundle, reads, numbered) if name == self._key else numbered

    def _again(self, bundle: Bundle, why: FormatError, returned: int = 0) -> Bundle:
        """Read a row group again: without its page index if that is wrong, or else without what is cached.

        Raises:
            FormatError: ``why``, if that cannot help, or rows may be missing before those that were ``returned``.
        """
        (group,) = bundle.groups
        by_index = isinstance(why, BadPageIndex)
        if by_index:
            is_possible = not (returned or bundle.is_read_again)
        else:
            is_possible = not bundle.is_fresh and self._arrivals.drop_cached(group)
        if not is_possible:
            self._events.note_failure(group.file.file.crawl, COLUMNAR, why)
            raise why
        what = f"{group.where}: {why}; it is read without its page index" if by_index else f"{why}; it is read again"
        self._events.notify(what)
        self._events.uncount(group.file.file.crawl, group.read.counted)
        columns = tuple(ColumnRead(read.chunk) for read in group.read.columns)
        read = replace(group.read, columns=columns, rows=(range(group.read.num_rows),), key_index=None, counted=0)
        whole = LoadedRowGroup(group.file, read)
        return Bundle([whole], later=self._arrivals.request(whole, columns), is_read_again=True, is_fresh=not by_index)


def _order_column(bundle: Bundle, rows: np.ndarray) -> tuple[pa.Field, pa.Array]:
    places = [
        group.read.drawn.order[np.searchsorted(group.read.drawn.rows, rows[part] - start)]
        for group, part, start in zip(bundle.groups, bundle.parts(rows), bundle.starts.tolist(), strict=False)
        if group.read.drawn
    ]
    order = pa.py_buffer(np.concatenate(places))
    return pa.field(DRAWN_ORDER, pa.float64()), pa.Array.from_buffers(pa.float64(), len(rows), [None, order])


def _least_after(stop: int, rows: int, keys: KeysLeft | None) -> bytes:
    """Return a lower bound of the keys after some of the rows of a row group."""
    if stop == rows:
        return END
    return keys.at(stop) if keys else b""
