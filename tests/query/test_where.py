"""``--where``: the rows that it keeps, and what it must not read."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from catalogue.errors import QueryError
from catalogue.query.resolved_query import Where
from catalogue.query.where import check_expression, connect, parse_where, where_positions
from tests.support.conditions import conditions, duckdb_connection, matching, rows_of
from tests.support.processes import line, run_script

connection = pytest.fixture(scope="module")(duckdb_connection)


def test_keeps_matching_rows(connection: duckdb.DuckDBPyConnection) -> None:
    rows = rows_of(url=["a", "b", None, "c"], fetch_status=[200, None, 200, 404])
    assert matching("fetch_status = 200", rows, connection).to_pydict() == {
        "url": ["a", None],
        "fetch_status": [200, 200],
    }
    assert matching("url > 'a'", rows, connection)["url"].to_pylist() == ["b", "c"]
    assert matching("url IS NULL OR fetch_status IS NULL", rows, connection)["url"].to_pylist() == ["b", None]
    assert matching("NULL", rows, connection).num_rows == 0
    assert matching("true -- all", rows, connection).equals(rows)
    assert matching("false", rows, connection).num_rows == 0
    assert matching("url = 'a' --) OR (true", rows, connection)["url"].to_pylist() == ["a"]


def test_compares_text_by_bytes(connection: duckdb.DuckDBPyConnection) -> None:
    rows = rows_of(url=["a", "B", "b", "é", "z", "\U0001f600", "\uffff", ""])
    assert matching("url > 'a'", rows, connection)["url"].to_pylist() == ["b", "é", "z", "\U0001f600", "\uffff"]
    assert matching("url > '\uffff'", rows, connection)["url"].to_pylist() == ["\U0001f600"]
    assert matching("url < 'a'", rows, connection)["url"].to_pylist() == ["B", ""]


@pytest.mark.parametrize(("literal", "number"), [("1_000", 1000), ("- 5", -5), ("-(-5)", 5), ("007", 7)])
def test_numbers_follow_duckdb(literal: str, number: int, connection: duckdb.DuckDBPyConnection) -> None:
    [(_, _, (condition,))] = conditions(f"url_port = {literal}")
    assert condition == number
    assert matching(f"url_port = {literal}", rows_of(url_port=[number, 6]), connection).num_rows == 1


def test_error_on_a_row_is_a_query_error(connection: duckdb.DuckDBPyConnection) -> None:
    rows = rows_of(url=["5", "no number"])
    assert matching("url::INTEGER = 5", rows.slice(0, 1), connection).num_rows == 1
    with pytest.raises(QueryError, match=r"the condition url::INTEGER = 5: .*no number"):
        matching("url::INTEGER = 5", rows, connection)
    with pytest.raises(duckdb.CatalogException):  # rows are released
        connection.execute("FROM rows")
    assert matching("url = '5'", rows, connection).num_rows == 1  # the connection can be used again
    with pytest.raises(duckdb.CatalogException):
        connection.execute("FROM rows")


def test_parallel_queries_see_their_own_rows(connection: duckdb.DuckDBPyConnection) -> None:
    where = parse_where("fetch_status = 200")

    def kept_of(size: int) -> int:
        rows = rows_of(url=["a"] * (size + 1), fetch_status=[*[200] * size, 404])
        with connect() as mine:
            return len(where_positions(where, rows, mine))

    with ThreadPoolExecutor(4) as executor, connect() as other:
        assert [*executor.map(kept_of, range(1, 100))] == [*range(1, 100)]
        connection.register("mine", pa.table({"a": [1]}))
        with pytest.raises(duckdb.CatalogException, match="mine"):
            other.execute("FROM mine")
    with pytest.raises(duckdb.InvalidInputException, match="locked"):
        connection.execute("SET TimeZone = 'Asia/Kolkata'")


ZONES = """
import datetime, os
os.environ["TZ"] = "Asia/Kolkata"
import pyarrow as pa
from catalogue.query.where import connect, parse_where, where_positions
start = datetime.datetime(2022, 1, 31, 20, tzinfo=datetime.UTC)
times = [start + datetime.timedelta(hours=n) for n in range(8)]
rows = pa.table({"fetch_time": pa.array(times, pa.timestamp("ms", "UTC"))})
with connect() as connection:
    for sql in TIMES:
        found = rows.take(where_positions(parse_where(sql), rows, connection))
        print([times.index(time) for time in found["fetch_time"].to_pylist()])
"""

TIMES = {
    "fetch_time >= '2022-02-01'": [4, 5, 6, 7],
    "fetch_time >= TIMESTAMP '2022-02-01 01:00:00'": [5, 6, 7],
    "fetch_time < '2022-02-01 01:00:00+02'": [0, 1, 2],
    "fetch_time::DATE = '2022-01-31'": [0, 1, 2, 3],
    "hour(fetch_time) = 21": [1],
    "strftime(fetch_time, '%d') = '01'": [4, 5, 6, 7],
    "date_trunc('day', fetch_time) = TIMESTAMPTZ '2022-02-01 00:00:00+00'": [4, 5, 6, 7],
    "fetch_time::VARCHAR LIKE '2022-01-31 22%'": [2],
}


@pytest.mark.in_soak
def test_times_are_utc_in_every_time_zone(tmp_path: Path) -> None:
    with run_script(tmp_path, ZONES.replace("TIMES", str([*TIMES]))) as process:
        assert [line(process) for _ in TIMES] == [str(rows) for rows in TIMES.values()]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        *(("", "cannot be read|one boolean expression"), ("-- nothing", "cannot be read|one boolean expression")),
        *(("'open", "cannot be read"), ("fetch_status = ", "cannot be read"), (")", "cannot be read")),
        ("1 = 1; SELECT 1", "cannot be read"),
        ("SELECT 1", "cannot be read|cannot contain a query|brackets do not match"),
        *(("fetch_status = 200 ORDER BY url", "cannot be read"), ("fetch_status AS x", "cannot be read")),
        *(("url = '\ud800'", "cannot be read"), ("(" * 200, "cannot be read")),
        ("NOT " * 5_000 + "true", "cannot be read|nested too deeply"),
        ("1" + " + 1" * 5_000 + " > 0", "cannot be read|nested too deeply"),
        *(("1 = 1); SELECT (1", "one boolean expression"), ("1 = 1); DROP TABLE rows; SELECT (1", "cannot be read")),
        *(("1 = 1); ATTACH 'x.db'; SELECT (1", "cannot be read"), ("1 = 1); SET threads = (1", "cannot be read")),
        *(("1 = 1) UNION SELECT (1", "one boolean expression"), ("1 = 1) LIMIT (1", "one boolean expression")),
        *(("1 = 1) GROUP BY (1", "one boolean expression"), ("1 = 1) HAVING (true", "one boolean expression")),
        *(("1 = 1) QUALIFY (true", "one boolean expression"), ("1 = 1) USING SAMPLE (5", "one boolean expression")),
        *(("url, fetch_status", "one boolean expression"), ("url = ?", "one boolean expression")),
        *(("url IN (SELECT 1)", "cannot contain a query"), ("EXISTS (SELECT 1)", "cannot contain a query")),
        ("url = (SELECT content FROM read_text('/etc/passwd'))", "cannot contain a query"),
        ("url = ANY (SELECT 1)", "cannot contain a query"),
        ("CASE WHEN true THEN (SELECT true) END", "cannot contain a query"),
        ("COLUMNS(*) IS NOT NULL", r"cannot contain a \*"),
        ("concat(rows.*) = 'a'", r"cannot contain a \*|cannot be read|Error|no column"),
        *(("#1 = 'a'", "cannot contain a column's number"), ("rows IS NULL", "no column 'rows'")),
        *(("rowid = 1", "no column 'rowid'"), ("url.length = 1", "no column 'length'")),
        *(("other.url = 'a'", "Binder Error"), ("read_text('/etc/passwd') = 'x'", "Error")),
        *(("glob('/etc/*') IS NULL", "Error"), ("getenv('HOME') = 'x'", "Error")),
        *(("query('SELECT 1') IS NULL", "Error"), ("set_config('threads', '1') IS NULL", "Error")),
        *(("nextval('x') = 1", "Error"), ("count(*) > 1", "Error"), ("row_number() OVER () = 1", "Error")),
        *(("fetch_status = 'many'", "Conversion Error"), ("fetch_time > 'yesterday'", "Conversion Error")),
        *(("no_such_function(url)", "Error"), ("url + 1 = fetch_status + url", "Error")),
        *(("warc_record_id = '019d6d22'", "is bytes; write"), ("warc_record_id IN ('x')", "warc_record_id::UUID =")),
        *((f"{before}warc_record_id = 'x'", "is bytes; write") for before in ("NOT ", "url = 'a' OR ")),
        ("CASE WHEN WARC_RECORD_ID NOT IN ('x') THEN true END", "is bytes; write"),
        ("1 = 1) AND (url = 'a'", "its brackets do not match"),
        ("url = 'a') OR (url = 'b'", "its brackets do not match"),
    ],
)
def test_rejects_invalid_expressions_before_reading(sql: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        parse_where(sql)


@pytest.mark.parametrize("read", [parse_where, check_expression])
def test_any_depth_is_parsed_or_rejected(read: Callable[[str], object]) -> None:
    """Some depths are accepted by only one of Python and DuckDB."""
    read("NOT " * 200 + "true")
    for depth in (600, 900):
        with suppress(QueryError):  # no other error in any version
            read("NOT " * depth + "true")
    with pytest.raises(QueryError, match=r"nested too deeply|cannot be read"):
        read("NOT " * 5_000 + "true")


@pytest.mark.parametrize(
    "sql",
    [
        *("url = (SELECT content FROM read_text('{file}'))", "EXISTS (FROM read_csv('{file}'))"),
        *("EXISTS (FROM glob('{file}'))", "true); ATTACH '{file}.db'; SELECT (1"),
        *("true); COPY (SELECT 1) TO '{file}.csv'; SELECT (1", "true); SET enable_external_access = true; SELECT (1"),
        *("true); INSTALL httpfs; SELECT (1", "true); LOAD '{file}'; SELECT (1", "url = (SELECT getenv('CANARY'))"),
    ],
)
def test_cannot_read_files(
    sql: str, tmp_path: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should an expression pass the checks, DuckDB itself has no access."""
    file = tmp_path / "canary.txt"
    file.write_text("canary")
    monkeypatch.setenv("CANARY", "canary")
    with pytest.raises(QueryError):
        where_positions(Where(sql.format(file=file), (), ()), rows_of(url=["canary"]), connection)
    assert [*tmp_path.iterdir()] == [file]
