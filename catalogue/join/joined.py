"""The result of a join."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from catalogue.commoncrawl.crawls import INDEX_NAMES, SUBSETS, newest_first, subset_place
from catalogue.errors import warn
from catalogue.formatting import ReprMixin, duration, join_first, plural, size

if TYPE_CHECKING:
    import pandas as pd


def _crawl_and_subset(part: Path) -> tuple[str, str]:
    crawl = part.stem.rpartition("-")[0]
    subset = next((subset for subset in SUBSETS if crawl.endswith(f"-{subset}")), "")
    return crawl.removesuffix(f"-{subset}"), subset


def files_in_order(folder: Path) -> list[Path]:
    """Return Parquet files in the order of the result: newest crawl first, in a crawl by subset, then by key."""
    found = sorted(folder.glob("[!.]*.parquet"))
    places = {path: _crawl_and_subset(path) for path in found}
    crawls = newest_first(crawl for crawl, _ in places.values())
    return sorted(found, key=lambda path: (crawls.index(places[path][0]), subset_place(places[path][1]), path))


@dataclass(slots=True, repr=False)
class Joined(ReprMixin):
    """The result of a join, on disk."""

    output: Path
    """A folder with Parquet files, or one file."""
    how: str
    rows: int
    input_rows: int
    patterns: int
    """Different keys, hosts, domains or prefixes."""
    invalid: int
    """Rows of the input without a key."""
    invalid_file: Path | None
    """A CSV file with their number, text, and what is wrong."""
    crawls: tuple[str, ...]
    """Searched crawls, newest first."""
    subsets: tuple[str, ...]
    slices: int
    """Parts in which the keys were read."""
    requests: int
    """Requests of this run."""
    bytes: int
    """Bytes that this run received."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons why slices could not be read, by name."""
    missing: tuple[str, ...] = ()
    """Sentences about index files that are not stored."""
    left: int = 0
    """Slices for which the budget was not enough."""
    next_bytes: int = 0
    """Bytes of the next of these."""
    other_urls: int = 0
    """Rows with captures of other URLs with the same key, since the URL of the list has none."""
    notes: tuple[str, ...] = ()
    """Sentences about conditions on columns that old crawls do not have."""

    @property
    def complete(self) -> bool:
        """Whether everything was read that can match."""
        return not (self.failed or self.missing or self.left)

    @property
    def problems(self) -> list[str]:
        """Sentences about what was not read."""
        failed = (f"{name} could not be read: {reason}" for name, reason in self.failed.items())
        left = f"{self.left:,} of {plural(self.slices, 'slice')} left, the next of which takes {size(self.next_bytes)}"
        again = [f"{left}; run the join again with a budget above that"] if self.left else []
        return [*failed, *again, *self.missing]

    @property
    def files(self) -> list[Path]:
        """Parquet files in the order of the result: newest crawl first, in a crawl by subset, then by key."""
        return files_in_order(self.output) if self.output.is_dir() else [self.output]

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table; warn if some may be missing."""
        for sentence in (*self.problems, *self.notes):
            warn(sentence)
        return pa.concat_tables(pq.read_table(path) for path in self.files)

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a DataFrame; integers stay integers where values are missing, times are UTC."""
        from catalogue.read.dataframes import frame_of

        return frame_of(self.to_arrow())

    def _line(self) -> str:
        return f"of a join, {self.how}: {plural(self.rows, 'row')}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "input", f"{plural(self.input_rows, 'row')}, {plural(self.patterns, 'key')}"
        if self.invalid:
            yield "without a key", f"{plural(self.invalid, 'row')}; see invalid_file"
        yield "crawls", join_first(self.crawls)
        yield "subsets", ", ".join(self.subsets)
        yield "files", f"{len(self.files):,}"
        if self.other_urls:
            yield "of other URLs", f"{plural(self.other_urls, 'row')}; see the column exact"

    def _notes(self) -> Iterator[str]:
        yield from (f"Note: {note}" for note in self.notes)
        yield from (f"The result may be incomplete: {problem}" for problem in self.problems)


@dataclass(frozen=True, slots=True)
class CrawlPrice:
    """The cost of a crawl by an index; estimates unless ``exact``."""

    crawl: str
    index: str
    slices: int
    requests: int
    bytes: int
    seconds: float
    exact: bool

    @property
    def about(self) -> str:
        return "" if self.exact else "about "


@dataclass(frozen=True, slots=True, repr=False)
class JoinEstimate(ReprMixin):
    """The cost of what a join has not done yet."""

    rows: int
    patterns: int
    """Different keys."""
    crawls: tuple[CrawlPrice, ...]
    requests: int
    bytes: int
    seconds: float

    def _line(self) -> str:
        cost = f"{plural(self.requests, 'request')}, {size(self.bytes)}, about {duration(self.seconds)}"
        return f"of {plural(self.patterns, 'key')} and {plural(len(self.crawls), 'crawl')}: {cost}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        for each in self.crawls:
            cost = f"{plural(each.requests, 'request')}, {size(each.bytes)}"
            yield each.crawl, f"{plural(each.slices, 'slice')} by the {INDEX_NAMES[each.index]}, {each.about}{cost}"
