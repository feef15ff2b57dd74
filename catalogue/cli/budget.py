"""How many requests and bytes a command may use without asking the user."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

import click

from catalogue.cli.app import Common
from catalogue.cli.tables import confirmed
from catalogue.errors import TooExpensive
from catalogue.formatting import plural, size
from catalogue.progress import is_terminal

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.plan.plan import ReadPlan

MANY_REQUESTS, MANY_BYTES = 500, 1_000_000_000
"""Defaults of --max-requests and --max-bytes."""


class Priced(Protocol):
    """What has a cost."""

    @property
    def requests(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True)
class Budget:
    """Requests and bytes that need no confirmation."""

    yes: bool
    max_requests: int
    max_bytes: int

    def approve(self, captures: "Captures", options: Common) -> "Captures":
        """Fetch missing page indexes and return the captures.

        Raises:
            TooExpensive: if the user does not confirm the cost.
        """
        self.check(captures.plan)
        if captures.plan.indexes:
            captures.fetch_indexes()
            self.check(captures.plan)
        self.show(captures.plan, options)
        return captures

    def show(self, plan: "ReadPlan", options: Common) -> None:
        """Print the cost of a plan on a terminal, if it needs no confirmation."""
        if self.yes and is_terminal():
            options.say(f"{plural(plan.row_groups, 'row group')}: {format_cost(plan)}")

    def check(self, cost: Priced) -> None:
        """Ask the user to confirm a cost that exceeds the budget.

        Raises:
            TooExpensive: if the user does not confirm it.
        """
        if not self.covers(cost.requests, cost.bytes):
            self.confirm(format_cost(cost))

    def covers(self, requests: int, received: int) -> bool:
        return self.yes or (requests <= self.max_requests and received <= self.max_bytes)

    def after(self, requests: int, received: int) -> "Budget":
        """Return the budget that remains."""
        return replace(
            self, max_requests=max(0, self.max_requests - requests), max_bytes=max(0, self.max_bytes - received)
        )

    def confirm(self, cost: str) -> None:
        """Ask the user to confirm a cost.

        Raises:
            TooExpensive: if the user does not, or if there is no terminal.
        """
        if not confirmed(f"This takes {cost}. Continue?"):
            raise TooExpensive(f"this takes {cost}; narrow the query, or add --yes")


def format_cost(cost: Priced) -> str:
    return f"{plural(cost.requests, 'request')}, {size(cost.bytes)}, about {cost.seconds:.0f} s"


_OPTIONS = [
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    click.option("--max-requests", type=int, default=MANY_REQUESTS, show_default=True, help="Ask before more."),
    click.option("--max-bytes", type=int, default=MANY_BYTES, show_default=True, help="Ask before more."),
]


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a ``Budget`` to a command, which gets it as ``budget``."""

    @wraps(command)
    def wrapped(*args: Any, yes: bool, max_requests: int, max_bytes: int, **options: Any) -> Any:
        return command(*args, budget=Budget(yes, max_requests, max_bytes), **options)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
