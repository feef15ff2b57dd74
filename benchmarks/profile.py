"""Write PROFILE.md: where ``catalogue`` spends CPU time, by path, part and function.

Requests go to a server on this machine at a limited rate, so that threads rarely compete; see ``benchmarks.sampler``.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import crawls, fetch, many, real_size
from benchmarks.peers import CACHE
from benchmarks.processes import Server, run, serving
from benchmarks.report import Value, machine, markdown, say
from benchmarks.sampler import IMPORTS, NATIVE, START
from catalogue.parquet import footer

FILES, LOOK_UPS = 300, 200
RATE = 100
"""Requests per second."""
_RECORDS, _ARCHIVES = 486, 20
_FUNCTIONS = 12
"""Functions listed for each path."""
_PARTS = {
    "imports": (IMPORTS, START),
    "requests": ("catalogue.source",),
    "checks": ("catalogue.source.checks", "catalogue.check"),
    "decoding of metadata": ("catalogue.parquet",),
    "keys and plans": ("catalogue.surt", "catalogue.query", "catalogue.plan"),
    "reading of rows": ("catalogue.read", "catalogue.captures"),
    "pyarrow": ("pyarrow", "numpy", NATIVE),
    "store": ("catalogue.store",),
    "metadata database": ("catalogue.metadata_db", "duckdb", "pandas"),
    "records": ("catalogue.records", "warcio"),
    "harvest": ("catalogue.harvest",),
    "output": ("catalogue.output", "catalogue.cdx", "catalogue.cli", "catalogue.progress"),
    "other": ("",),
}
"""Modules by part; the longest name that fits decides."""
_RESULTS = Path(__file__).parent / "PROFILE.md"


@dataclass(frozen=True, slots=True)
class Profile:
    """Where one path spent its CPU time."""

    path: str
    requests: int
    seconds: Mapping[tuple[str, str], float]
    """By module and function."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def share(self, part: str) -> float:
        """Return the percentage of a part."""
        used = sum(seconds for (module, _), seconds in self.seconds.items() if _part(module) == part)
        return 100 * used / self.total


def main() -> None:
    """Profile all paths and write their tables."""
    head = machine()
    with TemporaryDirectory(prefix="benchmarks-") as folder:
        profiles = [*_footers(Path(folder)), *_urls(Path(folder)), *_records(Path(folder))]
    _RESULTS.write_text(_document(head, profiles), encoding="utf-8")
    print(_RESULTS.read_text(encoding="utf-8"))


def _footers(folder: Path) -> Iterator[Profile]:
    """Profile a harvest, a plan and the pull of a snapshot, for footers of real size."""
    crawls.write_crawl(folder / "crawl", crawls.make_template(), FILES)
    with _Profiled.serving(folder / "crawl", folder / "harvested") as profiled:
        yield profiled.run(f"harvest of {FILES} footers", "harvest", "--crawl", crawls.CRAWL)
        yield profiled.run("plan of a domain", "plan", f"*.{crawls.domain_in(7)}")
        profiled.prepare("export", "snapshot", str(folder / "snapshot"))
    with _Profiled.serving(folder / "snapshot", folder / "pulled") as profiled:
        yield profiled.run(f"pull of {FILES} footers", "pull", profiled.server.url, "--compare", "0")


def _urls(folder: Path) -> Iterator[Profile]:
    """Profile queries for many URLs at once, and one by one."""
    large = real_size.real_size(CACHE, rows=real_size.SMALL)
    rows = real_size.ROW_GROUPS * real_size.SMALL
    crawl = many.split_crawl(large, CACHE / f"crawl-2-{many.FILES}-files-of-{rows}", real_size.SMALL)
    urls = many.draw_urls(large)
    (folder / "urls").write_text("\n".join(urls), encoding="utf-8")
    (folder / "some").write_text("\n".join(urls[:: len(urls) // LOOK_UPS][:LOOK_UPS]), encoding="utf-8")
    with _Profiled.serving(crawl, folder / "many") as profiled:
        profiled.prepare("harvest", "--crawl", real_size.CRAWL)
        query = ("query", "--exact-url", "--urls-file", str(folder / "urls"), "-o", str(folder / "found.parquet"))
        yield profiled.run(f"{len(urls):,} URLs at once", *query)
        arguments = (profiled.server.url, str(profiled.data), str(folder / "some"), str(RATE))
        yield profiled.run_module(f"{LOOK_UPS} URLs one by one", "benchmarks.clients.look_ups", *arguments)


def _records(folder: Path) -> Iterator[Profile]:
    """Profile the records of captures."""
    rows = fetch.write_archives(folder / "archives", _RECORDS, _ARCHIVES, runs=False)
    (folder / "captures.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with _Profiled.serving(folder / "archives", folder / "records") as profiled:
        command = ("fetch", "--captures", str(folder / "captures.jsonl"), "-o", str(folder / "found.warc.gz"), "--yes")
        yield profiled.run(f"{_RECORDS} records", *command)


@dataclass(frozen=True, slots=True)
class _Profiled:
    """Commands with the same source and data folder."""

    server: Server
    data: Path

    @classmethod
    @contextmanager
    def serving(cls, source: Path, data: Path) -> "Iterator[_Profiled]":
        with serving(source, latency=0.0) as server:
            data.mkdir()
            yield cls(server, data)

    def prepare(self, *command: str) -> None:
        """Run a command of ``catalogue`` without a profile."""
        run(["catalogue", *self._arguments(command)], home=self.data)

    def run(self, path: str, *command: str) -> Profile:
        """Run a command of ``catalogue``."""
        return self.run_module(path, "catalogue", *self._arguments(command))

    def run_module(self, path: str, *module: str) -> Profile:
        say(path)
        self.server.reset()
        file = self.data / "profile.json"
        run(["benchmarks.sampler", str(file), *module], home=self.data)
        counted = self.server.counted()
        found = json.loads(file.read_text(encoding="utf-8"))
        seconds = {(name, function): used for name, function, used in found}
        return Profile(path, counted.gets + counted.heads, seconds)

    def _arguments(self, command: tuple[str, ...]) -> list[str]:
        rate = [] if command[0] == "plan" else ["--rate", str(RATE)]
        return [*command, "--source", self.server.url, "--data", str(self.data), *rate]


def _part(module: str) -> str:
    fitting = [(len(name), part) for part, names in _PARTS.items() for name in names if module.startswith(name)]
    return max(fitting)[1]


def _document(head: str, profiles: list[Profile]) -> str:
    decoder = "pure Python" if footer.__file__.endswith(".py") else "compiled wheel"
    names = [profile.path for profile in profiles]
    totals: list[list[Value]] = [
        ["CPU seconds", *(round(profile.total, 2) for profile in profiles)],
        ["requests", *(profile.requests for profile in profiles)],
    ]
    shares: list[list[Value]] = [
        [f"{part}, %", *(round(profile.share(part)) or None for profile in profiles)] for part in _PARTS
    ]
    sections = [
        f"# Where CPU time goes\n\n`make profile` on {head}; {decoder}; at most {RATE} requests per second.\n\n",
        markdown(["", *names], [*totals, *shares]),
    ]
    for profile in profiles:
        most = sorted(profile.seconds.items(), key=lambda item: -item[1])[:_FUNCTIONS]
        rows: list[list[Value]] = [
            [f"`{function}`", _part(module), round(1000 * seconds), round(100 * seconds / profile.total)]
            for (module, function), seconds in most
        ]
        sections.append(f"\n\n## {profile.path}\n\n{markdown(['function', 'part', 'ms', '%'], rows)}")
    return "".join(sections) + "\n"


if __name__ == "__main__":
    main()
