"""``catalogue sql``: its formats, statements on stdin, parameters, and DuckDB's shell."""

import csv
import io
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue.settings import Settings
from tests.cli.test_cli_terminal import on_a_terminal
from tests.support.commands import Command, Ran, ended
from tests.support.warm import Forked

VALUES = """select 2025 as n, true as yes, null as none, '' as empty, [1, 2] as list, sum(2)::hugeint as huge,
    timestamp '2022-01-16 10:00:00' as time, 'a,b' as text, 'nan'::double as nan, '-inf'::float as inf"""


def given(command: Command, text: str, *words: str) -> Ran:
    with Forked(["sql", *words], command.environment(), command.home, given=text.encode()) as process:
        return ended(process)


def test_prints_a_table_or_json(asking: Command, harvested: catalogue.Catalogue) -> None:
    rows = asking("sql", "select crawl, count(*) as n from row_groups group by 1 order by 1", "--json").json_lines()
    counts = harvested.row_groups().groupby("crawl").size()
    assert {row["crawl"]: row["n"] for row in rows} == counts.to_dict()
    text = asking("sql", "select crawl, count(*) as n from row_groups group by 1 order by 1").out
    assert text.splitlines()[0].split() == ["crawl", "n"]
    assert asking("sql", "coverage", "--json").json_lines()[0]["files_harvested"] >= 1
    drawing = asking("sql", "explain select 1").out.splitlines()
    assert len(drawing) > 4
    assert len({*map(len, drawing)}) == 1
    assert asking("sql", "describe row_groups").status == asking("sql", "checkpoint").status == 0
    assert asking("sql", "select cc.crawl from crawls as cc limit 0").err == ""  # which is no lake


def test_formats_values_only_on_a_terminal(asking: Command) -> None:
    row = asking("sql", VALUES).out.splitlines()[2]
    values = ["2025", "true", "NULL", "[1, 2]", "2", "2022-01-16T10:00:00Z", "a,b", "nan", "-inf"]
    assert re.split("  +", row) == values
    words = ("sql", "select 2025 as n, true as yes, null as none, 'nan'::double as nan, '-inf'::float as inf")
    assert on_a_terminal(asking, *words).splitlines()[2].split() == ["2,025", "yes", "-", "nan", "-inf"]


def test_writes_every_format(asking: Command, tmp_path: Path) -> None:
    (row,) = asking("sql", VALUES, "--format", "jsonl").json_lines()
    expected = [2025, True, None, "", [1, 2], 2, "2022-01-16T10:00:00Z", "a,b", None, None]
    assert asking("sql", "select chr(8232) as line_end", "--json").json_lines() == [{"line_end": "\u2028"}]
    assert asking("sql", "select 1 as a, 2 as a, 3 as a_1", "--json").json_lines() == [{"a": 1, "a_1": 2, "a_1_1": 3}]
    assert (" ".join(row), [*row.values()]) == ("n yes none empty list huge time text nan inf", expected)
    header, values = csv.reader(io.StringIO(asking("sql", VALUES, "--format", "csv").out))
    assert header == list(row)
    assert values == ["2025", "true", "", "", "[1, 2]", "2", "2022-01-16T10:00:00Z", "a,b", "nan", "-inf"]
    with (tmp_path / "rows.parquet").open("wb") as file:
        words = ["sql", "select i, [i] as list, -i as i from range(2500) t(i)", "--format", "parquet"]
        with asking.start_on(file.fileno(), *words) as process:
            assert process.wait(60) == 0
    found = pq.read_table(tmp_path / "rows.parquet").to_pydict()
    rows = range(2500)
    assert found == {"i": [*rows], "list": [[i] for i in rows], "i_1": [-i for i in rows]}
    assert "cannot be printed on a terminal" in on_a_terminal(asking, "sql", "select 1", "--format", "parquet")


def test_reads_statements_from_stdin(asking: Command) -> None:
    script = "-- a comment\nset variable least = 1;\nselect 6 * 7 as answer;\nselect getvariable('least') as least;\n"
    assert given(asking, script, "--json").json_lines() == [{"answer": 42}, {"least": 1}]
    assert given(asking, script, "-", "--format", "csv").out == "answer\n42\n\nleast\n1\n"
    assert given(asking, "coverage\n", "--json").json_lines()[0]["files_harvested"] >= 1
    for text, says in (("", "no SQL"), (" \n", "no SQL"), ("selct 1", 'at or near "selct"')):
        ran = given(asking, text)
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert says in ran.err
    ran = given(asking, "select 1; select 2", "--format", "parquet")
    assert (ran.status, ran.out) == (2, "")
    assert "can have one result" in ran.err


def test_binds_parameters(asking: Command, harvested: catalogue.Catalogue) -> None:
    whole = asking("sql", "find-url", "--json").json_lines()
    some = asking("sql", "find-url", "--param", "pattern=example.com/dir/*", "--json").json_lines()
    assert 0 < len(some) < len(whole)
    crawl = harvested.session.stored_crawls()[0]
    sql = "select crawl, num_rows > $n as large from crawls where crawl = $crawl"
    (row,) = asking("sql", sql, "--param", f"crawl={crawl}", "--param", "n=1", "--json").json_lines()
    assert row == {"crawl": crawl, "large": True}
    hostile = "x'; select 'injected' as it; --"
    assert asking("sql", "select $a as it", "--param", f"a={hostile}", "--json").json_lines() == [{"it": hostile}]
    assert asking("sql", "find-key", "--param", f"key={hostile}", "--json").status == 0


def test_says_how_to_fill_empty_views(stored: Command, mirror: Path, settings: Settings) -> None:
    crawls = stored("sql", "select crawl from crawls where files_harvested > 0", "--format", "csv").out.split()[1:]
    for words in (["bytes-by-column"], ["select count(*) from Column_Chunks"]):
        ran = stored("sql", *words, "--json")
        assert ran.status == 0
        assert f"no rows of {crawls[0]}" in ran.err
        assert " sql --column-chunks CRAWL\n" in ran.err
    filled = stored("sql", "bytes-by-column", "--json", *(f"--column-chunks={crawl}" for crawl in crawls[1:]))
    assert {row["crawl"] for row in filled.json_lines()} == {*crawls[1:]}
    assert filled.err == ""
    assert f"no rows of {crawls[0]};" in stored("sql", "bytes-by-column").err
    for view, option in (("pages", "--pages"), ('"Blocks"', "--index cdx"), ("column_values", "--values COLUMN")):
        ran = stored("sql", f"from crawls join {view} using (crawl)", "--json")
        assert ran.status == 0
        assert ran.err.endswith(f"harvest --crawl {max(crawls)} {option}\n")
    with catalogue.open(stored.data, settings=settings) as cat:
        with pytest.warns(catalogue.IncompleteAnswer, match=f"no rows of {crawls[0]}; run: "):
            cat.sql("from column_chunks")
        with pytest.warns(catalogue.IncompleteAnswer, match="nothing is stored for the view pages yet"):
            cat.sql("from pages")
        rows = cat.column_chunks(crawls[0]).query("row_group == 0 and column_name == 'url'")
        row = rows.to_dict("records")[0]
    file = pq.read_metadata(mirror / row["path"])
    chunk = file.row_group(0).column(file.schema.names.index("url"))
    assert (row["total_compressed_size"], row["codec"]) == (chunk.total_compressed_size, chunk.compression)
    assert stored("sql", "bytes-by-column").err == ""


def test_shell_lists_only_public_views(asking: Command) -> None:
    ran = given(asking, ".mode csv\n.tables\nselect 6 * 7 as answer from files limit 1;\nshow all tables;\n")
    assert ran.status == 0
    assert "42" in ran.out
    for view in ("crawls", "files", "row_groups", "pages", "column_chunks"):
        assert view in ran.out
    assert not {"derived", "meta", "listed", "failures", "footer_rest"} & {*re.findall(r"\w+", ran.out)}
