"""Limits, filters and order of CDX requests; test_cdx_served has the rules of parameters."""

import re
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.cdx.lines import FIELDS, RAW, cdx_table
from catalogue.commoncrawl.columns import SCHEMA
from catalogue.errors import QueryError, TooExpensive
from catalogue.server.cdx_request import CdxRequest, parse_filter, parse_request
from catalogue.server.cdx_search import filter_table, filter_tables, rows_before, sort_captures
from tests.cdx.test_lines import ROW
from tests.support.cdx_oracle import Capture, Refused, capture_filter


def request_of(url: str = "example.com", **parameters: str) -> CdxRequest:
    return parse_request([("url", url), *((name.rstrip("_"), value) for name, value in parameters.items())])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([("url", "x"), ("pageSize", "0")], "Invalid value for pageSize= param: 0"),
        ([("url", "x"), ("limit", "many")], "Invalid value for limit= param: many"),
        ([("url", "x"), ("from", "yesterday")], "Invalid value for from= param: yesterday"),
        ([("url", "x"), ("to", "2022-01-01")], "Invalid value for to= param: 2022-01-01"),
        ([("url", "x"), ("closest", "1" * 15)], "Invalid value for closest= param: 1"),
        ([("url", "x"), ("filter", "~url:a)|(b")], "Invalid value for filter= param: ~url:a)|(b"),
        ([("url", "x"), ("filter", "a" * 3000)], "Invalid value for filter= param"),
        ([("url", "x"), *[("filter", "a")] * 51], "Invalid value for filter= param"),
        (
            [("url", "x"), ("fl", ",".join(map(str, range(101))))],
            "Invalid value for fl= param: there are more than 100",
        ),
        ([("url", "x"), ("showPagedIndex", "true")], "showPagedIndex= is not supported"),
    ],
)
def test_rejects_invalid_parameters(parameters: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_request(parameters)
    assert str(caught.value).startswith(message)


@given(st.from_regex(r"[0-9]{1,14}", fullmatch=True), st.datetimes())
def test_query_times_include_all_requested_times(digits: str, moment: Any) -> None:
    stamp = f"{moment.year:04}{moment:%m%d%H%M%S}"
    milliseconds = int((moment.replace(microsecond=0) - moment.__class__(1970, 1, 1)).total_seconds()) * 1000
    first, last = parse_request([("url", "x"), ("from", digits)]), parse_request([("url", "x"), ("to", digits)])
    if moment.year >= 1000 and stamp >= first.first:
        assert first.times[0] is not None
        assert milliseconds >= first.times[0]
    if moment.year < 9999 and stamp <= last.last:
        assert last.times[1] is not None
        assert milliseconds < last.times[1]


# ---- filters ----


@settings(max_examples=300)
@given(
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "=", "~"]),
    st.sampled_from(["", "mime:", "digest:", "url:", "nosuch:"]),
    st.text("abAB.*|", max_size=4),
    st.text("abAB.", max_size=4),
)
def test_filters_agree_with_pywb(inverted: str, how: str, field: str, operand: str, value: str) -> None:
    text = inverted + how + field + operand
    capture = Capture("key", "2022", dict.fromkeys(FIELDS, value))
    columns = {name: pa.array([value]) for name in FIELDS} | {RAW: pa.array([capture.raw])}
    try:
        expected = capture_filter(text)(capture)
    except Refused:
        with pytest.raises(QueryError):
            parse_filter(text)
        return
    try:
        found = parse_filter(text)
    except QueryError:
        assert re.search(r"\*\*|\|\*|^\*|\*\+", operand)  # RE2 is stricter about what is repeated
        return
    assert found.mask(pa.RecordBatch.from_pydict(columns)).to_pylist() == [expected]


def test_expressions_take_linear_time() -> None:
    table = pa.RecordBatch.from_pydict({"url": pa.array(["a" * 100_000])})
    began = time.process_time()
    assert parse_filter("~url:(a*)*(a*)*(a|aa)+b").mask(table).to_pylist() == [False]
    assert time.process_time() - began < 20  # an engine that goes back and forth would not end at all


def test_limits_time_of_expressions() -> None:
    rows = pa.RecordBatch.from_pylist([ROW | {"url": f"http://example.com/{at}"} for at in range(700)])
    table = cdx_table(rows)
    ticks = iter(range(10_000))
    with pytest.raises(TooExpensive, match="more than 10 s"):
        list(filter_tables([table], request_of(filter="~url:http"), clock=lambda: next(ticks)))
    assert next(ticks) < 30
    for text in ("~url:.*[37]$", "!~url:.*[37]$", "url:5"):
        found = pa.Table.from_batches(filter_tables([table, table], request_of(filter=text), clock=lambda: 0))
        assert found.equals(pa.Table.from_batches([filter_table(table, request_of(filter=text))] * 2))


def test_filters_become_conditions_for_statistics() -> None:
    assert request_of(filter="=status:404").where == "fetch_status = 404"
    both = parse_request([("url", "x"), ("filter", "=mime:text/html"), ("filter", "=status:200"), ("filter", "x")])
    assert both.where == "content_mime_type = 'text/html' AND fetch_status = 200"
    for text in ("!=status:404", "status:404", "=status:0404", "=status:", "=mime:it's", "~mime:text/html"):
        assert request_of(filter=text).where is None


def test_filters_by_time() -> None:
    times = [ROW["fetch_time"].replace(year=year) for year in (2020, 2021, 2022)]
    rows = pa.RecordBatch.from_pylist([{"url_surtkey": "x", "fetch_time": at} for at in times])
    found = filter_table(cdx_table(rows), parse_request([("url", "x"), ("from", "2021"), ("to", "2021")]))
    assert found.column("timestamp").to_pylist() == ["20210116093137"]


@pytest.mark.parametrize(
    ("closest", "years"),
    [
        ("2021", [2022, 2021, 2020]),  # December 31
        ("202105", [2021, 2022, 2020]),
        ("0", [2020, 2021, 2022]),
        ("9", [2022, 2021, 2020]),
        ("20220230", [2022, 2021, 2020]),
    ],
)
def test_sorts_by_distance_even_from_invalid_times(closest: str, years: list[int]) -> None:
    times = [ROW["fetch_time"].replace(year=year) for year in (2022, 2020, 2021)]
    rows = pa.RecordBatch.from_pylist([{"url_surtkey": "x", "fetch_time": at} for at in times])
    request = parse_request([("url", "x"), ("closest", closest), ("limit", "3")])
    found = sort_captures([filter_table(cdx_table(rows), request)], request).column("timestamp").to_pylist()
    assert [int(stamp[:4]) for stamp in found] == years


@given(
    st.lists(st.tuples(st.sampled_from(["a)/", "a)/b", "b)/"]), st.none() | st.integers(0, 9)), min_size=2),
    st.integers(1, 5),
    st.sampled_from([{}, {"reverse": "true"}, {"closest": "20220101000005"}]),
)
def test_rows_after_the_limit_are_not_needed(
    places: list[tuple[str, int | None]], limit: int, order: dict[str, str]
) -> None:
    request = request_of(limit=str(limit), **order)
    start = ROW["fetch_time"].replace(month=1, day=1, hour=0, minute=0, second=0)
    rows = pa.RecordBatch.from_pylist(
        [
            {"url_surtkey": key, "fetch_time": None if at is None else start.replace(second=at), "url": f"{number}"}
            for number, (key, at) in enumerate(places)
        ],
        schema=pa.schema([(name, SCHEMA.field(name).type) for name in ("url_surtkey", "fetch_time", "url")]),
    )
    selected = sort_captures([filter_table(cdx_table(rows.slice(0, limit)), request)], request)
    needed = rows_before(rows.slice(limit), selected.slice(selected.num_rows - 1), request)
    assert sort_captures([selected, filter_table(cdx_table(needed), request)], request) == sort_captures(
        [filter_table(cdx_table(rows), request)], request
    )
