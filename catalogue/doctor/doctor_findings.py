"""What was seen of a source or an installation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from catalogue.display import Displayed
from catalogue.errors import CatalogueError
from catalogue.formatting import plural, size


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that was looked at."""

    about: str
    """A word or three."""
    seen: str
    """Nothing in it is secret; but it may hold what a stranger wrote."""
    means: str = ""
    """For what questions and harvests cost, or what to do about it; empty if that is nothing."""


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Displayed):
    """What there was to see."""

    _most_rows: ClassVar[int] = 60

    here: tuple[Seen, ...]
    """Of what is installed, held and set."""
    source: tuple[Seen, ...]
    """Of the source, as far as it answered."""
    requests: int
    """That were made of it, ten at most."""
    bytes: int
    """That it sent."""
    failure: CatalogueError | None
    """Why no more of the source could be seen; None if all was."""

    def _line(self) -> str:
        return f"by {plural(self.requests, 'request')}, {size(self.bytes)}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        for each in (*self.source, *self.here):
            yield each.about, f"{each.seen}; {each.means}" if each.means else each.seen

    def _notes(self) -> Iterator[str]:
        if self.failure:
            yield f"No more of the source could be seen: {self.failure}"
