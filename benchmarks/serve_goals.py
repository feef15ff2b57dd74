"""Speed and memory of ``catalogue serve`` as multiples of pywb's, with the goals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.cdx_crawls import DOMAIN, EXACT, HOST
from benchmarks.cdx_servers import QueryCosts
from benchmarks.peers import PYWB
from benchmarks.report import Value, table

COLD, WARM, AT_ONCE, ONCE = "cold", "warm", "warm, immediate ACK", "once"
"""States of a server; see ``benchmarks.serve``."""
APART = "Exact URLs in different blocks"
"""A kind of queries that are only sent to cold servers."""
CLIENTS = (1, 16, 100)
ONCE_CLIENTS = 16
LATENCY = 0.03
"""Seconds of delay of the source."""
_COLD_GOAL = 1.5 * LATENCY + 0.02
"""Seconds of a query, where the list of blocks is stored."""


@dataclass(slots=True)
class Measured:
    """Costs of a server, and its answers."""

    costs: dict[tuple[str, str, int], QueryCosts] = field(default_factory=dict)
    """By state, kind and number of clients."""
    answers: dict[str, list[str]] = field(default_factory=dict)
    """By kind."""
    started_bytes: int = 0
    """Memory of a process after the first query."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table."""

    title: str
    value: Callable[[Measured], float]
    goal: str = ""
    is_multiple: bool = True
    """Whether it is a multiple of pywb's value."""


def _rate(state: str, kind: str, clients: int, goal: str = "") -> _Row:
    what = f"{kind}, {clients} client{'s' if clients > 1 else ''}, {state}: queries/s"
    return _Row(what, lambda measured: measured.costs[state, kind, clients].rate, goal)


def _cpu(state: str, kind: str, clients: int) -> _Row:
    what = f"{kind}, {clients} client{'s' if clients > 1 else ''}, {state}: CPU a query"
    return _Row(what, lambda measured: measured.costs[state, kind, clients].cpu)


def _p99(clients: int, goal: str = "") -> _Row:
    what = f"{EXACT}, {clients} clients, {WARM}: p99"
    return _Row(what, lambda measured: measured.costs[WARM, EXACT, clients].p99, goal)


_ROWS = (
    _rate(WARM, EXACT, 1, "≥ 20"),
    _rate(AT_ONCE, EXACT, 1),
    _rate(WARM, EXACT, 16, "≥ 8"),
    _rate(WARM, EXACT, 100),
    _rate(ONCE, EXACT, ONCE_CLIENTS, "≥ 2"),
    _rate(WARM, HOST, 16, "≥ 4"),
    _rate(WARM, HOST, 100),
    _rate(WARM, DOMAIN, 16, "≥ 4"),
    _rate(WARM, DOMAIN, 100),
    _p99(16, "≤ 0.3"),
    _p99(100),
    _cpu(WARM, EXACT, 1),
    _cpu(WARM, EXACT, 16),
    _cpu(ONCE, EXACT, ONCE_CLIENTS),
    _cpu(WARM, HOST, 16),
    _cpu(WARM, DOMAIN, 16),
    _Row("memory of a process after the first query", lambda measured: measured.started_bytes, "≤ 2"),
    _Row(
        f"{APART}, 1 client, {COLD}: median ms",
        lambda measured: 1000 * measured.costs[COLD, APART, 1].p50,
        f"≤ {1000 * _COLD_GOAL:.0f}; list",
        is_multiple=False,
    ),
)


def print_goals(where: str, measured: Mapping[str, Measured]) -> None:
    """Print the table."""
    pywb = measured[PYWB]
    ours = {name: each for name, each in measured.items() if name != PYWB}

    def cells(row: _Row) -> list[Value]:
        base = row.value(pywb)
        values = [row.value(each) for each in ours.values()]
        if row.is_multiple:
            return [row.title, row.goal, *(value / base for value in values)]
        return [row.title, row.goal, *values]

    rows = [cells(row) for row in _ROWS]
    table(f"Multiples of pywb, {where}", ["", "goal", *ours], rows)
