"""An index file, and what is stored about it."""

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
    """The stored version."""
    footer: Footer
    """The footer with these row groups; column chunks are decoded from the stored footer at first use."""
    indexes: Callable[[int], Indexes | None] = field(default=_no_indexes, compare=False)
    """Returns the stored page indexes and bounds of a row group."""
    cached: tuple[ByteRange, ...] = ()
    """Cached ranges, disjoint and ascending."""
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
        """Return the numbers of the row groups."""
        return tuple(group.ordinal for group in self.footer.row_groups)

    def among(self, ordinals: Container[int]) -> "FileMetadata":
        """Return the file with some of its row groups."""
        groups = tuple(group for group in self.footer.row_groups if group.ordinal in ordinals)
        return replace(self, footer=replace(self.footer, row_groups=groups))
