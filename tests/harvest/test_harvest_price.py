"""What a harvest costs is reported before it starts, and large harvests of several crawls ask first."""

import gzip
from dataclasses import replace
from pathlib import Path

import catalogue
from catalogue.demo import Miniature
from catalogue.harvest.harvest_crawls import FILES_OF_A_SUBSET
from catalogue.settings import Settings
from tests.support.commands import Command


def test_large_harvests_of_several_crawls_need_consent(command: Command, miniature: Miniature) -> None:
    command = replace(command, source=str(miniature.folder))
    crawls = [row["crawl"] for row in command("crawls", "--json").json_lines() if row["has_table"]]
    refused = command("harvest", "--crawl", "all")
    assert refused.status == 2
    count = len(crawls) * (FILES_OF_A_SUBSET + 1)
    assert f"this harvests {len(crawls)} crawls" in refused.err
    assert f"{count:,} requests" in refused.err
    assert "--yes" in refused.err
    assert command("status", "--json").json()["coverage"] == []
    assert command("harvest", "--crawl", ",".join(crawls)).status == 2
    assert command("harvest", "--crawl", "latest", "--subset", "all").status == 0
    assert command("harvest", "--crawl", "all", "--yes").status == 0
    assert len(command("status", "--json").json()["coverage"]) >= len(crawls)
    for crawl, reason in {"CC-MAIN-2012": "has no columnar index", "CC-MAIN-2013-99": "there is no crawl"}.items():
        priced = command("harvest", "--crawl", crawl, "--dry-run")
        assert (priced.status, reason in priced.err) == (2, True)


def test_price_is_that_of_missing_files_and_a_dry_run_harvests_nothing(
    command: Command, mirror: Path, settings: Settings, crawl: str
) -> None:
    words = ("harvest", "--crawl", crawl, "--subset", "all", "--dry-run")
    priced, files = command(*words, "--json").json(), 3 * FILES_OF_A_SUBSET
    assert (priced["crawls"], priced["files"], priced["requests"]) == (1, files, files + 1)
    assert f"{files} files: {files + 1} requests" in command(*words).out
    assert command("status", "--json").json()["coverage"] == []
    listed = gzip.decompress((mirror / f"crawl-data/{crawl}/cc-index-table.paths.gz").read_bytes()).splitlines()
    with catalogue.open(command.data, settings=settings) as cat:
        cat.harvest(crawl)
        stored = len(cat.files())
        for subsets, missing in (("warc", 0), ("all", len(listed) - stored)):
            needed = cat.harvest_estimate(crawl, subsets=subsets)
            assert (needed.files, needed.requests) == (missing, missing)
        needed = cat.harvest_estimate(crawl, refresh=True)
        assert (needed.files, needed.requests) == (stored, stored + 1)
