"""Queries to ``catalogue serve``, and to pywb with the same captures in the layout of Common Crawl's index server.

``catalogue`` reads from a server with delayed responses, pywb from its disk. What ``catalogue`` has stored are the
footers of the columnar index, or the list of blocks of the CDX index; its blocks are those that pywb reads.

- cold: the server was just started, with an empty cache. Each query is sent once.
- warm: all queries were answered before; they are repeated for some seconds. The fastest of three runs counts.
- once: the server was just started, and earlier processes have read from the source what the queries need. They are
  many different URLs, each sent once.

Responses are compared line by line, as sets of fields, without the differences that Common Crawl's branch of pywb
removes: pywb adds ``access``, writes ``charset`` instead of ``encoding``, and skips captures of hosts with an explicit
port. Parquet files have no media type where blocks have ``unk``.

pywb sends head and body in separate packets. On a connection that stays open it then waits about 40 ms for a delayed
acknowledgement, unless the client acknowledges at once, as it does in the row "immediate ACK" alone. Its CPU time
is the same.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from benchmarks.cdx_crawls import EXACT, PORT, Crawl, Queries, draw, large_crawl, small_crawl
from benchmarks.cdx_servers import Asker, Form, QueryCosts, forms, pywb_form
from benchmarks.peers import PYWB
from benchmarks.processes import Failed, serving
from benchmarks.report import Value, say, table
from benchmarks.serve_goals import (
    APART,
    AT_ONCE,
    CLIENTS,
    COLD,
    LATENCY,
    ONCE,
    ONCE_CLIENTS,
    WARM,
    Measured,
    print_goals,
)
from benchmarks.summary import Measurement, Missing, Result
from benchmarks.zipnum import installed, pywb, write_cluster

_SECONDS, _RUNS = 1.5, 3
"""Duration of queries to a warm server, and runs, of which the fastest counts."""
_COUNT, _ONCE = 60, 5000
"""Queries of each kind, and those that are sent once."""
_COLUMNS = ["", "", "clients", "queries/s", "p50 ms", "p99 ms", "CPU ms a query", "peak MB", "GET", "kB a query"]


def main(*, full: bool) -> Iterator[Result]:
    """Measure and print."""
    reason, bin_folder = "", Path()
    try:
        bin_folder = installed()
        with TemporaryDirectory(prefix="benchmarks-") as folder:
            write_cluster(Path(folder), "empty", [])
            with pywb(Path(folder), bin_folder):
                pass
    except Failed as error:  # catalogue is measured anyway
        reason = str(error)
    for crawl in (small_crawl(), large_crawl()) if full else (small_crawl(),):
        queries = draw(crawl, _COUNT, _ONCE)
        with TemporaryDirectory(prefix="benchmarks-") as folder, serving(crawl.folder, latency=LATENCY) as source:
            servers = forms(crawl, source.url, Path(folder))
            if not reason:
                servers.append(pywb_form(crawl, bin_folder))
            measuring = _Measuring(Asker(source), queries, Path(folder))
            measured = {form.name: measuring.measure(form) for form in servers}
        _compare(queries, measured)
        _print_costs(crawl, queries, measured)
        if not reason:
            print_goals(f"{crawl.captures:,} captures", measured)
        for kind, number in ((kind, len(asked)) for kind, asked in queries.by_kind().items()):
            for state in (COLD, WARM):
                job = f"{number} CDX queries of one client, {crawl.captures:,} captures: {kind}, {state} server"
                for name, each in measured.items():
                    yield _measurement(job, name, each.costs[state, kind, 1], number)
                if reason:
                    yield Missing(job, PYWB, reason)


@dataclass(slots=True)
class _Measuring:
    """Measures servers one after the other."""

    asker: Asker
    queries: Queries
    folder: Path
    filled: dict[str, Path] = field(default_factory=dict)
    """Folders with filled caches, by what is stored."""

    def measure(self, form: Form) -> Measured:
        measured = Measured()
        for kind, queries in self.queries.by_kind().items():
            say(f"{form.name}, cold: {kind}")
            with form.start(self._empty()) as served:
                measured.costs[COLD, kind, 1], _ = self.asker.ask(form, served, queries, 1)
        say(f"{form.name}, cold: {APART}")
        with form.start(self._empty()) as served:
            apart = self.queries.apart
            measured.costs[COLD, APART, 1], measured.answers[APART] = self.asker.ask(form, served, apart, 1)
        with form.start(self._empty()) as served:
            for kind, queries in self.queries.by_kind().items():
                _, measured.answers[kind] = self.asker.ask(form, served, queries, 1)
                for clients in CLIENTS:
                    say(f"{form.name}, warm: {kind}, {clients} clients")
                    costs, _ = self.asker.ask(form, served, queries, clients, _SECONDS, runs=_RUNS)
                    measured.costs[WARM, kind, clients] = costs
            costs, _ = self.asker.ask(form, served, self.queries.exact, 1, _SECONDS, quickack=True, runs=_RUNS)
            measured.costs[AT_ONCE, EXACT, 1] = costs
        self._measure_once(form, measured)
        return measured

    def _measure_once(self, form: Form, measured: Measured) -> None:
        once = self.queries.once
        home = self.filled.setdefault(form.stored, self.folder / f"filled {form.stored}")
        if form.stored and not home.exists():
            home.mkdir()
            say(f"{form.name}: fill the cache")
            with form.start(home) as served:
                self.asker.ask(form, served, once, ONCE_CLIENTS)
        say(f"{form.name}, each URL once")
        with form.start(home) as served:
            self.asker.ask(form, served, once[:1], 1)
            measured.started_bytes = served.memory_bytes() // form.workers
            costs, answers = self.asker.ask(form, served, once, ONCE_CLIENTS)
            measured.costs[ONCE, EXACT, ONCE_CLIENTS], measured.answers[ONCE] = costs, answers

    def _empty(self) -> Path:
        return Path(mkdtemp(dir=self.folder))


def _print_costs(crawl: Crawl, queries: Queries, measured: Mapping[str, Measured]) -> None:
    where = f"{crawl.captures:,} captures, {1000 * LATENCY:.0f} ms to the source"
    for kind, asked in queries.by_kind().items():
        rows = [
            [name, state, clients, *_cells(costs)]
            for name, each in measured.items()
            for (state, of_kind, clients), costs in each.costs.items()
            if of_kind == kind and state != ONCE
        ]
        lines = sum(answer.count("\n") for answer in next(iter(measured.values())).answers[kind])
        table(f"{kind}: {len(asked)} of {where}, {lines:,} lines", _COLUMNS, rows)
    for title, asked, which in (
        (f"{EXACT}s, cache filled by earlier processes", queries.once, (ONCE, EXACT, ONCE_CLIENTS)),
        (APART, queries.apart, (COLD, APART, 1)),
    ):
        rows = [[name, which[0], which[2], *_cells(each.costs[which])] for name, each in measured.items()]
        table(f"{title}: {len(asked):,} of {where}", _COLUMNS, rows)


def _cells(costs: QueryCosts) -> list[Value]:
    return [
        costs.rate,
        1000 * costs.p50,
        1000 * costs.p99,
        1000 * costs.cpu,
        round(costs.peak_bytes / 1e6),
        costs.gets,
        costs.bytes / costs.queries / 1e3,
    ]


def _measurement(job: str, client: str, costs: QueryCosts, queries: int) -> Measurement:
    """Scale costs to a number of queries."""
    share = queries / costs.queries
    return Measurement(
        job,
        client,
        round(costs.gets * share),
        costs.bytes * share,
        costs.seconds * share,
        costs.cpu_seconds * share,
        costs.peak_bytes,
    )


# ---- comparison ----


def _compare(queries: Queries, measured: Mapping[str, Measured]) -> None:
    """Compare the responses of all servers.

    Raises:
        Failed: if they differ.
    """
    (first, one), *others = measured.items()
    for kind, asked in {**queries.by_kind(), ONCE: queries.once, APART: queries.apart}.items():
        expected = [_comparable_lines(answer) for answer in one.answers[kind]]
        for name, other in others:
            for query, lines, answer in zip(asked, expected, other.answers[kind], strict=True):
                if lines != (found := _comparable_lines(answer)):
                    message = f"different responses to {query}:\n{first}: {lines[:3]}\n{name}: {found[:3]}"
                    raise Failed(message)


def _comparable_lines(answer: str) -> list[dict[str, Any]]:
    """Return the lines without known differences."""
    lines = []
    for fields in map(json.loads, answer.splitlines()):
        if not PORT.match(fields["urlkey"]):
            fields.pop("access", None)
            if charset := fields.pop("charset", None):
                fields["encoding"] = charset
            if fields.get("mime") == "unk":
                del fields["mime"]
            lines.append(fields)
    return lines
