"""Every interface has the declared parameters of a query, except those that the declaration excludes."""

import inspect
from typing import Any

import click
import pytest

from catalogue.catalogue import Catalogue
from catalogue.cli.query_command import query
from catalogue.mcp_server.tools import TOOLS
from catalogue.query.parameters import PARAMETERS, Interface, parameters_of
from catalogue.query.query import AllQueryOptions, Query
from catalogue.server.application import application
from tests.support.serving import get
from tests.support.web_pages import page, serving_site

site = pytest.fixture(scope="module")(serving_site)


def names(interface: Interface) -> set[str]:
    return {each.name for each in parameters_of(interface)}


def fields(interface: Interface) -> set[str]:
    return {each.field for each in parameters_of(interface)}


def test_python_has_the_parameters_with_their_defaults() -> None:
    signature = inspect.signature(Catalogue.captures).parameters
    assert {*signature} - {"self"} == names(Interface.PYTHON)
    assert {*AllQueryOptions.__annotations__} == names(Interface.PYTHON) - {"patterns"}
    given: dict[str, Any] = {name: each.default for name, each in signature.items()}
    assert Query.of("*", **{name: given[name] for name in AllQueryOptions.__annotations__}) == Query.of("*")


def test_command_line_has_the_parameters_with_their_help() -> None:
    options = {each.name: each for each in query.params}
    for each in parameters_of(Interface.COMMAND_LINE, "patterns"):
        option = options[each.name]
        assert isinstance(option, click.Option)
        assert (option.opts, option.help, option.multiple) == ([each.option], each.help, each.several)


def test_json_api_has_the_parameters() -> None:
    for path in ("plan", "query"):
        documented = application().openapi()["paths"][f"/api/{path}"]["get"]["parameters"]
        assert {each["name"] for each in documented} == fields(Interface.JSON)


def test_tools_have_the_parameters() -> None:
    tools = {tool.name: {*tool.input_schema["properties"]} for tool in TOOLS}
    assert tools["plan"] == fields(Interface.ASSISTANT) - {"limit"}
    assert tools["query"] == fields(Interface.ASSISTANT) | {"offset", "max_requests"}


def test_form_has_the_parameters(site: str) -> None:
    root = page(get(site, "/search"))
    named = {each.attrs["name"] for tag in ("input", "select") for each in root.all(tag)}
    assert named == fields(Interface.FORM) | {"crawls", "order"}


def test_excluded_parameters_have_a_reason() -> None:
    assert all(reason for each in PARAMETERS for reason in each.absent.values())
