"""What plans a query, whichever index answers it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from catalogue.plan.plan import ReadPlan
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.source.byte_ranges import FileVersion
from catalogue.source.cache import CachedSource
from catalogue.source.retry import PoliteSource

if TYPE_CHECKING:
    from catalogue.plan.context import PlanContext

AnySource: TypeAlias = PoliteSource | CachedSource


class Question(Protocol):
    """A query and its scope: ``PlanContext``, ``CdxContext`` or ``ChoiceContext``."""

    query: ResolvedQuery
    source: Callable[[], AnySource]

    @property
    def candidate_row_groups(self) -> int:
        """The number of row groups of the columnar index that may match."""

    def limited(self, limit: int) -> Self:
        """Return the query with a limit."""

    def plan(self, *, counts: bool = False, explain: bool = False) -> ReadPlan:
        """Plan the query.

        Args:
            counts: whether only the number of captures is needed.
            explain: whether the cost of the other index is found for each crawl, where both can answer.
        """

    def columnar_only(self) -> "PlanContext | None":
        """Return the query of the columnar index; None if that is not stored of all crawls."""

    def prepare(self, plan: ReadPlan, report: Callable[[int], None] = ...) -> None:
        """Fetch the page indexes and make the searches that a plan needs; ``report`` is called with received bytes."""

    def note_version(self, crawl: str, path: str, version: FileVersion | None) -> None:
        """Note the version of a file with blocks that was read; None if it is another than expected."""

    def finish(self) -> None:
        """Store the versions of the files that were read."""
