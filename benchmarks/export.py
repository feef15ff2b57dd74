"""Seconds, memory and size of exports of 9,000 files, or of 90,000, the size of the complete index."""

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
"""Arguments of ``catalogue export``; the second one is a name in the folder."""
_PULLED_CRAWLS = (1, 10)
"""Crawls in a pulled snapshot; the complete index has ten times as many as the larger one."""


def main(*, full: bool) -> None:
    """Measure and print; ``full`` measures 90,000 files, which takes some minutes."""
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
        for size in _PULLED_CRAWLS if full else _PULLED_CRAWLS[:-1]:
            rows.append(_export_and_pull(Path(name) / str(size), crawl_names(size)))
    table(
        "Export and pull of snapshots, by HTTP from a local server without delay",
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


def _export_and_pull(folder: Path, crawls: list[str]) -> list[Value]:
    """Export and pull a snapshot of crawls with footers of real size."""
    ours, theirs, path = folder / "ours", folder / "theirs", folder / "snapshot"
    ours.mkdir(parents=True)
    with Store(ours / STORE_NAME, create=True) as store:
        for crawl in crawls:
            put_crawl(store, crawl)
    _catalogue(ours, "sql", "select count(*) from files")
    made, again = (_catalogue(ours, "export", "snapshot", str(path)) for _ in range(2))
    with LoopbackServer(path) as server:
        # The footers are synthetic, so there is no source to compare with.
        pulled = _catalogue(theirs, "pull", server.url, "--compare", "0")
        requests = len(server.log)
        nothing = _catalogue(theirs, "pull", server.url, "--compare", "0")
    return [
        len(crawls) * FILES,
        (ours / STORE_NAME).stat().st_size / 1e6,
        made.cost.seconds,
        made.cost.cpu_seconds,
        round(made.cost.peak_bytes / 1e6),
        _size(path) / 1e6,
        again.cost.seconds,
        pulled.cost.seconds,
        pulled.cost.cpu_seconds,
        round(pulled.cost.peak_bytes / 1e6),
        requests,
        nothing.cost.seconds,
    ]


def _measure(folder: Path, crawls: list[str]) -> list[list[Value]]:
    """Measure commands, including the start of Python; the metadata database is up to date."""
    with Store(folder / STORE_NAME, create=True) as store:
        for crawl in crawls[:-1]:
            put_crawl(store, crawl)
    _catalogue(folder, "sql", "select count(*) from files")
    first = {name: (_export(folder, arguments), _export(folder, arguments)) for name, arguments in FORMATS.items()}
    sizes = {name: _size(folder / arguments[1]) for name, arguments in FORMATS.items()}
    with Store(folder / STORE_NAME) as store:
        put_crawl(store, crawls[-1])
    _catalogue(folder, "sql", "select count(*) from files")
    more = {name: _export(folder, arguments) for name, arguments in FORMATS.items()}
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


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _export(folder: Path, arguments: tuple[str, ...]) -> Ran:
    kind, name, *options = arguments
    return _catalogue(folder, "export", kind, str(folder / name), *options)


def _catalogue(folder: Path, *arguments: str) -> Ran:
    say(f"catalogue {' '.join(arguments[:2])}")
    wait_for_quiet()
    with TemporaryDirectory(prefix="benchmarks-") as home:
        return run(["catalogue", *arguments, "--data", str(folder), "--source", str(folder)], home=Path(home))
