"""What is held, for other engines and other people."""

from collections.abc import Iterable
from dataclasses import dataclass

from catalogue import views
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
