"""Records of captures, and outputs made of them."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from catalogue.capture import RECORD_COLUMNS, Capture, capture_of
from catalogue.captures import Captures
from catalogue.catalogue.telling import Telling
from catalogue.document import Documents
from catalogue.errors import BadRecord, IncompleteAnswer, QueryError
from catalogue.fetching import Fetched, FetchEstimate, estimate, fetch_into, fetch_records
from catalogue.metadata import metadata_of, text_of
from catalogue.old_index import PATH, OldIndex
from catalogue.outputs import Form, Ledger, Lines, Parts, Warc
from catalogue.plan import record_fetches
from catalogue.record import Record
from catalogue.settings import package_version

if TYPE_CHECKING:
    import pandas as pd

FORMS = ("warc", "text", "metadata")

SomeCaptures: TypeAlias = "Captures | pd.DataFrame | Iterable[Capture | Mapping[str, Any]]"
"""An answer, a DataFrame with the columns of the index or of a CDX server, or such rows."""


class Fetches(Telling):
    """From captures to pages."""

    def records(self, captures: SomeCaptures) -> Iterator[Record]:
        """The records of captures, by archive and offset; of each that cannot be had there is a warning.

        Raises:
            SourceError: if the source failed as a whole.
        """
        source = self._source
        wanted = dict.fromkeys(self._captures(captures, _warn))
        fetches = record_fetches(wanted, max_gap=self._cost().max_gap)
        executor = ThreadPoolExecutor(source.connections, thread_name_prefix="records")
        try:
            with closing(fetch_records(fetches, source, executor)) as results:
                for result in results:
                    if isinstance(result, Record):
                        yield result
                    else:
                        _warn(result.reason)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def fetch_estimate(self, captures: SomeCaptures) -> FetchEstimate:
        """What fetching the records of captures takes; an answer is read for it, but no record."""
        return estimate(list(self._captures(captures, _warn)), self._cost())

    def fetch(
        self,
        captures: SomeCaptures,
        output: str | Path,
        *,
        form: str = "warc",
        main_content: bool = False,
        most: int | None = None,
        about: str = "",
        report: Callable[[Fetched], None] = lambda _: None,
    ) -> Fetched:
        """Fetch records into a file. The same again fetches what is missing, and goes on after a kill.

        Args:
            captures: whose records are wanted.
            output: the file, such as ``found.warc.gz``; beside it lies its ledger.
            form: ``warc``, the records as they were archived; or JSON lines, ``text`` of the pages or ``metadata`` as
                described in ``catalogue.metadata``.
            main_content: whether texts are without navigation, footers and the like.
            most: bytes of a file, about, after which another is begun: ``found-00000.warc.gz`` and so on.
            about: what was asked, for the file's first record.
            report: told how far it is, often.

        Returns:
            What is there, and what could not be had and why.

        Raises:
            QueryError: if the output is another's.
            SourceError: if the source failed as a whole.
        """
        target = Path(output)
        unusable: list[str] = []
        kept = {"form": form, "most": most} | ({"main_content": True} if main_content else {})
        with (
            _form(form, about, main_content=main_content) as chosen,
            closing(Ledger(target.with_name(f"{target.name}.ledger"), kept)) as ledger,
        ):
            parts = Parts(target, chosen, ledger, most=most)
            try:
                wanted = self._captures(captures, unusable.append)
                cost = self._cost()
                done = fetch_into(parts, ledger, wanted, self._source, max_gap=cost.max_gap, report=report)
                done.files = parts.finish()
            finally:
                parts.close()
        done.unusable = unusable
        return done

    def old_index(self, path: str = PATH) -> OldIndex:
        """The URL index of the crawl of 2012, which has no columnar one: ``find`` a pattern, then its ``captures``.

        Args:
            path: of the index file, relative to the source.
        """
        return OldIndex(self._reading, path)

    def _captures(self, captures: SomeCaptures, refuse: Callable[[str], None]) -> Iterator[Capture]:
        """What may be fetched of them; ``refuse`` is told why the others may not."""
        for each in _rows(captures):
            if isinstance(each, Capture):
                yield each
                continue
            try:
                yield capture_of(each)
            except BadRecord as error:
                refuse(str(error))


@contextmanager
def _form(name: str, about: str, *, main_content: bool) -> Iterator[Form]:
    if name == "warc":
        yield Warc(
            {
                "software": f"commoncrawl-catalogue/{package_version()}",
                "format": "WARC File Format 1.0",
                "description": about or "records of captures in Common Crawl",
            }
        )
        return
    if name not in FORMS:
        message = f"{name!r} is no form of records; there are {', '.join(FORMS)}"
        raise QueryError(message)
    with Documents(main_content=main_content) as documents:
        yield Lines(
            lambda record: text_of(record, documents.look) if name == "text" else metadata_of(record, documents.look)
        )


def _rows(captures: SomeCaptures) -> Iterable[Capture | Mapping[str, Any]]:
    if isinstance(captures, Captures):
        for batch in captures.batches():
            yield from batch.select([name for name in RECORD_COLUMNS if name in batch.schema.names]).to_pylist()
        return
    frame: Any = captures
    yield from frame.to_dict("records") if hasattr(frame, "to_dict") else frame


def _warn(reason: str) -> None:
    warnings.warn(reason, IncompleteAnswer, stacklevel=3)
