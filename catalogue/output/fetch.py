"""Captures → their records, fetched, checked, and brought into a form."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import (
    BadRecord,
    Blocked,
    CatalogueError,
    Forbidden,
    FormatError,
    NotFound,
    SourceError,
    SourceUnavailable,
)
from catalogue.output.form_spec import FormOf, open_form
from catalogue.output.formats import Form
from catalogue.plan.record_requests import RecordFetch
from catalogue.read.workers import Workers, at_home
from catalogue.records.record import Record, read_record
from catalogue.settings import Settings
from catalogue.source.checks import Source
from catalogue.source.open import open_source
from catalogue.supervised import ChildDied

_IN_FLIGHT = 128 << 20
"""Bytes that are asked for or waiting to be taken at most; a larger single fetch goes alone."""
_AHEAD = 2
"""Records a core that are brought into their form ahead of what is taken: each may take a quarter of a gigabyte."""
_TASK_BYTES, _TASK_REQUESTS = 16 << 20, 64
"""Of what one worker is asked for at once, about."""
_TASK_MOST = 256 << 20
"""Bytes that a worker makes of that at most."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A capture whose record could not be had."""

    capture: Capture
    reason: str
    lasting: bool
    """Whether another try would fail as well."""


@dataclass(frozen=True, slots=True)
class Made:
    """A record in its form."""

    capture: Capture
    data: bytes


def fetch_records(
    fetches: Iterable[RecordFetch], source: Source, executor: Executor
) -> Generator[Record | Failed, None, None]:
    """The records of captures, or why there is none, in the order of the requests.

    Args:
        fetches: what to ask for.
        source: where the archives are.
        executor: makes requests ahead of what is taken.

    Raises:
        SourceUnavailable: if the source failed as a whole; what was not handed out yet was not fetched.
    """
    with closing(_members(fetches, source, executor)) as members:
        for each in members:
            yield each if isinstance(each, Failed) else _checked(*each)


_Member = tuple[Capture, bytes]
"""A capture and the bytes at its place."""


def _members(
    fetches: Iterable[RecordFetch], source: Source, executor: Executor
) -> Generator[_Member | Failed, None, None]:
    waiting = iter(fetches)
    under_way: deque[tuple[Future[list[_Member | Failed]], int]] = deque()
    in_flight = 0
    following = next(waiting, None)
    try:
        while following or under_way:
            while following and (not under_way or in_flight + len(following.range) <= _IN_FLIGHT):
                under_way.append((executor.submit(_fetch_one, following, source), len(following.range)))
                in_flight += len(following.range)
                following = next(waiting, None)
            future, size = under_way.popleft()
            yield from future.result()
            in_flight -= size
    finally:
        for future, _ in under_way:
            future.cancel()


def _fetch_one(fetch: RecordFetch, source: Source) -> list[_Member | Failed]:
    """What one request brings, or why there is nothing.

    Raises:
        SourceUnavailable: if the source failed as a whole.
    """
    try:
        body = source.get(fetch.path, fetch.range).body
    except (Blocked, SourceUnavailable):
        raise
    except (NotFound, Forbidden) as error:
        return [Failed(capture, str(error), lasting=isinstance(error, NotFound)) for capture in fetch.captures]
    except SourceError as error:
        if len(fetch.captures) > 1:  # one that is wrong must not spoil its neighbours
            alone = (RecordFetch(fetch.path, capture.range, (capture,)) for capture in fetch.captures)
            return [result for each in alone for result in _fetch_one(each, source)]
        return [Failed(fetch.captures[0], str(error), lasting=False)]
    places = ((capture, capture.offset - fetch.range.start) for capture in fetch.captures)
    return [(capture, body[at : at + capture.length]) for capture, at in places]


def _checked(capture: Capture, member: bytes) -> Record | Failed:
    try:
        return read_record(capture, member)
    except BadRecord as error:
        return _unfit(capture, error)


def _made(capture: Capture, member: bytes, form: Form) -> Made | Failed:
    """A record in its form; what it inflates to is gone by then."""
    try:
        return Made(capture, form.add(read_record(capture, member)))
    except FormatError as error:
        return _unfit(capture, error)
    except (CatalogueError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a form that cannot take one record must not keep the others out
        reason = f"{capture.filename} at {capture.offset:,}: {type(error).__name__}: {str(error)[:300]}"
        return Failed(capture, reason, lasting=False)


def _unfit(capture: Capture, error: FormatError) -> Failed:
    lasting = not isinstance(error.__cause__, ChildDied)  # a parser that took too long, or was killed, may do better
    return Failed(capture, f"{capture.filename} at {capture.offset:,}: {error}", lasting=lasting)


class Making(Protocol):
    """Who fetches records, checks them, and brings them into their form."""

    def made(self, fetches: Iterable[RecordFetch]) -> Generator[Made | Failed, None, None]:
        """What comes of requests, record by record in some order.

        Raises:
            SourceUnavailable: if the source failed as a whole.
        """


class MadeHere:
    """Threads of this process."""

    def __init__(self, source: Source, form: Form) -> None:
        """Fetch from a source, and bring what comes into a form."""
        self._source = source
        self._form = form
        self._fetching = ThreadPoolExecutor(source.connections, thread_name_prefix="fetch")
        self._forming = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="form")

    def close(self) -> None:
        """Break off."""
        self._fetching.shutdown(wait=False, cancel_futures=True)
        self._forming.shutdown(wait=False, cancel_futures=True)

    def made(self, fetches: Iterable[RecordFetch]) -> Generator[Made | Failed, None, None]:
        """See ``Making``; in the order of the requests."""
        under_way: deque[Future[Made | Failed] | Failed] = deque()
        most = _AHEAD * (os.cpu_count() or 1)

        def first() -> Made | Failed:
            each = under_way.popleft()
            return each if isinstance(each, Failed) else each.result()

        with closing(_members(fetches, self._source, self._fetching)) as members:
            for each in members:
                under_way.append(each if isinstance(each, Failed) else self._forming.submit(_made, *each, self._form))
                if len(under_way) > most:
                    yield first()
        while under_way:
            yield first()


@dataclass(frozen=True, slots=True)
class RecordTask:
    """Requests for records, and all it takes to make them anywhere."""

    fetches: tuple[RecordFetch, ...]
    form: FormOf
    settings: Settings
    most: int
    """Bytes that are made of them, unless the first alone has more."""


@dataclass(frozen=True, slots=True)
class RecordsDone:
    """What came of a task."""

    made: tuple[Made | Failed, ...]
    left: tuple[Capture, ...]
    """That were not made, since the others are so large."""
    said: tuple[str, ...]
    """What a person would want to know."""
    requests: int
    bytes: int


def run(task: RecordTask) -> RecordsDone:
    """Fetch records, in any process of any machine where this package is.

    Raises:
        SourceUnavailable: if the source failed as a whole.
    """
    settings = at_home(task.settings)
    said: list[str] = []
    made: list[Made | Failed] = []
    room = task.most
    with (
        closing(open_source(settings.source, settings, notify=said.append)) as source,
        open_form(task.form) as form,
        closing(MadeHere(source, form)) as here,
        closing(here.made(task.fetches)) as results,
    ):
        for each in results:
            if isinstance(each, Made):
                room -= len(each.data)
            if room < 0 and made:
                break
            made.append(each)
        there = {each.capture for each in made}
        left = tuple(each for fetch in task.fetches for each in fetch.captures if each not in there)
        return RecordsDone(tuple(made), left, tuple(said), source.requests, source.bytes)


class MadeByWorkers:
    """Workers, each with its share of the rate."""

    def __init__(
        self, workers: Workers, form: FormOf, notify: Callable[[str], None], *, most: int = _TASK_MOST
    ) -> None:
        """Hand tasks to workers, who answer each with ``most`` bytes at most; ``notify`` is told what they say."""
        self._workers = workers
        self._form = form
        self._most = most
        self._notify = notify

    def close(self) -> None:
        """Nothing is left to do: the workers are somebody else's."""

    def made(self, fetches: Iterable[RecordFetch]) -> Generator[Made | Failed, None, None]:
        """See ``Making``; what would make an answer too large is made alone, at the end."""
        left: list[Capture] = []
        yield from self._done(self._tasks(fetches), left)
        yield from self._done((self._task(RecordFetch(each.filename, each.range, (each,))) for each in left), [])

    def _done(self, tasks: Iterable[RecordTask], left: list[Capture]) -> Iterator[Made | Failed]:
        with closing(self._workers.done(tasks, self._notify, do=run)) as results:
            for done in results:
                if not isinstance(done, RecordsDone):
                    raise done
                left += done.left
                yield from done.made

    def _tasks(self, fetches: Iterable[RecordFetch]) -> Iterator[RecordTask]:
        some: list[RecordFetch] = []
        for fetch in fetches:
            some.append(fetch)
            if len(some) >= _TASK_REQUESTS or sum(len(each.range) for each in some) >= _TASK_BYTES:
                yield self._task(*some)
                some = []
        if some:
            yield self._task(*some)

    def _task(self, *fetches: RecordFetch) -> RecordTask:
        return RecordTask(fetches, self._form, self._workers.settings, self._most)
