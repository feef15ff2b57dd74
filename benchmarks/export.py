"""Seconds, memory and size of lakes of 9,000 files, or of 90,000, all that there are."""

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import Ran, run, wait_for_quiet
from benchmarks.report import Value, say, table
from benchmarks.scale import FILES, crawl_names, put_crawl
from catalogue.demo import LoopbackServer
from catalogue.settings import STORE_NAME
from catalogue.store.database import Store

SIZES = (10, 100)
"""Crawls."""
FORMATS = {
    "DuckLake in SQLite": ("ducklake", "sqlite.ducklake", "--backend", "sqlite"),
    "DuckLake in DuckDB": ("ducklake", "duckdb.ducklake", "--backend", "duckdb"),
    "Iceberg": ("iceberg", "index.iceberg"),
}
"""Words of ``catalogue export``, the second of them a name in the folder."""
_PASSED_ON = (1, 10)
"""Crawls of which a snapshot is taken over; of all it is ten times as much."""


def main(*, full: bool) -> None:
    """Measure and print; ``full`` for as many files as there are, which takes some minutes."""
    for size in SIZES if full else SIZES[:-1]:
        with TemporaryDirectory(prefix="benchmarks-") as name:
            rows = _measure(Path(name), crawl_names(size))
        table(
            f"Exports of {size * FILES:,} files, then of {FILES} more",
            ["format", "s", "CPU s", "peak MB", "MB", "nothing new s", "one more crawl s", "peak MB"],
            rows,
        )

    rows = []
    with TemporaryDirectory(prefix="benchmarks-") as name:
        for size in _PASSED_ON if full else _PASSED_ON[:-1]:
            rows.append(_pass_on(Path(name) / str(size), crawl_names(size)))
    table(
        "Snapshots of so many files, and taking them over, by HTTP from a server that is no way off",
        [
            "files",
            "store MB",
            "export s",
            "CPU s",
            "peak MB",
            "MB",
            "nothing new s",
            "pull s",
            "CPU s",
            "peak MB",
            "GET",
            "nothing new s",
        ],
        rows,
    )


def _pass_on(folder: Path, crawls: list[str]) -> list[Value]:
    """A snapshot of crawls whose footers are as large as real ones, made and taken over."""
    ours, theirs, place = folder / "ours", folder / "theirs", folder / "snapshot"
    ours.mkdir(parents=True)
    with Store(ours / STORE_NAME, create=True) as store:
        for crawl in crawls:
            put_crawl(store, crawl)
    _catalogue(ours, "sql", "select count(*) from files")
    made, again = (_catalogue(ours, "export", "snapshot", str(place)) for _ in range(2))
    with LoopbackServer(place) as server:
        # There is nothing to compare with: the footers are made up.
        pulled = _catalogue(theirs, "pull", server.url, "--compare", "0")
        requests = len(server.log)
        nothing = _catalogue(theirs, "pull", server.url, "--compare", "0")
    return [
        len(crawls) * FILES,
        (ours / STORE_NAME).stat().st_size / 1e6,
        made.cost.seconds,
        made.cost.cpu_seconds,
        round(made.cost.peak_bytes / 1e6),
        _size(place) / 1e6,
        again.cost.seconds,
        pulled.cost.seconds,
        pulled.cost.cpu_seconds,
        round(pulled.cost.peak_bytes / 1e6),
        requests,
        nothing.cost.seconds,
    ]


def _measure(folder: Path, crawls: list[str]) -> list[list[Value]]:
    """Commands as users run them, the start of Python included; the catalogue is up to date before."""
    with Store(folder / STORE_NAME, create=True) as store:
        for crawl in crawls[:-1]:
            put_crawl(store, crawl, footers=False)
    _catalogue(folder, "sql", "select count(*) from files")
    first = {name: (_export(folder, words), _export(folder, words)) for name, words in FORMATS.items()}
    sizes = {name: _size(folder / words[1]) for name, words in FORMATS.items()}
    with Store(folder / STORE_NAME) as store:
        put_crawl(store, crawls[-1], footers=False)
    _catalogue(folder, "sql", "select count(*) from files")
    more = {name: _export(folder, words) for name, words in FORMATS.items()}
    return [
        [
            name,
            made.cost.seconds,
            made.cost.cpu_seconds,
            round(made.cost.peak_bytes / 1e6),
            sizes[name] / 1e6,
            again.cost.seconds,
            more[name].cost.seconds,
            round(more[name].cost.peak_bytes / 1e6),
        ]
        for name, (made, again) in first.items()
    ]


def _size(place: Path) -> int:
    """Bytes of a file, or of all in a folder."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def _export(folder: Path, words: tuple[str, ...]) -> Ran:
    kind, name, *options = words
    return _catalogue(folder, "export", kind, str(folder / name), *options)


def _catalogue(folder: Path, *words: str) -> Ran:
    say(f"catalogue {' '.join(words[:2])}")
    wait_for_quiet()
    with TemporaryDirectory(prefix="benchmarks-") as home:
        return run(["catalogue", *words, "--data", str(folder), "--source", str(folder)], home=Path(home))
