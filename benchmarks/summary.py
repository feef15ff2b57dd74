"""One table of all results: a row for each job and client, compared with ``catalogue``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.report import Value, markdown

OURS = "catalogue"
"""Prefix of the names of this package's clients; the first result of a job is the reference."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Cost of a job for a client."""

    job: str
    client: str
    requests: int
    """GET and HEAD."""
    bytes: float
    """Bytes of responses."""
    seconds: float
    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A job without a measurement."""

    job: str
    client: str
    reason: str


Result = Measurement | Missing

_COLUMNS = ("requests", "MB", "seconds", "CPU s", "peak MB")
_HALF_DIGIT = 0.05
"""Megabytes by which a published figure may be rounded."""


def summary(results: Sequence[Result]) -> str:
    """Format the table, followed by the reasons of missing figures."""
    ours: dict[str, Measurement] = {}
    for result in results:
        if isinstance(result, Measurement) and result.client.startswith(OURS):
            ours.setdefault(result.job, result)
    rows: list[list[Value]] = []
    for job in dict.fromkeys(result.job for result in results):
        rows.append([f"**{job}**", *[""] * (len(_COLUMNS) + 3)])
        rows += [_row(result, ours.get(job)) for result in results if result.job == job]
    text = markdown(["", *_COLUMNS, "requests / ours", "MB / ours", "seconds / ours"], rows)
    reasons = dict.fromkeys(
        f"{result.client}: {short(result.reason)}" for result in results if isinstance(result, Missing)
    )
    return "\n\n".join([text, *(f"Not measured: {reason}" for reason in reasons)])


def _row(result: Result, ours: Measurement | None) -> list[Value]:
    if isinstance(result, Missing):
        return [result.client, *[None] * (len(_COLUMNS) + 3)]
    figures: list[Value] = [
        result.requests,
        result.bytes / 1e6,
        result.seconds,
        result.cpu_seconds,
        round(result.peak_bytes / 1e6),
    ]
    if ours is None or result is ours:
        return [result.client, *figures, "", "", ""]
    pairs = ((result.requests, ours.requests), (result.bytes, ours.bytes), (result.seconds, ours.seconds))
    return [result.client, *figures, *(_times(other, own) for other, own in pairs)]


def _times(other: float, own: float) -> str:
    if not own:
        return ""
    return f"{other / own:,.0f}" if other >= 10 * own else f"{other / own:.2g}"


def grown(results: Sequence[Result], published: str) -> list[str]:
    """Return a sentence for each of our results with more requests or bytes than in a published table.

    Bytes may grow by a hundredth, because the order of simultaneous responses changes them.
    """
    before: dict[tuple[str, str], list[str]] = {}
    job = ""
    for line in published.partition("\n###")[0].splitlines():
        name, *figures = [cell.strip() for cell in line.strip("| ").split("|")]
        if name.startswith("**"):
            job = name.strip("*")
        elif len(figures) >= len(_COLUMNS):
            before.setdefault((job, name), figures)
    sentences = []
    for result in results:
        figures = before.get((result.job, result.client), [])
        if isinstance(result, Measurement) and result.client.startswith(OURS) and figures:
            requests, megabytes = (float(figure.replace(",", "")) for figure in figures[:2])
            if result.requests > requests or result.bytes > (1.01 * megabytes + _HALF_DIGIT) * 1e6:
                sentences.append(
                    f"{result.job}: {result.client} made {result.requests:,} requests for {result.bytes / 1e6:.3g} MB; "
                    f"published are {figures[0]} for {figures[1]} MB"
                )
    return sentences


def short(reason: str) -> str:
    """Return the last line of a message, which in tracebacks is the error."""
    return (reason.strip().splitlines() or ["no message"])[-1]


def document(head: str, results: Sequence[Result], failed: Mapping[str, str], tables: str) -> str:
    """Format ``RESULTS.md``.

    Args:
        head: date, machine and versions.
        results: results of all benchmarks.
        failed: reasons by name of failed benchmarks.
        tables: printed tables.
    """
    failures = "".join(f"\n`{name}` failed: {reason}\n" for name, reason in failed.items())
    return f"# Results\n\n{head}\n\n{summary(results)}\n{failures}\n{tables.strip()}\n"
