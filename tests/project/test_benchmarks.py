"""The clients of a benchmark answer alike, and what they took becomes one table, whatever is missing."""

import gzip
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.clients import site_ours, site_pyarrow, site_recipe
from benchmarks.clients.site_asking import COLUMNS, Ask, Site, Task, digest
from benchmarks.late import Late
from benchmarks.summary import Measurement, Missing, Result, document
from catalogue.commoncrawl.manifests import COLLINFO, manifest_path
from catalogue.demo import Miniature
from tests.support.faults import FaultServer

CRAWL = "CC-MAIN-2022-05"
SITES = [Site("kettlegate-madeup.de", 0), Site("example.net", 0)]  # how many they have is not looked at
CLIENTS: dict[str, tuple[Callable[[Task], Ask], Callable[[Task], int] | None]] = {
    "ours": (site_ours.ask, site_ours.harvest),
    "recipe": (site_recipe.ask, site_recipe.harvest),
    "pyarrow": (site_pyarrow.ask, None),
}


@pytest.fixture(scope="module")
def files(miniature: Miniature) -> dict[str, bytes]:
    """A crawl with one subset, by path."""
    listed = gzip.decompress((miniature.folder / manifest_path(CRAWL)).read_bytes()).decode().split()
    paths = [path for path in listed if "subset=warc" in path]
    crawl = {path: (miniature.folder / path).read_bytes() for path in (COLLINFO, *paths)}
    return crawl | {manifest_path(CRAWL): gzip.compress("".join(f"{path}\n" for path in paths).encode())}


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_return_the_rows_of_the_files(client: str, files: dict[str, bytes], tmp_path: Path) -> None:
    prepare, before = CLIENTS[client]
    paths = [path for path in files if path.endswith(".parquet")]
    names = [*COLUMNS, "url_host_registered_domain"]
    rows = pa.concat_tables(pq.ParquetFile(pa.BufferReader(files[path])).read(names) for path in paths)
    with FaultServer(files) as server:
        task = Task(server.url, CRAWL, manifest_path(CRAWL), paths, SITES, "", tmp_path)
        if before:
            assert before(task) == len(paths)
        ask = prepare(task)
        for site in SITES:
            there = rows.filter(pc.field("url_host_registered_domain") == site.domain)
            assert there.num_rows
            found = ask(site)
            assert digest(found) == digest(there)
            assert digest(found) != digest(there.slice(1))


def test_counts_requests_of_a_delayed_server(miniature: Miniature) -> None:
    path = manifest_path(CRAWL)
    with FaultServer(miniature.folder) as server, Late(server.url, latency=0.0) as late:
        for _ in range(2):
            connection = HTTPConnection(urlsplit(late.url).netloc)
            connection.request("GET", f"/{path}")
            assert connection.getresponse().read() == (miniature.folder / path).read_bytes()
            connection.close()
        assert late.requests == 2
        assert late.bytes > 2 * (miniature.folder / path).stat().st_size
        late.reset()
        assert (late.requests, late.bytes) == (0, 0)


def test_one_table_compares_all_results() -> None:
    results: list[Result] = [
        Measurement("one job", "another", 30, 8e6, 1.0, 0.5, 200_000_000),
        Measurement("one job", "catalogue", 10, 2e6, 2.0, 0.5, 100_000_000),
        Measurement("other job", "catalogue", 0, 0, 0.1, 0.1, 100_000_000),
        Measurement("other job", "another", 7, 1e6, 0.4, 0.1, 100_000_000),
        Missing("other job", "third", "Traceback:\nno third can be had"),
    ]
    text = document("2026-11-22", results, {"fourth": "it broke"}, "\n### A table\n")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert [(row[0], row[-3:]) for row in cells[2:]] == [
        ("**one job**", ["", "", ""]),
        ("another", ["3", "4", "0.5"]),
        ("catalogue", ["", "", ""]),
        ("**other job**", ["", "", ""]),
        ("catalogue", ["", "", ""]),
        ("another", ["", "", "4"]),  # nothing cannot be compared with
        ("third", ["-", "-", "-"]),
    ]
    assert "third: no third can be had\n" in text
    assert "`fourth` failed: it broke\n" in text
    assert text.endswith("### A table\n")
