"""Queries to ``catalogue serve``, and to pywb with the same captures in the layout of Common Crawl's index server.

``catalogue`` reads the columnar index from a server with delayed responses, pywb compressed lines from its disk. A
cold server was just started (``catalogue`` with stored footers) and gets each query once. A warm server has
answered all queries before and gets them again for some seconds. Responses are compared line by line, as sets of
fields, without the differences that Common Crawl's branch of pywb removes: pywb adds ``access``, writes ``charset``
instead of ``encoding``, and skips captures of hosts with an explicit port.
"""

import json
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shutil import copytree
from tempfile import TemporaryDirectory
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from benchmarks.peers import PYWB
from benchmarks.processes import ROOT, Failed, Served, Server, away_from_home, run, serving, wait_for_quiet
from benchmarks.report import Value, say, table
from benchmarks.summary import OURS, Measurement, Missing, Result
from benchmarks.zipnum import installed, pywb, write_cluster
from catalogue.demo import write_miniature
from tests.support.cdx_oracle import Capture, plain_key, read_captures

CRAWL = "CC-MAIN-2022-05"
CLIENTS = (1, 16)
MORE = 128
"""Clients with ``--full``."""
LATENCY = 0.03
_SECONDS = 4.0
"""Duration of queries to a warm server; the last round is completed."""
_PYWB_OPTIONS = "&nosource=true&allowFuzzy=false"
"""Turns off pywb's source of each line, and its search for similar URLs."""
_PORT = re.compile(r"[^)]*:\d+\)")
"""Start of the keys of hosts with an explicit port."""

Start = Callable[[], AbstractContextManager[Served]]
"""Starts a cold server."""


def main(*, full: bool) -> Iterator[Result]:
    """Measure and print."""
    pages, count, clients = (200_000, 400, (*CLIENTS, MORE)) if full else (40_000, 60, CLIENTS)
    reason = ""
    try:
        bin_folder = installed()
        with TemporaryDirectory(prefix="benchmarks-") as folder:
            write_cluster(Path(folder), CRAWL, [])
            with pywb(Path(folder), bin_folder):
                pass
    except Failed as error:  # catalogue is measured anyway
        reason = str(error)
    with TemporaryDirectory(prefix="benchmarks-") as folder:
        crawl, data, cluster = (Path(folder) / name for name in ("crawl", "data", "cluster"))
        say(f"a crawl of {pages:,} captures")
        write_miniature(crawl, pages_per_crawl=pages)
        captures = read_captures(crawl, CRAWL)
        cluster.mkdir()
        write_cluster(cluster, CRAWL, (capture.raw for capture in captures))
        with serving(crawl, latency=LATENCY) as source:
            run(
                [
                    "catalogue",
                    "--data",
                    str(data),
                    "--source",
                    source.url,
                    "harvest",
                    "--crawl",
                    CRAWL,
                    "--subset",
                    "all",
                ],
                home=Path(folder) / "home",
            )
            servers: dict[str, Start] = {OURS: lambda: serve(data, source.url)}
            if not reason:
                servers[PYWB] = lambda: pywb(cluster, bin_folder)
            for kind, queries in draw(captures, count).items():
                title = f"{kind}: {len(queries)} of {len(captures):,} captures, {1000 * LATENCY:.0f} ms to the source"
                yield from _measure(title, queries, servers, source, clients)
                if reason:
                    yield from (Missing(job, PYWB, reason) for job in _jobs(title, queries).values())


def draw(captures: Sequence[Capture], count: int) -> dict[str, list[str]]:
    """Draw queries of each kind, uniformly from all hosts or all domains."""
    rng = Random(1)
    hosts: dict[str, list[str]] = defaultdict(list)
    for capture in captures:
        if _has_plain_key(capture):
            hosts[".".join(reversed(capture.key.partition(")")[0].split(",")))].append(capture.fields["url"])
    domains = sorted({".".join(host.split(".")[-2:]) for host in hosts if "." in host})
    drawn = rng.sample(sorted(hosts), min(count, len(hosts)))
    return {
        "Exact URL": [_query(rng.choice(hosts[host])) for host in drawn],
        "Host": [_query(host, matchType="host") for host in drawn],
        "Domain": [_query(f"*.{domain}") for domain in rng.sample(domains, min(count, len(domains)))],
    }


def _has_plain_key(capture: Capture) -> bool:
    """Whether pywb and the crawler agree on the key; their rules differ in rare cases."""
    if _PORT.match(capture.key) or capture.key[:1].isdigit():
        return False
    try:
        return plain_key(capture.fields["url"]) == capture.key
    except ValueError:
        return False


def _query(url: str, **more: str) -> str:
    return f"/{CRAWL}-index?{urlencode({'url': url, 'output': 'json', **more})}"


@contextmanager
def serve(data: Path, source: str) -> Iterator[Served]:
    """Our server with a copy of a data folder and an empty cache.

    Raises:
        Failed: if it does not start.
    """
    with TemporaryDirectory(prefix="benchmarks-") as folder:
        home = Path(folder)
        copied = copytree(data, home / "data")
        options = ["serve", "--port", "0", "--data", str(copied), "--source", source]
        command = [sys.executable, "-m", "catalogue", *options]
        environment = away_from_home(home)
        with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            try:
                said = process.stderr.readline()
                found = re.search(r"http://127\.0\.0\.1:\d+", said)
                if not found:
                    message = f"catalogue serve does not start: {said}{process.stderr.read()}"
                    raise Failed(message)
                threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would block it
                yield Served(found[0], process.pid)
            finally:
                process.terminate()


def _measure(
    title: str, queries: Sequence[str], servers: dict[str, Start], source: Server, clients: Sequence[int]
) -> Iterator[Result]:
    """Query all servers and print a table."""
    rows: list[list[Value]] = []
    answers: dict[str, list[str]] = {}
    for name, start in servers.items():
        asked = [query + (_PYWB_OPTIONS if name == PYWB else "") for query in queries]
        costs: dict[tuple[str, int], QueryCosts] = {}
        for number in clients:
            say(f"{title.partition(':')[0]}: {name}, cold, {number} clients")
            with start() as served:
                costs["cold", number] = _ask(served, asked, number, 0.0, source)
        with start() as served:
            answers[name] = [_answer(served.url + query) for query in asked]
            for number in clients:
                say(f"{title.partition(':')[0]}: {name}, warm, {number} clients")
                costs["warm", number] = _ask(served, asked, number, _SECONDS, source)
        rows += [[name, *which, *each.row()] for which, each in costs.items()]
        for state, job in _jobs(title, queries).items():
            yield costs[state, 1].measurement(job, name, len(queries))
    lines = _compare(queries, answers)
    names = ["", "", "clients", "queries/s", "p50 ms", "p99 ms", "CPU ms a query", "peak MB", "GET", "kB a query"]
    table(f"{title}, {lines:,} lines", names, rows)


def _jobs(title: str, queries: Sequence[str]) -> dict[str, str]:
    """Return the jobs of the summary, cold and warm."""
    what = f"{len(queries)} CDX queries of one client: {title.partition(':')[0]}"
    return {state: f"{what}, {state} server" for state in ("cold", "warm")}


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """Cost of queries; requests and bytes are those from the server to its source."""

    queries: int
    seconds: float
    p50: float
    p99: float
    cpu_seconds: float
    peak_bytes: int
    gets: int
    bytes: int

    def row(self) -> list[Value]:
        """Return the cells of the table."""
        return [
            self.queries / self.seconds,
            1000 * self.p50,
            1000 * self.p99,
            1000 * self.cpu_seconds / self.queries,
            round(self.peak_bytes / 1e6),
            self.gets,
            self.bytes / self.queries / 1e3,
        ]

    def measurement(self, job: str, client: str, queries: int) -> Measurement:
        """Scale to a number of queries."""
        share = queries / self.queries
        return Measurement(
            job,
            client,
            round(self.gets * share),
            self.bytes * share,
            self.seconds * share,
            self.cpu_seconds * share,
            self.peak_bytes,
        )


def _ask(served: Served, queries: Sequence[str], clients: int, seconds: float, source: Server) -> QueryCosts:
    wait_for_quiet()
    source.reset()
    with TemporaryDirectory(prefix="benchmarks-") as home:
        file = Path(home) / "urls"
        file.write_text("\n".join(served.url + query for query in queries), encoding="utf-8")
        before = served.cpu_seconds()
        ran = run(["benchmarks.clients.ask_cdx", str(file), str(clients), str(seconds)], home=Path(home))
        costs = json.loads(ran.output)
    if costs["failed"]:
        message = f"{costs['failed']} of {costs['queries']} queries were not answered by 200"
        raise Failed(message)
    counted = source.counted()
    return QueryCosts(
        costs["queries"],
        costs["seconds"],
        costs["p50"],
        costs["p99"],
        served.cpu_seconds() - before,
        served.peak_bytes(),
        counted.gets,
        counted.bytes,
    )


def _answer(url: str) -> str:
    with build_opener(ProxyHandler({})).open(url) as answer:
        body: bytes = answer.read()
    return body.decode()


def _compare(queries: Sequence[str], answers: dict[str, list[str]]) -> int:
    """Compare the responses of all servers; return the number of lines.

    Raises:
        Failed: if they differ.
    """
    first, *others = answers.values()
    for other in others:
        for query, one, another in zip(queries, first, other, strict=True):
            if _comparable_lines(one) != _comparable_lines(another):
                message = f"different responses to {query}:\n{one[:1000]}\n{another[:1000]}"
                raise Failed(message)
    return sum(answer.count("\n") for answer in first)


def _comparable_lines(answer: str) -> list[dict[str, str]]:
    """Return the lines without known differences."""
    lines = []
    for fields in map(json.loads, answer.splitlines()):
        if not _PORT.match(fields["urlkey"]):
            fields.pop("access", None)
            if charset := fields.pop("charset", None):
                fields["encoding"] = charset
            lines.append(fields)
    return lines
