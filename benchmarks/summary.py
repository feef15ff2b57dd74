"""What all benchmarks found, in one table: a job and a client a row, beside what ours took for the same job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.report import Value, markdown

OURS = "catalogue"
"""How the names of our own ways to do a job begin; the first of them is what others are compared with."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one client took for one job."""

    job: str
    client: str
    requests: int
    """GET and HEAD."""
    bytes: float
    """Of answers."""
    seconds: float
    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A client that could do the job, and did not."""

    job: str
    client: str
    why: str


Result = Measurement | Missing

_COLUMNS = ("requests", "MB", "seconds", "CPU s", "peak MB")


def summary(results: Sequence[Result]) -> str:
    """The table, and below it why figures are missing, if any are."""
    ours: dict[str, Measurement] = {}
    for one in results:
        if isinstance(one, Measurement) and one.client.startswith(OURS):
            ours.setdefault(one.job, one)
    rows: list[list[Value]] = []
    for job in dict.fromkeys(one.job for one in results):
        rows.append([f"**{job}**", *[""] * (len(_COLUMNS) + 3)])
        rows += [_row(one, ours.get(job)) for one in results if one.job == job]
    text = markdown(["", *_COLUMNS, "requests / ours", "MB / ours", "seconds / ours"], rows)
    reasons = dict.fromkeys(f"{one.client}: {short(one.why)}" for one in results if isinstance(one, Missing))
    return "\n\n".join([text, *(f"Not measured: {reason}" for reason in reasons)])


def _row(one: Result, ours: Measurement | None) -> list[Value]:
    if isinstance(one, Missing):
        return [one.client, *[None] * (len(_COLUMNS) + 3)]
    figures: list[Value] = [
        one.requests,
        one.bytes / 1e6,
        one.seconds,
        one.cpu_seconds,
        round(one.peak_bytes / 1e6),
    ]
    if ours is None or one is ours:
        return [one.client, *figures, "", "", ""]
    pairs = ((one.requests, ours.requests), (one.bytes, ours.bytes), (one.seconds, ours.seconds))
    return [one.client, *figures, *(_times(other, own) for other, own in pairs)]


def _times(other: float, own: float) -> str:
    if not own:
        return ""
    return f"{other / own:,.0f}" if other >= 10 * own else f"{other / own:.2g}"


def short(why: str) -> str:
    """The last line of what a program said, by which tracebacks tell what happened."""
    return (why.strip().splitlines() or ["without a word"])[-1]


def document(head: str, results: Sequence[Result], failed: Mapping[str, str], tables: str) -> str:
    """All of ``RESULTS.md``.

    Args:
        head: when, where and with what it was measured.
        results: of all benchmarks.
        failed: benchmarks that came to no end, and why.
        tables: what they printed.
    """
    said = "".join(f"\n`{name}` failed: {why}\n" for name, why in failed.items())
    return f"# Results\n\n{head}\n\n{summary(results)}\n{said}\n{tables.strip()}\n"
