"""SQL macros make the same keys as Python, or raise an error."""

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import catalogue
from catalogue.query.literals import literal
from catalogue.surt import url_surtkey
from catalogue.surt.interval import KeyInterval, covers
from catalogue.surt.macros import MACROS
from catalogue.surt.pattern import parse_pattern


@pytest.fixture(scope="module")
def sql() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(macro.statement)
        yield connection


LABELS = st.sampled_from(["com", "example"]) | (
    st.sampled_from(["www", "WWW2", "www.www", "com", "Example", "xn--bcher-kva", "a_b", "127.0.0.1", "010.1.1.1"])
    | st.text("aZ0-9_1", min_size=1, max_size=3)
    | st.sampled_from(["", "é", "%41", "a b", "user@", "[::1]", "1234"])
)
PLAIN_STEPS = ["dir", "Page.HTML", "a(b)", "~x", ".well-known", "a;b=c", "x=1&y", "{}", *"-'\"&\\^|"]
STEPS = st.sampled_from(
    [*PLAIN_STEPS, "(S(abcdefghijklmnopqrstuvwx))", "x.aspx", ".", "..", "", "%41", "é", "a b", "?q=1", "#f", "*"]
)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    scheme = draw(st.sampled_from(["", "", "http://", "HTTPS://", "https://", "ftp://", "http:///"]))
    subdomains = draw(st.sampled_from(["", "", "*."]))
    host = ".".join(draw(st.lists(LABELS, min_size=1, max_size=3)))
    port = draw(st.sampled_from(["", "", "", ":80", ":443", ":8080", ":080", ":", ":65535", ":x"]))
    path = "".join(f"/{step}" for step in draw(st.lists(STEPS, max_size=3)))
    blank = draw(st.sampled_from(["", "", " "]))
    return f"{blank}{scheme}{subdomains}{host}{port}{path}{draw(st.sampled_from(['', '/', '*', '/*']))}{blank}"


PLAIN = [
    *(
        "example.com",
        "https://www.Example.com:443/A/b.html",
        "http://shop.example.com:8080/dir/",
        "example.com/dir/*",
        "*",
    ),
    *("example.com/di*", "*.example.com", "*.is/*", "*.www.com", "http://10.0.0.1/x", "example.com/wiki/Foo_(bar)"),
]
NOT_PLAIN = [
    *("bücher.de", "*.bücher.de", "example.com/a%20b", "example.com/page?b=1&a=2", "example.com//b", "010.1.1.1"),
    *("example.com/(S(abcdefghijklmnopqrstuvwx))/x.aspx", "example.com/a/../b", "1234", "ftp://example.com/", "[::1]/"),
    *("user@example.com", "*.example.com/dir", "exa*mple.com", "\u3000example.com", "example.com/a\u00a0", ""),
]


def near(intervals: tuple[KeyInterval, ...]) -> list[str]:
    """Return texts in intervals, at their ends and next to them."""
    found = {"", "zz"}
    for interval in intervals:
        start, end = (bound.replace(b"\xff", b"~").decode() for bound in (interval.start, interval.end))
        for text in (start, end, end[:-1] + chr(max(ord(end[-1:] or " ") - 1, 1)) + "\U0010ffff"):
            found |= {text, text[:-1], f"{text}x", f"{text}\U0010ffff", text[:-1] + ",sub)/"}
            found.add(text.replace(")", "-shop)"))
    return sorted(found)


def requested(
    sql: duckdb.DuckDBPyConnection, query: str, *given: object
) -> list[tuple[Any, ...]] | duckdb.InvalidInputException:
    """Return the rows of a query, or an error that says what to do."""
    try:
        return sql.execute(query, list(given)).fetchall()
    except duckdb.InvalidInputException as error:
        if not re.search("ask instead: catalogue query|take that of catalogue.url_surtkey", str(error)):
            raise
        return error


def made(sql: duckdb.DuckDBPyConnection, expression: str) -> object:
    found = requested(sql, f"SELECT {expression}")
    return found[0][0] if isinstance(found, list) else found


def alike(sql: duckdb.DuckDBPyConnection, pattern: str) -> bool:
    """Return whether SQL accepts a pattern, after comparing it with Python."""
    quoted = literal(pattern)
    try:
        keys = near(parse_pattern(pattern).intervals)
    except ValueError:
        keys = [""]
    query = f"SELECT k FROM (SELECT unnest(?) AS k) WHERE surt_match(k, {quoted})"  # noqa: S608 - a constant it must be
    matched = requested(sql, query, keys)
    if isinstance(matched, Exception):
        assert isinstance(made(sql, f"surt_overlaps('', '', {quoted})"), Exception)
        return False
    intervals = parse_pattern(pattern).intervals
    assert keys == near(intervals)
    assert [key for (key,) in matched] == [key for key in keys if covers(intervals, key.encode())]
    pairs = [(one, other) for at, one in enumerate(keys) for other in keys[at : at + 6]]
    query = f"SELECT a, b FROM (SELECT unnest(?) AS a, unnest(?) AS b) WHERE surt_overlaps(a, b, {quoted})"  # noqa: S608
    overlapping = sql.execute(query, [[None, *(a for a, _ in pairs)], [None, *(b for _, b in pairs)]]).fetchall()
    expected = [
        (a, b) for a, b in pairs if any(a.encode() < each.end and each.start <= b.encode() for each in intervals)
    ]
    assert overlapping == [(None, None), *expected]  # unknown bounds overlap
    return True


@settings(max_examples=settings().max_examples // 2)
@given(patterns())
@example("*.1.2.3.4")
@example("a.b/.a/.*")
@example("www.com/*")
def test_accepted_patterns_equal_python(sql: duckdb.DuckDBPyConnection, pattern: str) -> None:
    alike(sql, pattern)


@settings(max_examples=settings().max_examples)
@given(patterns())
def test_keys_equal_python(sql: duckdb.DuckDBPyConnection, url: str) -> None:
    key = made(sql, f"surt_key({literal(url)})")
    if not isinstance(key, Exception):
        assert key == url_surtkey(url)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("pattern", PLAIN)
def test_accepts_plain_patterns(sql: duckdb.DuckDBPyConnection, pattern: str) -> None:
    assert alike(sql, pattern)
    if "*" not in pattern:
        assert made(sql, f"surt_key({literal(pattern)})") == url_surtkey(pattern)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("pattern", NOT_PLAIN)
def test_rejects_what_sql_cannot_convert(sql: duckdb.DuckDBPyConnection, pattern: str) -> None:
    assert not alike(sql, pattern)
    assert isinstance(made(sql, f"surt_key({literal(pattern)})"), Exception)


def test_rejects_null_and_urls_that_are_not_pages(sql: duckdb.DuckDBPyConnection) -> None:
    assert isinstance(made(sql, "surt_match('', NULL)"), Exception)
    assert isinstance(made(sql, "surt_match('', '*.www.WWW2.com')"), Exception)  # of two keys
    for url in ("dns:80", "filedesc:1/a", "warcinfo:256"):
        assert isinstance(made(sql, f"surt_key({literal(url)})"), Exception)
        assert made(sql, f"surt_key({literal(f'a.{url}')})") == url_surtkey(f"a.{url}")


def test_accepts_a_column_of_patterns(sql: duckdb.DuckDBPyConnection) -> None:
    rows = sql.execute(
        "SELECT p, surt_match(surt_key('http://a.example.com/dir/x'), p) FROM (SELECT unnest(?) AS p)", [PLAIN]
    ).fetchall()
    assert {pattern for pattern, matches in rows if matches} == {"*", "*.example.com"}


def test_metadata_database_has_the_macros(harvested: catalogue.Catalogue) -> None:
    rows = harvested.sql(
        "select path, row_group from row_groups where surt_overlaps(min_url_surtkey, max_url_surtkey, '*.example.com')"
    ).fetchall()
    planned = harvested.captures("*.example.com").plan
    assert {*rows} >= {(file.file.path, group.ordinal) for file in planned.files for group in file.row_groups}
    refused = harvested.sql("from row_groups where surt_overlaps(min_url_surtkey, max_url_surtkey, 'é.de')")
    with pytest.raises(duckdb.InvalidInputException, match="catalogue query"):
        refused.fetchall()
