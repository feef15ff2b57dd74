"""Records of captures, and outputs made of them."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalogue.captures import Captures
from catalogue.catalogue.sound import Sound
from catalogue.commoncrawl.capture import Capture, capture_of, record_columns
from catalogue.errors import BadRecord, IncompleteAnswer, QueryError
from catalogue.output.fetch import (
    EncodedRecords,
    Fetched,
    FetchEstimate,
    distinct,
    estimate,
    fetch_by_workers,
    fetch_encoded,
    fetch_into,
    missing,
)
from catalogue.output.formats import FormatSpec, open_format
from catalogue.output.open_output import format_of, open_output
from catalogue.plan.record_requests import RecordFetch, record_fetches
from catalogue.progress import Progress
from catalogue.read.dataframes import frame_of, in_order
from catalogue.records.fetch import fetch_records
from catalogue.records.metadata import ROW
from catalogue.records.record import Record, read_record
from catalogue.sample import Sample
from catalogue.url_index_2012.search import PATH, OldIndex

if TYPE_CHECKING:
    import pandas as pd

_CRAWL = re.compile(r"\b(CC-[A-Za-z0-9-]+|crawl-00[12])/")

_ROWS = 1 << 14
"""Of a table that are looked at together."""

SomeCaptures: TypeAlias = "Captures | Sample | pa.Table | pd.DataFrame | Iterable[Capture | Mapping[str, Any]]"
"""An answer, a sample, a table or DataFrame with the columns of the index or of a CDX server, or such rows."""


class Fetches(Sound):
    """From captures to pages."""

    def records(self, captures: SomeCaptures) -> Iterator[Record]:
        """The records of captures, by archive and offset; of each that cannot be had there is a warning.

        Raises:
            SourceError: if the source failed as a whole.
        """
        source = self._source
        wanted = distinct(self._captures(captures, _warn))
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

    def record(self, capture: Capture) -> Record:
        """The record of one capture, checked as all are.

        Raises:
            BadRecord: if what lies at its place is damaged, or another one.
            SourceError: if it cannot be had: ``NotFound`` if there is no such archive.
        """
        return read_record(capture, self._source.get(capture.filename, capture.range).body)

    def fetch_estimate(self, captures: SomeCaptures) -> FetchEstimate:
        """What fetching the records of captures takes; an answer is read for it, but no record."""
        return estimate(self._captures(captures, _warn), self._cost())

    def fetch(
        self,
        captures: SomeCaptures,
        output: str | Path | IO[bytes],
        *,
        form: str | None = None,
        main_content: bool = False,
        most: int | None = None,
        about: str = "",
        agree: Callable[[FetchEstimate], None] | None = None,
        report: Callable[[Fetched], None] | None = None,
    ) -> Fetched:
        """Fetch records into a file. The same again fetches what is missing, and goes on after a kill.

        Args:
            captures: whose records are wanted.
            output: the file, such as ``found.warc.gz``; beside it lies its ledger. Or such a URL, of S3 or whatever
                fsspec can write to, with the user's own credentials. What goes there grows in the cache's folder, and
                only one machine at a time may go on with it. Or an open file, such as ``sys.stdout.buffer``, for
                ``warc``, ``text`` and ``metadata``; that cannot be resumed.
            form: ``warc``, the records as they were archived; JSON lines, ``text`` of the pages or ``metadata`` as
                described in ``catalogue.records.metadata``; ``parquet`` with the columns of its ``ROW``; or
                ``payload``, for which the output is a folder of files and their ``index.jsonl``. By default the
                output's suffix decides, where ``.jsonl`` means ``text``; an open file gets ``warc``.
            main_content: whether texts are without navigation, footers and the like.
            most: bytes of a file, about, after which another is begun: ``found-00000.warc.gz`` and so on. By default
                there is one file, but at a URL they have 1 GB.
            about: what was asked, for the file's first record.
            agree: told what fetching those takes that the output lacks; if it raises, none is. An answer is read twice
                for it.
            report: told how far it is, often, instead of a bar.

        Returns:
            What is there, and what could not be had and why.

        Raises:
            QueryError: if the output is another's.
            SourceError: if the source failed as a whole.
            OutputFailed: if a URL cannot be written to; what was fetched is kept.
        """
        unusable: list[str] = []
        spec = FormatSpec(form or format_of(output), main_content, about, _crawls(captures))
        with (
            open_format(spec) as format_,
            open_output(output, format_, spec.identity, most=most, cache=self.settings.cache) as (writer, ledger),
        ):
            workers, source, cost = self._workers, self._source, self._cost()
            if agree:
                known = self._captures(captures, lambda _: None)
                agree(estimate(missing(known, ledger, source.url), cost))
            wanted, count = self._captures(captures, unusable.append), _count(captures)

            def fetch(fetches: Iterable[RecordFetch]) -> EncodedRecords:
                if workers:
                    return fetch_by_workers(fetches, workers, spec, self._notify)
                return fetch_encoded(fetches, source, format_)

            with self._bars("records") as bar:

                def told(at: Fetched) -> None:
                    bar(Progress("fetch", count, at.records, failed=len(at.failed), bytes=at.bytes))

                tell = report or told
                done = fetch_into(writer, ledger, wanted, fetch, source=source.url, max_gap=cost.max_gap, report=tell)
            done.files = writer.finish()
        done.unusable = unusable
        return done

    def fetch_to_pandas(self, captures: SomeCaptures, *, main_content: bool = False) -> "pd.DataFrame":
        """The pages of captures as a DataFrame: URL, time, status, HTTP headers, title, text and links.

        The columns are those of ``catalogue.records.metadata.ROW``. Of each that cannot be had there is a warning.

        Args:
            captures: whose records are wanted.
            main_content: whether texts are without navigation, footers and the like.

        Raises:
            SourceError: if the source failed as a whole.
        """
        with TemporaryDirectory() as folder:
            file = Path(folder) / "pages.parquet"
            done = self.fetch(captures, file, form="parquet", main_content=main_content)
            for reason in [*done.failed.values(), *done.unusable]:
                warnings.warn(reason, IncompleteAnswer, stacklevel=2)
            return frame_of(pq.read_table(file) if done.files else ROW.empty_table())

    def old_index(self, path: str = PATH) -> OldIndex:
        """The URL index of the crawl of 2012, which has no columnar one: ``find`` a pattern, then its ``captures``.

        Args:
            path: of the index file, relative to the source.
        """
        return OldIndex(self._reading, path)

    def _captures(self, captures: SomeCaptures, refuse: Callable[[str], None]) -> Iterator[Capture]:
        """What may be fetched of them; ``refuse`` is told why the others may not."""
        found = _usable(_rows(captures), refuse)
        if isinstance(captures, list):  # in the order of the archives, as a table
            found = iter(sorted(found, key=lambda each: (each.filename, each.offset)))
        return found


def _usable(rows: Iterable[object], refuse: Callable[[str], None]) -> Iterator[Capture]:
    for each in rows:
        if isinstance(each, Capture):
            yield each
            continue
        if not isinstance(each, Mapping):
            message = f"captures are an answer, a table, a DataFrame or a list of rows, not such as {each!r:.100}"
            raise QueryError(message)
        try:
            yield capture_of(each)
        except BadRecord as error:
            refuse(str(error))


def _crawls(captures: SomeCaptures) -> tuple[str, ...]:
    """Those that captures are of, as far as that is known before they are read."""
    names: Iterable[object] = ()
    frame: Any = captures
    if isinstance(captures, Captures):
        names = captures.plan.paths
    elif isinstance(captures, list):
        names = {each.filename if isinstance(each, Capture) else _archive(each) for each in captures}
    elif isinstance(captures, pa.Table):
        names = pc.unique(captures.column(record_columns(captures.schema.names)["filename"])).to_pylist()
    elif _is_frame(captures):
        names = frame[record_columns(frame.columns)["filename"]].astype(str).unique()
    return tuple(sorted({found[1] for name in names if (found := _CRAWL.search(str(name)))}))


def _count(captures: SomeCaptures) -> int:
    """How many they are; 0 if that is not known before they are read."""
    return 0 if isinstance(captures, Captures | Sample) or not isinstance(captures, Sized) else len(captures)


def _is_frame(captures: object) -> bool:
    return hasattr(captures, "iloc") and hasattr(captures, "columns")


def _archive(row: object) -> str:
    return f"{row.get('warc_filename')} {row.get('filename')}" if isinstance(row, Mapping) else ""


def _rows(captures: SomeCaptures) -> Iterator[object]:
    """Captures one by one; of tables no more than some are made into what Python can look at."""
    frame: Any = captures
    if isinstance(captures, Captures | Sample):
        names = list(record_columns(captures.schema.names).values())
        for batch in captures.batches():
            yield from batch.select(names).to_pylist()
    elif isinstance(captures, pa.Table):
        for batch in _in_order(captures).to_batches(_ROWS):
            yield from batch.to_pylist()
    elif _is_frame(captures):
        found = record_columns(frame.columns)
        ordered = in_order(frame[list(found.values())], found["filename"], found["offset"])
        for start in range(0, len(ordered), _ROWS):
            yield from ordered.iloc[start : start + _ROWS].to_dict("records")
    elif isinstance(captures, Iterable):
        yield from captures
    else:
        yield captures


def _in_order(captures: pa.Table) -> pa.Table:
    """What a table says of records, in the order of the archives: those near each other come together."""
    found = record_columns(captures.schema.names)
    plain = pa.table({name: _plain(captures.column(name)) for name in found.values()})
    offset = plain.column(found["offset"])
    if pa.types.is_string(offset.type) or pa.types.is_large_string(offset.type):
        number = pc.match_substring_regex(offset, r"^[0-9]{1,18}$")  # what is none is refused later
        offset = pc.if_else(number, offset, None).cast(pa.int64())
    keys = pa.table({"filename": plain.column(found["filename"]), "offset": offset})
    return plain.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.schema.names]))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a type that can be sorted."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _warn(reason: str) -> None:
    warnings.warn(reason, IncompleteAnswer, stacklevel=3)
