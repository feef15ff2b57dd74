"""Every interface has the declared parameters of a query, except those that the declaration excludes."""

import inspect
from enum import Enum
from typing import Any

import click
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from catalogue.catalogue import Catalogue
from catalogue.cli.query_command import query
from catalogue.errors import QueryError
from catalogue.mcp_server.serve import TOOLS
from catalogue.query.parameters import Interface, parameters_of
from catalogue.query.query import Query
from catalogue.server.application import application
from tests.support.commands import Command
from tests.support.serving import get
from tests.support.web_pages import page, serving_site

site = pytest.fixture(scope="module")(serving_site)


def test_python_has_the_parameters_with_their_defaults() -> None:
    signature = inspect.signature(Catalogue.captures).parameters
    declared = {each.name for each in parameters_of(Interface.PYTHON)}
    assert {*signature} - {"self"} == declared
    given: dict[str, Any] = {name: signature[name].default for name in declared - {"patterns"}}
    assert Query.of("*", **given) == Query.of("*")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"patterns": None}, "a query needs a pattern"),
        ({"patterns": b"example.com"}, "invalid patterns of type bytes; use a text or a list of texts"),
        ({"patterns": {"url": ["example.com"]}}, "invalid patterns of type dict"),
        ({"patterns": pd.DataFrame({"url": ["example.com"]})}, "invalid patterns of type DataFrame"),
        ({"crawls": 2022.5}, "invalid crawls of type float"),
        ({"columns": ["url", None]}, "invalid columns of type NoneType"),
        ({"status": pd.Series([200.0])}, "invalid status of type float; use a text or a list of texts or numbers"),
        ({"where": ["true", ["fetch_status = 200"]]}, "invalid where of type list"),
        ({"patterns": 5}, "invalid patterns of type int; use a text"),
        ({"patterns": bytearray(b"example.com")}, "invalid patterns of type bytearray"),
        ({"patterns": memoryview(b"example.com")}, "invalid patterns of type memoryview"),
        ({"where": True}, "invalid where of type bool"),
        ({"columns": 5}, "invalid columns of type int"),
        ({"crawls": True}, "invalid crawls of type bool"),
        ({"limit": True}, "invalid limit True; use a whole number"),
        ({"limit": np.array([5])}, r"invalid limit array\(\[5\]\)"),
        ({"latest": np.array([True, False])}, r"invalid latest array\("),
        ({"latest": 2}, "invalid latest 2; use True or False"),
        ({"match": pd.Series(["host"])}, "invalid match 0 .*; use exact, prefix"),
        ({"limit": "5"}, "invalid limit '5'; use a whole number"),
        ({"limit": 5.0}, "invalid limit 5.0; use a whole number"),
        ({"latest": "false"}, "invalid latest 'false'; use True or False"),
        ({"ordered": "no"}, "invalid ordered 'no'; use True or False"),
        ({"exact_url": "0"}, "invalid exact_url '0'; use True or False"),
        ({"unique": ["url"]}, r"invalid unique \['url'\]; use the name of one column"),
        ({"match": ["host"]}, r"invalid match \['host'\]; use exact, prefix"),
        ({"index": 5}, "invalid index 5; use auto, columnar"),
        ({"status": []}, "status is empty; name a value, or leave it out"),
        ({"columns": ()}, "columns is empty; name a value, or leave it out"),
    ],
)
def test_python_refuses_values_of_other_types(given: dict[str, Any], says: str) -> None:
    with pytest.raises(QueryError, match=f"(?s)^{says}"):
        Query.of(**{"patterns": "example.com", **given})


class Word(str, Enum):  # noqa: UP042 - its str() is not its value
    SITE = "*.example.com"


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"patterns": Word.SITE}, {}),
        ({"patterns": [Word.SITE]}, {}),
        ({"patterns": pa.chunked_array([["*.example.com"]])}, {}),
        ({"patterns": pd.Series(["*.example.com"], index=[5])}, {}),
        ({"patterns": {"*.example.com": 1}.keys()}, {}),
        ({"from_": np.datetime64("2022-01-18")}, {"from_": "2022-01-18"}),
        ({"to": np.datetime64("2022-01-18T12", "ns")}, {"to": "2022-01-18T12:00:00"}),
        ({"to": pd.Timestamp("2022-01-18", tz="Asia/Kathmandu")}, {"to": "2022-01-17T18:15:00"}),
    ],
)
def test_python_takes_values_of_libraries(harvested: Catalogue, given: dict[str, Any], same: dict[str, Any]) -> None:
    site = {"patterns": "*.example.com"}
    assert harvested.captures(**site | given).plan == harvested.captures(**site | same).plan


def test_a_limit_may_be_any_number(harvested: Catalogue, asking: Command) -> None:
    counted = harvested.captures("example.com", limit=10**30).count()
    assert counted == harvested.captures("example.com").count() > 0
    assert asking("query", "example.com", "--limit", f"{10**30}", "--count").out == f"{counted}\n"


def test_command_line_has_the_parameters_with_their_help() -> None:
    options = {each.name: each for each in query.params}
    for each in parameters_of(Interface.COMMAND_LINE, "patterns"):
        option = options[each.name]
        assert isinstance(option, click.Option)
        assert (option.opts, option.help, option.multiple) == ([each.option], each.help, each.several)


def test_api_tools_and_form_have_the_parameters(site: str) -> None:
    api, assistant, form = (
        {each.field for each in parameters_of(interface)}
        for interface in (Interface.JSON, Interface.ASSISTANT, Interface.FORM)
    )
    for path in ("plan", "query"):
        documented = application().openapi()["paths"][f"/api/{path}"]["get"]["parameters"]
        assert {each["name"] for each in documented} == api
    tools = {tool.name: {*tool.input_schema["properties"]} for tool in TOOLS}
    assert (tools["plan"], tools["query"]) == (assistant - {"limit"}, assistant | {"offset", "max_requests"})
    root = page(get(site, "/search"))
    assert {each.attrs["name"] for tag in ("input", "select") for each in root.all(tag)} == form | {"crawls", "order"}
