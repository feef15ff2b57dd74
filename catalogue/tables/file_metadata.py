"""Metadata of an index file."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace

from catalogue.commoncrawl.manifests import IndexFile
from catalogue.parquet.model import Footer
from catalogue.parquet.page_index import Indexes
from catalogue.query.random_order import DrawnRows
from catalogue.source.byte_ranges import ByteRange, FileVersion
from catalogue.store.stored_file import StoredFile


def _no_indexes(_: int) -> Indexes | None:
    return None


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """An index file with row groups that may match, and what is stored about it."""

    file: IndexFile
    pin: FileVersion
    footer: Footer
    """The footer with these row groups; column chunks are decoded at first use."""
    indexes: Callable[[int], Indexes | None] = field(default=_no_indexes, compare=False)
    """It returns the stored page indexes and bounds of a row group."""
    cached: tuple[ByteRange, ...] = ()
    drawn: Mapping[int, DrawnRows] | None = field(default=None, compare=False)
    """The drawn rows of a sample, by row group; None for all."""
    least: str = ""
    """A lower bound of its keys, by which files are sorted."""
    stored: StoredFile | None = None
    """The value of the store, without the footer's bytes."""

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def ordinals(self) -> tuple[int, ...]:
        return tuple(group.ordinal for group in self.footer.row_groups)

    def among(self, ordinals: Container[int]) -> "FileMetadata":
        groups = tuple(group for group in self.footer.row_groups if group.ordinal in ordinals)
        return replace(self, footer=replace(self.footer, row_groups=groups))
