"""Rows of a scan with random conditions equal the rows of all files that polars chooses by them."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue import Catalogue

IDENTITY = ["url", "fetch_time", "warc_filename", "warc_record_offset", "crawl", "subset"]
COLUMNS = [*IDENTITY, "url_surtkey", "url_host_name", "url_host_registered_domain", "url_host_tld"]
COLUMNS += ["fetch_status", "content_mime_detected", "content_languages", "warc_record_length"]
ORDER = ["warc_record_offset", *IDENTITY]

KEYS = {"*.example.com": "^com,example[,:)]", "*.net": "^net,", "*": ""}
"""Patterns, and regular expressions of their keys; most questions are about few rows."""

Values = Mapping[str, list[Any]]
"""Some values of each column."""


def consistent() -> pl.Expr:
    """One row of the mirror has a domain that is not that of its host."""
    host, domain = pl.col("url_host_name"), pl.col("url_host_registered_domain")
    return domain.is_null() | host.str.ends_with(domain)


class Everything:
    """All rows; an object that failed tests print in one line."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows.filter(consistent())
        some = pl.concat([rows.sample(300, seed=1), rows.filter(pl.col("url").str.contains("example.com")).head(60)])
        self.values = {name: some[name].drop_nulls().unique().sort().to_list() for name in COLUMNS}


@pytest.fixture(scope="module")
def everything(all_rows: pa.Table) -> Everything:
    return Everything(pl.DataFrame(all_rows.select(COLUMNS)))


Draw = Callable[[st.SearchStrategy[Any]], Any]


def compared(draw: Draw, values: Values) -> pl.Expr:
    column = draw(st.sampled_from(COLUMNS))
    compare = draw(st.sampled_from([eq, eq, lt, le, gt, ge, ne]))
    return compare(pl.col(column), pl.lit(draw(st.sampled_from(values[column]))))  # type: ignore[no-any-return]


def one_of(draw: Draw, values: Values) -> pl.Expr:
    column = draw(st.sampled_from(COLUMNS))
    return pl.col(column).is_in(draw(st.lists(st.sampled_from(values[column]), max_size=3)))


def between(draw: Draw, values: Values) -> pl.Expr:
    column = draw(st.sampled_from(["url_surtkey", "fetch_time", "warc_record_length", "crawl"]))
    low, high = (pl.lit(draw(st.sampled_from(values[column]))) for _ in range(2))
    return pl.col(column).is_between(low, high, closed=draw(st.sampled_from(["both", "left", "right", "none"])))


def text(draw: Draw, values: Values) -> pl.Expr:
    name = draw(st.sampled_from(["url", "url_surtkey", "url_host_name", "content_languages"]))
    column, whole = pl.col(name), draw(st.sampled_from(values[name]))
    cut = draw(st.integers(0, min(len(whole), 40)))
    made: pl.Expr = draw(
        st.sampled_from(
            [
                *(column.str.starts_with(whole[:cut]), column.str.ends_with(whole[cut:])),
                *(column.str.contains(whole[cut // 2 : cut], literal=True), column.str.contains("com/")),
                *(column.str.contains("a.c|/b"), column.str.to_uppercase() == whole.upper(), column.is_null()),
            ]
        )
    )
    return made


def of_partition(draw: Draw, values: Values) -> pl.Expr:
    year = pl.col("crawl").str.slice(8, 4).cast(pl.Int32)
    subset: str = draw(st.sampled_from(values["subset"]))
    return (year > 2020) | (pl.col("subset") == subset)


def conditions(draw: Draw, values: Values) -> pl.Expr:
    kinds = [compared, compared, one_of, between, text, of_partition]
    made = [kind(draw, values) for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))]
    combined: pl.Expr = reduce(draw(st.sampled_from([and_, and_, or_])), made)
    return ~combined if draw(st.integers(0, 5)) == 0 else combined


@settings(max_examples=settings().max_examples // 2)
@given(st.data())
def test_conditions_equal_those_of_all_rows(harvested: Catalogue, everything: Everything, data: st.DataObject) -> None:
    condition = conditions(data.draw, everything.values)
    pattern = data.draw(st.sampled_from([*KEYS]))
    frame = harvested.scan(pattern, subsets="all", columns=COLUMNS, max_requests=10**6, max_bytes=10**12).filter(
        condition
    )
    found = frame.collect(engine=data.draw(st.sampled_from(["in-memory", "streaming"])))
    expected = everything.rows.filter(pl.col("url_surtkey").str.contains(KEYS[pattern]), condition)
    assert found.filter(consistent()).sort(ORDER).equals(expected.sort(ORDER)), str(condition)
