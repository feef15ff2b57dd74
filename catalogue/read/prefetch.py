"""Requests of a plan, made while others are being decoded → the bytes of row groups, each as soon as they are there."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from catalogue.errors import FileChanged, NotFound, SourceError, UnplannedRead
from catalogue.plan.plan import ColumnRead, PlannedFile, PlannedRowGroup, ReadPlan
from catalogue.plan.requests import PlannedRequest
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.checks import Response, Source

IN_FLIGHT = 256 << 20
"""Bytes that are asked for or waiting to be decoded at most; a larger single fetch goes alone."""


@dataclass(slots=True)
class LoadedRowGroup:
    """A row group whose bytes are arriving."""

    file: PlannedFile
    read: PlannedRowGroup
    pieces: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """By column, and by offset in the file."""
    teaches: bool = True
    """Whether reading it tells of its pages what is not held yet."""

    def take(self, fetch: PlannedRequest, body: bytes) -> None:
        """Keep the parts of a fetch that belong to this row group."""
        for part in fetch.parts:
            if part.row_group == self.read.ordinal:
                start = part.range.start - fetch.range.start
                piece = body if len(part.range) == len(body) else body[start : start + len(part.range)]
                self.pieces.setdefault(part.column, {})[part.range.start] = piece

    def data(self, column: ColumnRead) -> bytes:
        """A column's bytes: its dictionary page, if it needs it, and its pages, or the whole chunk."""
        name = column.chunk.column.name
        return b"".join(self.cut(name, part.range) for part in column.parts(self.read.ordinal))

    def cut(self, column: str, wanted: ByteRange) -> bytes:
        """Some bytes of a column that have arrived, in however many pieces."""
        pieces = self.pieces[column]
        whole = pieces.get(wanted.start)
        if whole is not None and len(whole) == len(wanted):
            return whole
        ends = sorted((start, start + len(piece)) for start, piece in pieces.items())
        inside = [start for start, end in ends if start < wanted.end and end > wanted.start]
        return b"".join(pieces[start][max(0, wanted.start - start) : wanted.end - start] for start in inside)

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return sum(len(piece) for pieces in self.pieces.values() for piece in pieces.values())

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.file.file.path}, row group {self.read.ordinal}"


class Prefetcher:
    """Makes the requests of one plan."""

    def __init__(self, plan: ReadPlan, source: Source, executor: Executor) -> None:
        """Make requests of ``source`` in the threads of ``executor``."""
        self._plan = plan
        self._source = source
        self._executor = executor
        self._files = {file.file.path: file for file in plan.files}

    def groups(self) -> Iterator[LoadedRowGroup]:
        """The row groups in the order of the plan, each with all bytes of the first wave.

        Raises:
            UnplannedRead: if the plan's requests are not those of its row groups.
        """
        groups = [LoadedRowGroup(file, group) for file in self._plan.files for group in file.row_groups]
        left = {(g.file.file.path, g.read.ordinal): g for g in groups}
        lacking = {
            key: sum(len(part.range) for read in group.read.columns if not read.later for part in read.parts(0))
            for key, group in left.items()
        }
        for fetch, body in self._bodies(self._plan.waves[0] if self._plan.waves else ()):
            for ordinal in dict.fromkeys(part.row_group for part in fetch.parts):
                key = (fetch.path, ordinal)
                if key not in left:
                    message = f"{fetch.path}: row group {ordinal} was fetched but not planned"
                    raise UnplannedRead(message)
                left[key].take(fetch, body)
                lacking[key] -= sum(len(part.range) for part in fetch.parts if part.row_group == ordinal)
            # Others may be complete before it is their turn: what is cached is there first.
            while left and not lacking[next(iter(left))]:
                yield left.pop(next(iter(left)))
        if left:  # its rows would be left out without a word
            message = f"{next(iter(left.values())).where} was planned but not fetched whole"
            raise UnplannedRead(message)

    def _bodies(self, wave: Iterable[PlannedRequest]) -> Iterator[tuple[PlannedRequest, bytes]]:
        waiting = deque(wave)
        # What is cached is read when its turn comes: threads would take longer to be told of it than that takes.
        under_way: deque[tuple[PlannedRequest, Future[Response] | None]] = deque()
        in_flight = 0
        # With a limit nobody knows how much is wanted: one request is ahead of what is being decoded, no more.
        ahead = 2 if self._plan.stops_early else len(waiting)
        try:
            while waiting or under_way:
                while waiting and len(under_way) < ahead:
                    if under_way and in_flight + len(waiting[0].range) > IN_FLIGHT:
                        break
                    fetch = waiting.popleft()
                    in_flight += len(fetch.range)
                    under_way.append((fetch, None if fetch.cached else self.submit(fetch)))
                fetch, future = under_way.popleft()
                yield fetch, (future.result() if future else self._get(fetch)).body
                in_flight -= len(fetch.range)
        finally:
            for _, future in under_way:
                if future:
                    future.cancel()

    def submit(self, fetch: PlannedRequest) -> Future[Response]:
        """Make one request, or none for what is cached."""
        if not fetch.cached:
            return self._executor.submit(self._get, fetch)
        read: Future[Response] = Future()
        try:
            read.set_result(self._get(fetch))
        except SourceError as error:  # it was cached when the query was planned
            read.set_exception(error)
        return read

    def _get(self, fetch: PlannedRequest) -> Response:
        try:
            return self._source.get(fetch.path, fetch.range, pin=self._files[fetch.path].pin)
        except (FileChanged, NotFound) as error:
            again = self._plan.query.table.harvest_command(self._files[fetch.path].file.crawl)
            message = f"{error}; run: {again} --refresh"
            raise type(error)(message) from error
