"""What was seen of a source or an installation."""

from dataclasses import dataclass

from catalogue.errors import CatalogueError


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that was looked at."""

    about: str
    """A word or three."""
    seen: str
    """Nothing in it is secret; but it may hold what a stranger wrote."""
    means: str = ""
    """For what questions and harvests cost, or what to do about it; empty if that is nothing."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What there was to see."""

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
