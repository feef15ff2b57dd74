"""Page indexes as they are used and stored."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from catalogue.errors import BadPageIndex
from catalogue.parquet.model import Bounds, Footer
from catalogue.parquet.thrift import Reader, ThriftError, typed
from catalogue.source.byte_ranges import ByteRange

LONGEST_BOUND = 256
"""Bytes; parquet-mr cuts at 64."""


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """Places of the data pages of a column chunk; pages are numbered from 0."""

    offsets: tuple[int, ...]
    """Offset of each page in the file, and the end."""
    first_rows: tuple[int, ...]
    """First row of each page in the row group, and the number of rows."""

    def __reduce__(self) -> tuple[type["OffsetIndex"], tuple[object, ...]]:  # see ByteRange
        return OffsetIndex, (self.offsets, self.first_rows)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def extent(self, pages: range) -> ByteRange:
        return ByteRange(self.offsets[pages.start], self.offsets[pages.stop])

    def rows(self, pages: range) -> range:
        return range(self.first_rows[pages.start], self.first_rows[pages.stop])

    def covering(self, rows: Iterable[range]) -> tuple[range, ...]:
        """Return the runs of pages that contain rows, given as ascending, disjoint runs."""
        runs: list[range] = []
        for run in filter(None, rows):
            first = bisect_right(self.first_rows, run.start) - 1
            after = bisect_left(self.first_rows, run.stop)
            if runs and first <= runs[-1].stop:
                runs[-1] = range(runs[-1].start, after)
            else:
                runs.append(range(first, after))
        return tuple(runs)


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """Bounds of the data pages of a column chunk."""

    bounds: tuple[Bounds | None, ...]
    """Bounds by page, often cut; None for a page of nulls."""
    null_counts: tuple[int, ...] | None
    """Counts by page, if the writer counted."""

    def __reduce__(self) -> tuple[type["ColumnIndex"], tuple[object, ...]]:
        return ColumnIndex, (self.bounds, self.null_counts)


@dataclass(frozen=True, slots=True)
class Indexes:
    """The encoded page indexes of one row group, and the bounds of its keys if a backfill read them."""

    column_index: bytes | None = None
    """Index of the key column."""
    offset_indexes: Mapping[str, bytes] = field(default_factory=dict)
    bounds: Bounds | None = None
    """Bounds of all keys, where the footer has none."""

    def __reduce__(self) -> tuple[type["Indexes"], tuple[object, ...]]:
        return Indexes, (self.column_index, self.offset_indexes, self.bounds)

    def joined(self, other: "Indexes") -> "Indexes":
        """Return the union; ``other`` wins."""
        merged = {**self.offset_indexes, **other.offset_indexes}
        return Indexes(other.column_index or self.column_index, merged, other.bounds or self.bounds)

    @property
    def written(self) -> "Indexes | None":
        """Return the part that is in the file."""
        return Indexes(self.column_index, self.offset_indexes) if self.column_index or self.offset_indexes else None

    def parts(self) -> list[bytes]:
        """Return the column index or empty bytes, then the offset indexes."""
        return [self.column_index or b"", *self.offset_indexes.values()]

    def pack(self) -> bytes:
        """Encode for the store: a line of JSON, then the indexes."""
        header: dict[str, object] = {
            "own": False,
            "column_index": len(self.column_index or b""),
            "offset_indexes": [[name, len(data)] for name, data in self.offset_indexes.items()],
        }
        if self.bounds:
            header["bounds"] = [self.bounds.min.decode("latin-1"), self.bounds.max.decode("latin-1")]
        return json.dumps(header).encode() + b"\n" + b"".join(self.parts())

    @classmethod
    def unpack(cls, packed: bytes) -> "Indexes":
        """Decode what ``pack`` returned.

        Earlier versions stored page indexes derived from pages: only their bounds are used, as those of the row group.

        Raises:
            BadPageIndex: if it is invalid.
        """
        head, _, body = packed.partition(b"\n")
        try:
            header = json.loads(head)
            derived, position = typed(header["own"], bool), typed(header["column_index"], int)
            sizes = [(typed(name, str), typed(size, int)) for name, size in header["offset_indexes"]]
            lengths = [position, *(size for _, size in sizes)]
            if min(lengths) < 0 or sum(lengths) != len(body):
                raise ValueError(len(body))  # noqa: TRY301 - like those of the lines around it
            if derived:
                return cls(bounds=_bounds_of_pages(body[:position]) if position else None)
            bounds = _decoded_bounds(*header["bounds"]) if "bounds" in header else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ThriftError) as error:
            message = f"a page index of the store cannot be read: {error}"
            raise BadPageIndex(message) from error
        column_index, pieces = body[:position] or None, {}
        for name, size in sizes:
            pieces[name] = body[position : position + size]
            position += size
        return cls(column_index, pieces, bounds)


def _decoded_bounds(least: str, greatest: str) -> Bounds:
    bounds = Bounds(least.encode("latin-1"), greatest.encode("latin-1"))
    if bounds.min > bounds.max:
        raise ValueError(least)
    return bounds


def _bounds_of_pages(column_index: bytes) -> Bounds | None:
    """Return the bounds of all pages of a column index, without pages of nulls."""
    fields = Reader(column_index).struct()
    pages = [
        (typed(least, bytes), typed(greatest, bytes))
        for null, least, greatest in zip(fields[1], fields[2], fields[3], strict=True)
        if not typed(null, bool)
    ]
    return Bounds(min(least for least, _ in pages), max(greatest for _, greatest in pages)) if pages else None


def cut_indexes(footer: Footer, key_column: str, body: bytes, start: int) -> dict[int, Indexes]:
    """Return the page indexes in a part of a file by row group: all offset indexes, and the key's column index."""
    stored = ByteRange(start, start + len(body))
    found = {}
    for group in footer.row_groups:
        located = {name: chunk.offset_index for name, chunk in group.chunks.items()}
        inside = {n: body[at.start - start : at.end - start] for n, at in located.items() if at and at in stored}
        at = group.chunks[key_column].column_index if key_column in group.chunks else None
        bounds = body[at.start - start : at.end - start] if at and at in stored else None
        if inside or bounds:
            found[group.ordinal] = Indexes(bounds, inside)
    return found


def cut_bounds(least: bytes, greatest: bytes) -> Bounds:
    if len(greatest) > LONGEST_BOUND:
        prefix = greatest[:LONGEST_BOUND].rstrip(b"\xff")
        greatest = prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else greatest
    return Bounds(least[:LONGEST_BOUND], greatest)
