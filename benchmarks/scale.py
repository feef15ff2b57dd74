"""Seconds, memory and disk by number of files: from 900, one crawl with all subsets, to 90,000, the complete index."""

from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from benchmarks.crawls import crawl_list, domain_in, make_template, manifest, path_of
from benchmarks.processes import Ran, run, wait_for_quiet
from benchmarks.report import say, table
from catalogue.commoncrawl.crawls import COLLINFO
from catalogue.commoncrawl.datasets import manifest_path
from catalogue.session import DATABASE_NAME
from catalogue.settings import STORE_NAME
from catalogue.store.database import Store
from catalogue.store.layout import StoredFile
from catalogue.tables.table_file import TABLES_FOLDER

FILES = 900
"""Files of a crawl."""
SIZES = (1, 10, 100)
"""Crawls."""
_UNUSED_SOURCE = "http://127.0.0.1:9/"
"""A source that gets no requests."""


def main(*, full: bool) -> None:
    """Measure and print; ``full`` measures 90,000 files, which takes a quarter of an hour and 3 GB."""
    rows = []
    with TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        stored = 0
        for size in SIZES if full else SIZES[:-1]:
            rows.append(_measure(folder, crawl_names(size), stored))
            stored = size
    table(
        f"Crawls of {FILES} files, footers of {len(make_template().footer) / 1000:.0f} kB",
        [
            "files",
            "store MB",
            "database MB",
            "database from the store s",
            "its peak MB",
            "one more crawl s",
            "harvest, nothing to do s",
            "status s",
            "plan over all s",
            "its peak MB",
            "files read",
            "check s",
        ],
        rows,
    )


def crawl_names(count: int) -> list[str]:
    """Return names of crawls, oldest first."""
    return [f"CC-MAIN-{2014 + number // 10}-{5 + 5 * (number % 10):02}" for number in range(count)]


def _measure(folder: Path, crawls: list[str], stored: int) -> list[str | int | float]:
    """Measure commands, including the start of Python; the footers of the first ``stored`` crawls are in the store."""
    with Store(folder / STORE_NAME, create=True) as store:
        store.put("documents", [(COLLINFO, _value(crawl_list(crawls)))])
        for crawl in crawls[stored:-1]:
            put_crawl(store, crawl)
    (folder / DATABASE_NAME).unlink(missing_ok=True)
    rmtree(folder / TABLES_FOLDER, ignore_errors=True)
    count = "select count(*) as files from files"
    build = _command(folder, "sql", count)
    with Store(folder / STORE_NAME) as store:
        put_crawl(store, crawls[-1])
    added = _command(folder, "sql", count)
    again = _command(folder, "harvest", "--crawl", crawls[0], "--rate", "1000")
    status = _command(folder, "status", "--json")
    plan = _command(folder, "plan", f"*.{domain_in(7)}", "--json")
    check = _command(folder, "check", "--json")
    return [
        len(crawls) * FILES,
        (folder / STORE_NAME).stat().st_size / 1e6,
        (folder / DATABASE_NAME).stat().st_size / 1e6,
        build.cost.seconds,
        round(build.cost.peak_bytes / 1e6),
        added.cost.seconds,
        again.cost.seconds,
        status.cost.seconds,
        plan.cost.seconds,
        round(plan.cost.peak_bytes / 1e6),
        int(plan.output.partition('"files":')[2].partition(",")[0]),
        check.cost.seconds,
    ]


def _command(folder: Path, name: str, *words: str) -> Ran:
    say(f"catalogue {name}")
    wait_for_quiet()
    with TemporaryDirectory(prefix="benchmarks-") as home:
        return run(["catalogue", name, *words, "--data", str(folder), "--source", _UNUSED_SOURCE], home=Path(home))


def put_crawl(store: Store, crawl: str) -> None:
    """Store a crawl as a harvest does."""
    say(f"storing {crawl}")
    template = make_template()
    stored = {path_of(crawl, number): _value(template.footer_of(crawl, number)) for number in range(FILES)}
    store.put("documents", [(manifest_path(crawl), _value(manifest(crawl, FILES)))])
    store.put("files", stored.items())


def _value(data: bytes) -> StoredFile:
    return StoredFile(
        data=data,
        size=make_template().size,
        etag='"29d92fa9b3a3d3f9e4bb9b5bbd1cbd1c-15"',
        last_modified="Sun, 30 Jan 2022 03:04:05 GMT",
        source=_UNUSED_SOURCE,
        taken="2026-11-21T12:00:00+00:00",
    )
