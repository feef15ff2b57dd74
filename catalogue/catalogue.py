"""``catalogue.open`` and class ``Catalogue``: the Python API, with one call for each feature in ``catalogue/api``."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue.api.harvest_calls import HarvestCalls
from catalogue.api.query_calls import QueryCalls
from catalogue.api.record_calls import RecordCalls
from catalogue.api.table_calls import TableCalls
from catalogue.errors import warn
from catalogue.formatting import ReprMixin, plural
from catalogue.progress import bars
from catalogue.query.arguments import checked, checking_arguments
from catalogue.session import Session
from catalogue.store.folder_settings import settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from typing import Self

    from catalogue.commoncrawl.crawls import CrawlWords
    from catalogue.query.filters import Moment
    from catalogue.records.page import Page
    from catalogue.settings import Settings
    from catalogue.source.observe import Observer, RequestEvent

_LISTED_CRAWLS = 12
"""Crawls that the text of a catalogue lists."""
_REPR_WAIT = 0.1
"""Seconds that the text of a catalogue waits for a process that writes."""


@checked
def open(  # noqa: A001 - catalogue.open, as gzip.open
    data: str | Path | None = None,
    *,
    table: str | None = None,
    source: str | Path | None = None,
    settings: Settings | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
    trace: bool | Observer = False,
) -> Catalogue:
    """Open a data folder, which the first harvest creates.

    ``close()``, or the end of a ``with`` statement, closes files and connections; unread results are lost then.

    Args:
        data: the data folder; by default a setting, else ``data`` if it has a store, else the user's data folder.
        table: name of a dataset other than Common Crawl's index, with a folder of its own in the data folder.
        source: an https, http or s3 address, a folder, or hosts such as ``commoncrawl,huggingface``; by default a
            setting, else that of the stored files, else Common Crawl.
        settings: used instead of the environment and ``config.toml``.
        executor: reads with its workers: a ``ProcessPoolExecutor``, or ``client.get_executor()`` of a Dask client.
            They need this package. Machines of a cluster divide the rate.
        progress: show progress bars; by default in notebooks and on terminals.
        trace: print each request on standard error, or a function that is called with each
            ``catalogue.source.observe.RequestEvent``, from any thread. Requests of workers are left out.
    """
    where = source if source is None else str(source)
    chosen = settings or settings_for(data=data, dataset=table, notify=_warn, source=where)
    folder = (Path(data) if settings and data is not None else chosen.data).absolute()
    chosen = chosen.absolute()  # the current folder may change
    observer = (_print_event if trace else None) if isinstance(trace, bool) else trace
    return Catalogue(
        Session(folder, chosen, dataset_name=table, executor=executor, bars=bars(progress), observer=observer)
    )


@checked
def get(
    url: str,
    *,
    at: Moment | None = None,
    crawls: CrawlWords | None = None,
    follow: bool = True,
    max_requests: int = 20,
) -> Page:
    """Get an archived page; see ``Catalogue.get``."""
    with open() as cat:
        return cat.get(url, at=at, crawls=crawls, follow=follow, max_requests=max_requests)


def _warn(text: str) -> None:
    warn(text, UserWarning)


def _shown(place: str | Path) -> str:
    with suppress(ValueError, OSError):  # the current folder may not exist
        return str(Path(place).relative_to(Path.cwd()))
    return str(place)


def _print_event(event: RequestEvent) -> None:
    sys.stderr.write(f"{event}\n")


@checking_arguments
class Catalogue(HarvestCalls, QueryCalls, RecordCalls, TableCalls, ReprMixin):
    """Metadata of index files, and captures found with it. Use it in one thread at a time.

    By default, ``crawls`` are names, years, ranges ``A..B``, ``latest`` or ``all``, of the stored crawls; ``report`` is
    called with the progress, instead of a progress bar.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open and abort requests; the next use opens it again."""
        self.session.close()

    @property
    def requests(self) -> int:
        """Requests to the source so far."""
        return self.session.requests

    @property
    def bytes(self) -> int:
        """Bytes received from the source so far."""
        return self.session.bytes

    @property
    def path(self) -> Path:
        """The DuckDB file with the metadata; a temporary one if the data folder is read-only and it is out of date."""
        return self.session.database_path

    def _line(self) -> str:
        return f"in {_shown(self.session.data)}, of {_shown(self.session.settings.source)}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        from catalogue.metadata_db.connection import reading

        if not (self.session.store_path).exists() or not self.path.exists():
            return
        with reading(self.path) as connection:  # without an update
            stored = connection.execute(
                "SELECT crawl, files_harvested, subsets, num_rows FROM crawls WHERE files_harvested > 0"
            ).fetchall()
        for crawl, files, subsets, rows in stored[:_LISTED_CRAWLS]:
            yield crawl, f"{plural(files, 'file')} of {', '.join(subsets)}; {plural(rows, 'capture')}"
        if len(stored) > _LISTED_CRAWLS:
            yield "others", plural(len(stored) - _LISTED_CRAWLS, "crawl")
        if len(stored) > 1:
            files, rows = (sum(each[at] for each in stored) for at in (1, 3))
            yield "all", f"{plural(files, 'file')}; {plural(rows, 'capture')}"

    def _notes(self) -> Iterator[str]:
        store = self.session.store_path
        if not store.exists() or not store.stat().st_size:  # an empty file would become a store
            yield "Nothing is harvested yet; call harvest()."
        elif not (self.path.exists() and self._is_fresh()):
            yield "Recently harvested files are not in the database yet; the next query adds them."

    def _is_fresh(self) -> bool:
        from catalogue.metadata_db.refresh import is_fresh
        from catalogue.store.database import Store

        if "store" in self.session.__dict__:
            return is_fresh(self.path, self.session.store, indexes=False)
        with Store(self.session.store_path, busy_seconds=_REPR_WAIT) as store:
            return is_fresh(self.path, store, indexes=False)
