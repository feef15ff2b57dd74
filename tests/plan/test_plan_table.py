"""A plan as a table for other engines."""

import json
from pathlib import Path

import pyarrow.parquet as pq

import catalogue
from catalogue.plan.plan import READS
from catalogue.settings import Settings
from tests.cli.test_cli_pages import ASKED, SLOW
from tests.plan.test_page_costs import LARGE, large
from tests.support.commands import Command

__all__ = ["large"]  # a fixture


def test_table_lists_the_ranges_of_the_plan(harvested: catalogue.Catalogue) -> None:
    for patterns in ("*.de", "*.com"):
        found = harvested.captures(patterns, columns=["url", "fetch_status"])
        found.fetch_indexes()
        plan, table = found.plan, found.plan.to_arrow()
        assert table.schema == READS
        planned = [part for wave in plan.waves for fetch in wave for part in fetch.parts]
        rows = table.to_pylist()
        assert {(row["path"], row["row_group"], row["column"], row["start"], row["end"]) for row in rows} >= {
            (fetch.path, part.row_group, part.column, part.range.start, part.range.end)
            for fetch in plan.waves[0]
            for part in fetch.parts
        }
        assert sum(row["bytes"] for row in rows) >= sum(len(part.range) for part in planned)
        assert tuple(dict.fromkeys(row["path"] for row in rows)) == plan.paths
        assert len({(row["path"], row["row_group"]) for row in rows}) == plan.row_groups
        for row in rows:
            assert f"crawl={row['crawl']}/subset={row['subset']}/" in row["path"]
            assert row["bytes"] == row["end"] - row["start"]


def test_table_has_no_pages_without_indexes(large: Path, tmp_path: Path) -> None:
    command = Command(tmp_path / "data", str(large), tmp_path)
    assert command("harvest", "--crawl", LARGE).status == 0
    assert command("plan", *ASKED, "-o", "plan.jsonl", **SLOW).status == 0
    (row,) = map(json.loads, (tmp_path / "plan.jsonl").read_text().splitlines())
    assert (row["crawl"], row["subset"], row["row_group"]) == (LARGE, "warc", 0)
    assert {row[name] for name in ("column", "start", "end", "bytes")} == {None}
    assert command("plan", *ASKED, "-o", "plan.jsonl", "--indexes", **SLOW).status == 0
    rows = list(map(json.loads, (tmp_path / "plan.jsonl").read_text().splitlines()))
    assert {row["column"] for row in rows} == {"url_surtkey", "url", "fetch_status"}


def test_command_writes_the_table(asking: Command, settings: Settings, tmp_path: Path) -> None:
    with catalogue.open(asking.data, settings=settings) as cat:
        plan = cat.captures("*.de").plan
    ran = asking("plan", "*.de", "--paths")
    assert (ran.status, ran.err) == (0, "")
    assert set(ran.out.splitlines()) == set(plan.paths)
    assert asking("plan", "*.de", "-o", "plan.parquet").out == ""
    written = pq.read_table(tmp_path / "plan.parquet")
    assert written.schema.equals(READS)
    assert set(written["path"].to_pylist()) == set(plan.paths)
    asking("plan", "*.de", "-o", "plan.csv")
    lines = (tmp_path / "plan.csv").read_text().splitlines()
    assert lines[0] == ",".join(READS.names)
    assert len(lines) == 1 + written.num_rows
    for words in (["-o", "plan.cdxj"], ["-o", "plan"], ["-o", "no/plan.csv"], ["--json", "--paths"]):
        refused = asking("plan", "*.de", *words)
        assert refused.status == 2
        assert len(refused.err.splitlines()) == 1
