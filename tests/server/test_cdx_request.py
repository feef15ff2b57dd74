"""Limits, filters and order of CDX requests; test_cdx_served has the rules of parameters."""

import re
import time
from itertools import compress
from urllib.parse import parse_qsl

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.cdx.lines import lines_of, time_of
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.errors import QueryError, TooExpensive
from catalogue.server.cdx_request import CdxRequest, apply_filters, parse_filter, parse_request
from catalogue.server.cdx_search import order_lines, rows_before
from tests.cdx.test_lines import ROW
from tests.support.cdx_oracle import Capture, Refused, capture_filter


def request_of(url: str = "example.com", **parameters: str) -> CdxRequest:
    return parse_request([("url", url), *((name.rstrip("_"), value) for name, value in parameters.items())])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("pageSize=0", "Invalid value for pageSize= param: 0"),
        ("limit=many", "Invalid value for limit= param: many"),
        ("from=yesterday", "Invalid value for from= param: yesterday"),
        ("to=2022-01-01", "Invalid value for to= param: 2022-01-01"),
        (f"closest={'1' * 15}", "Invalid value for closest= param: 1"),
        ("filter=~url:a)|(b", "Invalid value for filter= param: ~url:a)|(b"),
        ("filter=~url:(?!b)", "Invalid value for filter= param: ~url:(?!b) (invalid perl operator: (?!;"),
        (f"filter={'a' * 3000}", "Invalid value for filter= param"),
        ("&".join(["filter=a"] * 51), "Invalid value for filter= param"),
        (f"fl={','.join(map(str, range(101)))}", "Invalid value for fl= param: there are more than 100"),
        ("showPagedIndex=true", "showPagedIndex= is not supported"),
    ],
)
def test_rejects_invalid_parameters(parameters: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_request(parse_qsl(f"url=x&{parameters}"))
    assert str(caught.value).startswith(message)


@settings(max_examples=8 * settings().max_examples)
@given(
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "=", "~"]),
    st.sampled_from(["", "mime:", "digest:", "url:", "nosuch:"]),
    st.text("abAB.*|", max_size=4),
    st.text("abAB.", max_size=4),
)
def test_filters_agree_with_pywb(inverted: str, how: str, field: str, operand: str, value: str) -> None:
    text = inverted + how + field + operand
    capture = Capture("key", "2022", dict.fromkeys(("url", "mime", "digest"), value))
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
    ((*selected,),) = apply_filters([[capture.raw]], [found])
    assert selected == [capture.raw] * expected


def test_expressions_take_linear_time() -> None:
    line = f'key 2022 {{"url": "{"a" * 100_000}"}}'
    began = time.process_time()
    assert [*apply_filters([[line]], [parse_filter("~url:(a*)*(a*)*(a|aa)+b")])] == [[]]
    assert time.process_time() - began < 20  # an engine that goes back and forth would not end at all


def test_limits_time_of_expressions() -> None:
    rows = pa.RecordBatch.from_pylist([ROW | {"url": f"http://example.com/{at}"} for at in range(700)])
    lines = lines_of(rows)
    ticks = iter(range(10_000))
    with pytest.raises(TooExpensive, match="more than 10 s"):
        list(apply_filters([lines], request_of(filter="~url:http").filters, clock=lambda: next(ticks)))
    assert next(ticks) < 30
    for text in ("~url:.*[37]$", "!~url:.*[37]$", "url:5"):
        filters = request_of(filter=text).filters
        found = [line for some in apply_filters([lines, lines], filters, clock=lambda: 0) for line in some]
        urls = [f"http://example.com/{at}" for at in range(700)]
        assert found == 2 * [*compress(lines, filters[0].mask(urls))]


def test_filters_become_conditions_for_statistics() -> None:
    assert request_of(filter="=status:404").where == "fetch_status = 404"
    both = parse_request([("url", "x"), ("filter", "=mime:text/html"), ("filter", "=status:200"), ("filter", "x")])
    assert both.where == "content_mime_type = 'text/html' AND fetch_status = 200"
    for text in ("!=status:404", "status:404", "=status:0404", "=status:", "=mime:it's", "~mime:text/html"):
        assert request_of(filter=text).where is None


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
    assert [int(time_of(line)[:4]) for line in order_lines(lines_of(rows), request)] == years


@given(
    st.lists(st.tuples(st.sampled_from(["a)/", "a)/b", "b)/", "b)/ c"]), st.none() | st.integers(0, 9)), min_size=2),
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
            {
                "url_surtkey": key,
                "fetch_time": None if at is None else start.replace(second=at, microsecond=number % 3 * 1000),
                "url": f"{number}",
            }
            for number, (key, at) in enumerate(places)
        ],
        schema=pa.schema([(name, SCHEMA.field(name).type) for name in ("url_surtkey", "fetch_time", "url")]),
    )
    selected = order_lines(lines_of(rows.slice(0, limit)), request)
    needed = rows_before(rows.slice(limit), selected[-1], request)
    assert order_lines([*selected, *lines_of(needed)], request) == order_lines(lines_of(rows), request)
