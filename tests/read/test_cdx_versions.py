"""Files of the CDX index that are replaced while an answer is read."""

import gzip
import json
from pathlib import Path

import pytest

import catalogue
from catalogue.cdx.cluster import index_folder, shards_path
from catalogue.errors import FileChanged
from catalogue.settings import Settings
from tests.support.cdx_indexes import make_index
from tests.support.faults import Fault, FaultServer, Kind, Request


@pytest.mark.parametrize("index", ["cdx", "auto"])
def test_rows_of_two_versions_of_a_file_are_an_error(whole_mirror: Path, index: str, tmp_path: Path) -> None:
    """Nothing is stored, so no request names a version."""
    crawl = max(path.name for path in (whole_mirror / "cc-index/collections").iterdir())
    shards = sorted((whole_mirror / index_folder(crawl)).glob("cdx-*.gz"))
    lines = [line for shard in shards for line in gzip.decompress(shard.read_bytes()).decode().splitlines()]
    made = make_index(crawl, lines, blocks_a_shard=len(lines))
    (shard,) = made.shards
    served = made.files | {shards_path(crawl): gzip.compress(shard.encode())}
    urls = [json.loads(line.split(" ", 2)[2])["url"] for line in (lines[0], lines[-1])]

    def replaced(request: Request) -> Fault | None:
        return Fault(Kind.CHANGED_ETAG) if request.path == shard and request.attempt else None

    for script in (None, replaced):
        with FaultServer(served, script=script) as server:
            settings = Settings(source=server.url, cache=tmp_path / f"cache of {script}")
            with catalogue.open(tmp_path / f"data of {script}", settings=settings) as cat:
                found = cat.captures(urls, crawls=crawl, subsets="all", index=index)
                if script:
                    with pytest.raises(FileChanged, match="was replaced while it was read"):
                        found.to_arrow()
                else:
                    assert found.to_arrow().num_rows >= len(urls)
            assert sum(exchange.path == shard for exchange in server.settle()) > 1
