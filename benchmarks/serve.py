"""Questions to ``catalogue serve``, and to pywb with the same captures as Common Crawl's index server has them.

Ours reads the columnar index from a server that is late with every answer, pywb its compressed lines from the disk. A
cold server has just been started, ours with nothing but the footers; it is asked each question once. A warm one has
answered all of them before, and is asked all of them again until some seconds are over. What both answer is compared,
line by line, as sets of fields. What Common Crawl's own branch of pywb mends is not counted: pywb adds ``access``, says
``charset`` instead of ``encoding``, and passes over the captures of a host with an explicit port.
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
"""Clients, if there is time."""
LATENCY = 0.03
_SECONDS = 4.0
"""For which a warm server is asked, and until the round is over."""
_SPARED = "&nosource=true&allowFuzzy=false"
"""Of pywb: to name the source of each line, and to look for something similar where nothing is found."""
_PORT = re.compile(r"[^)]*:\d+\)")
"""How keys of hosts with an explicit port start."""

Start = Callable[[], AbstractContextManager[Served]]
"""Starts a cold server."""


def main(*, full: bool) -> Iterator[Result]:
    """Measure and print."""
    pages, count, clients = (200_000, 400, (*CLIENTS, MORE)) if full else (40_000, 60, CLIENTS)
    why = ""
    try:
        bin_folder = installed()
        with TemporaryDirectory(prefix="benchmarks-") as folder:
            write_cluster(Path(folder), CRAWL, [])
            with pywb(Path(folder), bin_folder):
                pass
    except Failed as error:  # ours is measured all the same
        why = str(error)
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
            if not why:
                servers[PYWB] = lambda: pywb(cluster, bin_folder)
            for kind, queries in draw(captures, count).items():
                title = f"{kind}: {len(queries)} of {len(captures):,} captures, {1000 * LATENCY:.0f} ms to the source"
                yield from _measure(title, queries, servers, source, clients)
                if why:
                    yield from (Missing(job, PYWB, why) for job in _jobs(title, queries).values())


def draw(captures: Sequence[Capture], count: int) -> dict[str, list[str]]:
    """Queries of each kind, drawn from all hosts, each as likely as any other, or from all domains."""
    chance = Random(1)
    hosts: dict[str, list[str]] = defaultdict(list)
    for capture in captures:
        if _plain(capture):
            hosts[".".join(reversed(capture.key.partition(")")[0].split(",")))].append(capture.fields["url"])
    domains = sorted({".".join(host.split(".")[-2:]) for host in hosts if "." in host})
    drawn = chance.sample(sorted(hosts), min(count, len(hosts)))
    return {
        "Exact URL": [_query(chance.choice(hosts[host])) for host in drawn],
        "Host": [_query(host, matchType="host") for host in drawn],
        "Domain": [_query(f"*.{domain}") for domain in chance.sample(domains, min(count, len(domains)))],
    }


def _plain(capture: Capture) -> bool:
    """Whether there is no doubt about the key: the rules of pywb and of the crawler differ in rare cases."""
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
                threading.Thread(target=process.stderr.read, daemon=True).start()  # or it would have to wait
                yield Served(found[0], process.pid)
            finally:
                process.terminate()


def _measure(
    title: str, queries: Sequence[str], servers: dict[str, Start], source: Server, clients: Sequence[int]
) -> Iterator[Result]:
    """Ask all servers and print a table."""
    rows: list[list[Value]] = []
    answers: dict[str, list[str]] = {}
    for name, start in servers.items():
        asked = [query + (_SPARED if name == PYWB else "") for query in queries]
        taken: dict[tuple[str, int], Taken] = {}
        for number in clients:
            say(f"{title.partition(':')[0]}: {name}, cold, {number} clients")
            with start() as served:
                taken["cold", number] = _ask(served, asked, number, 0.0, source)
        with start() as served:
            answers[name] = [_answer(served.url + query) for query in asked]
            for number in clients:
                say(f"{title.partition(':')[0]}: {name}, warm, {number} clients")
                taken["warm", number] = _ask(served, asked, number, _SECONDS, source)
        rows += [[name, *which, *each.row()] for which, each in taken.items()]
        for state, job in _jobs(title, queries).items():
            yield taken[state, 1].measurement(job, name, len(queries))
    lines = _compare(queries, answers)
    names = ["", "", "clients", "queries/s", "p50 ms", "p99 ms", "CPU ms a query", "peak MB", "GET", "kB a query"]
    table(f"{title}, {lines:,} lines", names, rows)


def _jobs(title: str, queries: Sequence[str]) -> dict[str, str]:
    """What the summary calls them, cold and warm."""
    what = f"{len(queries)} CDX queries of one client: {title.partition(':')[0]}"
    return {state: f"{what}, {state} server" for state in ("cold", "warm")}


@dataclass(frozen=True, slots=True)
class Taken:
    """What as many queries took: of requests and bytes those that the server asked its source for."""

    queries: int
    seconds: float
    p50: float
    p99: float
    cpu_seconds: float
    peak_bytes: int
    gets: int
    bytes: int

    def row(self) -> list[Value]:
        """What the table says of it."""
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
        """The same of so many queries."""
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


def _ask(served: Served, queries: Sequence[str], clients: int, seconds: float, source: Server) -> Taken:
    wait_for_quiet()
    source.reset()
    with TemporaryDirectory(prefix="benchmarks-") as home:
        file = Path(home) / "urls"
        file.write_text("\n".join(served.url + query for query in queries), encoding="utf-8")
        before = served.cpu_seconds()
        ran = run(["benchmarks.clients.ask_cdx", str(file), str(clients), str(seconds)], home=Path(home))
        taken = json.loads(ran.output)
    if taken["failed"]:
        message = f"{taken['failed']} of {taken['queries']} queries were not answered by 200"
        raise Failed(message)
    counted = source.counted()
    return Taken(
        taken["queries"],
        taken["seconds"],
        taken["p50"],
        taken["p99"],
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
    """Lines of all answers, which must be the same from all servers.

    Raises:
        Failed: if they are not.
    """
    first, *others = answers.values()
    for other in others:
        for query, one, another in zip(queries, first, other, strict=True):
            if _told(one) != _told(another):
                message = f"{query} is answered otherwise:\n{one[:1000]}\n{another[:1000]}"
                raise Failed(message)
    return sum(answer.count("\n") for answer in first)


def _told(answer: str) -> list[dict[str, str]]:
    """Lines without what is known to differ."""
    told = []
    for fields in map(json.loads, answer.splitlines()):
        if not _PORT.match(fields["urlkey"]):
            fields.pop("access", None)
            if charset := fields.pop("charset", None):
                fields["encoding"] = charset
            told.append(fields)
    return told
