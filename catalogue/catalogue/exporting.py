"""What is held, for other engines and other people."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from catalogue import ducklake, views
from catalogue.captures import several
from catalogue.catalogue.telling import Telling
from catalogue.errors import QueryError
from catalogue.lake import LakeFile
from catalogue.table import INDEX


@dataclass(frozen=True, slots=True)
class Exported:
    """What was exported, and what should have been."""

    place: str
    """Where it is: a path or an address."""
    crawls: tuple[str, ...]
    """Newest first."""
    files: int
    missing: tuple[str, ...]
    """Of these crawls, what is not harvested and so is not in it: a sentence each."""

    @property
    def complete(self) -> bool:
        """Whether all that the crawls' lists name is in it, of those subsets that are held."""
        return not self.missing


class Exporting(Telling):
    """What writes down what is held."""

    def export_ducklake(
        self, path: str | Path | None = None, *, crawls: str | Iterable[str] = "all", backend: str | None = None
    ) -> Exported:
        """Write a DuckLake whose one table is all files held of crawls, where they are; nothing is fetched.

        One that is there is made to hold what is asked for and nothing else: each crawl that is new or another than
        before is a snapshot of its own. ``sql`` attaches that in our folder as ``cc``.

        Args:
            path: of the file; None for ``captures.ducklake`` in our folder.
            crawls: names, ``A..B``, ``latest`` or ``all``.
            backend: ``sqlite`` or ``duckdb``; None for that of the lake that is there, else ``sqlite``.

        Raises:
            QueryError: if the path is that of something else, or a crawl is not harvested.
            StoreLocked: if somebody is writing to it.
            DiskFailed: if it cannot be written; the one that was there stays.
        """
        if backend not in {None, *ducklake.BACKENDS}:
            message = f"a lake cannot be kept in {backend!r}; choose among {', '.join(ducklake.BACKENDS)}"
            raise QueryError(message)
        place = Path(path) if path is not None else self.lake_path
        chosen, files, missing = self._lake(crawls)
        where = ducklake.data_path(self.settings.source)
        ducklake.export_lake(place, files, missing, data_path=where, backend=backend)
        return Exported(str(place), chosen, len(files), missing)

    def _lake(self, crawls: str | Iterable[str]) -> tuple[tuple[str, ...], list[LakeFile], tuple[str, ...]]:
        """The crawls that words mean, newest first, their files, and what is missing of these.

        Raises:
            QueryError: if this is another table than the index, or a crawl is not harvested.
        """
        if self.table != INDEX:
            message = f"only Common Crawl's index can be exported, and this is {self.table.name}"
            raise QueryError(message)
        shown = self._shown()
        chosen = tuple(self.table.select_held(shown.crawls, several(crawls)))
        missing = shown.candidates(chosen, ()).missing
        with self.connect() as connection:
            return chosen, views.lake_files(connection, chosen), missing
