"""A diagnosis: observations of this installation and the source, and what they mean for cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from catalogue.errors import CatalogueError
from catalogue.formatting import ReprMixin, plural, size


@dataclass(frozen=True, slots=True)
class Observation:
    """One line of a diagnosis: subject, what was found, and what it means for cost or what to do (may be empty).

    Nothing in it is secret, but it may contain text of servers and files.
    """

    about: str
    seen: str
    means: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(ReprMixin):
    """Observations of this installation (``here``) and the ``source``, and what they cost.

    ``failure`` is why the source could not be examined to the end, or None.
    """

    _max_rows: ClassVar[int] = 60

    here: tuple[Observation, ...]
    source: tuple[Observation, ...]
    requests: int
    bytes: int
    failure: CatalogueError | None

    def _line(self) -> str:
        return f"by {plural(self.requests, 'request')}, {size(self.bytes)}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        for each in (*self.source, *self.here):
            yield each.about, f"{each.seen}; {each.means}" if each.means else each.seen

    def _notes(self) -> Iterator[str]:
        if self.failure:
            yield f"The source could not be examined to the end: {self.failure}"
