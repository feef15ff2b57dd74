"""Clients of a benchmark return the same rows; the summary compares their costs."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.clients import site_ours, site_pyarrow, site_recipe
from benchmarks.clients.site_asking import COLUMNS, Ask, Site, Task, digest
from catalogue.commoncrawl.manifests import COLLINFO, manifest_path
from catalogue.demo import Miniature
from tests.support.amounts import in_part
from tests.support.faults import FaultServer

CRAWL = "CC-MAIN-2022-05"
SITES = [Site("kettlegate-madeup.de", 0), Site("example.net", 0)]  # the numbers of captures are not used
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


@in_part(3)
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
            expected = rows.filter(pc.field("url_host_registered_domain") == site.domain)
            assert expected.num_rows
            actual = ask(site)
            assert digest(actual) == digest(expected)
            assert digest(actual) != digest(expected.slice(1))
