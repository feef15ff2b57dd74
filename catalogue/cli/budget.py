"""How much may be asked of a source without asking the user."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import click

from catalogue.cli.app import Common
from catalogue.cli.tables import confirmed
from catalogue.errors import TooExpensive
from catalogue.formatting import plural, size
from catalogue.progress import is_terminal

MANY_REQUESTS, MANY_BYTES = 500, 1_000_000_000
"""What the user is asked first to go beyond, unless told otherwise."""


@dataclass(frozen=True)
class Leave:
    """How much may be read without being asked about."""

    yes: bool
    max_requests: int
    max_bytes: int

    def given(self, found: Any, options: Common) -> Any:  # noqa: ANN401 - importing its type is slow
        """The captures, if they may be read; their page indexes have been fetched then.

        Raises:
            TooExpensive: if they may not.
        """
        self.agree(found.plan)
        if found.plan.indexes:
            found.fetch_indexes()
            self.agree(found.plan)
        self.show(found.plan, options)
        return found

    def show(self, plan: Any, options: Common) -> None:  # noqa: ANN401 - likewise
        """Show on a terminal what a plan costs, if that was not asked about."""
        if self.yes and is_terminal():
            options.say(f"{plural(plan.row_groups, 'row group')}: {told(plan)}")

    def agree(self, cost: Any) -> None:  # noqa: ANN401 - likewise
        """Ask, if what has requests, bytes and seconds has more of them than that.

        Raises:
            TooExpensive: if it may not be read.
        """
        if not self.covers(cost.requests, cost.bytes):
            self.confirm(told(cost))

    def covers(self, requests: int, received: int) -> bool:
        """Whether so many requests and bytes need not be asked about."""
        return self.yes or (requests <= self.max_requests and received <= self.max_bytes)

    def after(self, requests: int, received: int) -> "Leave":
        """What is left of it when so many requests and bytes have been spent."""
        return replace(
            self, max_requests=max(0, self.max_requests - requests), max_bytes=max(0, self.max_bytes - received)
        )

    def confirm(self, cost: str) -> None:
        """Ask whether to go on.

        Raises:
            TooExpensive: if not, or if there is nobody to ask.
        """
        if not confirmed(f"This takes {cost}. Go on?"):
            message = f"this takes {cost}; narrow it, or add --yes if that is meant"
            raise TooExpensive(message)


def told(cost: Any) -> str:  # noqa: ANN401 - likewise
    """A cost in words."""
    return f"{plural(cost.requests, 'request')}, {size(cost.bytes)}, about {cost.seconds:.0f} s"


_OPTIONS = [
    click.option("--yes", is_flag=True, help="Do not ask, however much it is."),
    click.option("--max-requests", type=int, default=MANY_REQUESTS, show_default=True, help="Ask before making more."),
    click.option("--max-bytes", type=int, default=MANY_BYTES, show_default=True, help="Ask before reading more."),
]


def with_leave(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how much it may read; it gets them as one ``leave``."""

    @wraps(command)
    def wrapped(*args: Any, yes: bool, max_requests: int, max_bytes: int, **options: Any) -> Any:  # noqa: ANN401 - click's
        return command(*args, leave=Leave(yes, max_requests, max_bytes), **options)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
