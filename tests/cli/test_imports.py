"""Commands import no library that they do not need: most take longer to import than a query takes to run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.commoncrawl.crawls import newest_first
from tests.support.commands import Command

SLOW = {
    *("aiohttp", "asyncio", "dask", "distributed", "duckdb", "fastapi", "filelock", "fsspec", "importlib.metadata"),
    *("jinja2", "mcp", "numpy", "numpy.ma", "pandas", "platformdirs", "pyarrow", "pyarrow.dataset", "pyarrow.parquet"),
    *("pydantic", "pyiceberg", "resiliparse", "rich.console", "s3fs", "sqlite3", "urllib.request", "uvicorn", "warcio"),
}
CRAWL = "CRAWL"
"""Stands for a crawl whose records are in the mirror."""
QUERY = ("example.com", "--crawl", CRAWL)
LISTS = {"platformdirs", "sqlite3", "urllib.request"}
"""The last one is for sources that are folders."""
READS = LISTS | {"numpy", "pyarrow", "pyarrow.parquet"}
SQL = {"duckdb", "importlib.metadata"}
"""DuckDB imports the other."""
WARC = {"asyncio", "fsspec", "importlib.metadata", "warcio"}
"""warcio imports the others, except for importlib.metadata, which returns the version for the output."""


COMMANDS: list[list[tuple[tuple[str, ...], set[str]]]] = [
    [
        (("query", "--help"), set()),
        (("mcp", "--help"), set()),
        (("--help",), {"platformdirs"}),
        (("--version",), {"importlib.metadata", "platformdirs"}),
        (("status",), READS | SQL),  # which says what a backfill would cost
    ],
    [
        (("plan", *QUERY), READS),
        (("plan", *QUERY, "--json"), READS),
        (("plan", *QUERY, "--index", "columnar", "-o", "plan.csv"), READS),
        (("query", *QUERY, "--count"), READS),
        (("query", *QUERY, "--latest", "--ordered"), READS),
        *((("query", *QUERY, "--format", each), READS) for each in ("cdxj", "csv", "json", "jsonl", "table", "url")),
        (("query", *QUERY, "-o", "found.parquet"), READS),
        (("query", *QUERY, "--status", "2xx", "--mime", "text/html", "--lang", "eng"), READS | SQL),
        (("query", *QUERY, "--where", "fetch_status = 200 AND url LIKE 'https:%'"), READS | SQL),
    ],
    [
        (("sql", "SELECT count(*) FROM files"), LISTS | SQL),
        (("crawls",), LISTS | SQL),
        (("harvest", "--crawl", CRAWL), LISTS | {"filelock"} | SQL),
        (("harvest", "--crawl", CRAWL, "--refresh"), READS | {"filelock"} | SQL),
    ],
    [
        (("join", *words.split(), "--crawl", CRAWL, "-o", "joined.parquet"), READS | {"filelock"})
        for words in ("urls.txt --how inner", "urls.parquet --how anti", "urls.txt --how semi --match domain")
    ],
    [
        (("get", *QUERY), READS | WARC),
        (("fetch", *QUERY, "--dry-run"), READS | WARC),
        (("fetch", "--captures", "rows.jsonl", "--dry-run"), READS | WARC),
        (("site", *QUERY), READS | WARC),
        (("fetch", *QUERY, "--limit", "1", "-o", "found.warc.gz"), READS | WARC | {"filelock"}),
    ],
]
"""Commands that one interpreter runs in turn, and the slow libraries that are imported when each has ended."""
RUN = """
import json, sys
from catalogue.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        print(json.dumps([end.code, *sys.modules]), file=sys.stderr)
"""


def run_python(command: Command, *words: str) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = {"env": command.environment(), "cwd": command.home, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, "-c", *words], check=False, **options)


@pytest.mark.in_part(4)
@pytest.mark.parametrize("commands", COMMANDS, ids=lambda commands: " ".join(commands[0][0]))
def test_commands_import_only_what_they_need(
    stored: Command, crawl: str, tmp_path: Path, commands: list[tuple[tuple[str, ...], set[str]]]
) -> None:
    (tmp_path / "urls.txt").write_text("https://example.com/\n")
    (tmp_path / "rows.jsonl").write_text('{"filename": "crawl-data/x.warc.gz", "offset": 0, "length": 1}\n')
    pq.write_table(pa.table({"url": ["com,example)/"]}), tmp_path / "urls.parquet")
    run = [[crawl if word == CRAWL else word for word in words] for words, _ in commands]
    ran = run_python(stored, RUN, json.dumps(run))
    reported = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("[")]
    for (words, needed), (status, *imported) in zip(commands, reported, strict=True):
        assert status == 0, ran.stderr[-1000:]
        assert "catalogue.cli.app" in imported
        assert SLOW & {*imported} == needed, words


@pytest.mark.in_soak
def test_blocks_are_read_without_pandas(whole_mirror: Path, tmp_path: Path) -> None:
    crawl = newest_first(path.name for path in (whole_mirror / "cc-index/collections").iterdir())[0]
    query = ["query", "*.com", "--crawl", crawl, "--format", "csv"]
    commands = [query, ["harvest", "--crawl", crawl, "--index", "cdx"], query]
    ran = run_python(Command(tmp_path / "data", str(whole_mirror), tmp_path), RUN, json.dumps(commands))
    searched, harvested, by_list = (json.loads(line) for line in ran.stderr.splitlines() if line.startswith("["))
    assert [searched[0], harvested[0], by_list[0]] == [0, 0, 0], ran.stderr[-1000:]
    assert SLOW & {*by_list} <= READS | SQL | {"filelock"}


FETCH = """
import json, sys
import catalogue

rows, source, data = sys.argv[1:]
with catalogue.open(data, source=source) as cat:
    done = cat.fetch(json.loads(rows), "found.warc.gz")
print(json.dumps([done.records, *sys.modules]))
"""


def test_rows_are_fetched_without_arrow(stored: Command, crawl: str) -> None:
    asked = stored("query", "example.com", "--crawl", crawl, "--limit", "2", "--format", "jsonl")
    rows = [json.loads(line) for line in asked.out.splitlines()]
    ran = run_python(stored, FETCH, json.dumps(rows), stored.source, str(stored.data))
    records, *imported = json.loads(ran.stdout)
    assert records == len(rows) > 0
    assert not {"numpy", "pyarrow", "pandas", "duckdb"} & {*imported}
