"""Arguments of the tools, with their bounds."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from catalogue.query.models import MAX_VALUES, Arguments, Text, listed, query_model
from catalogue.query.parameters import Interface

MAX_ROWS, MAX_OFFSET, MAX_REQUESTS = 200, 10_000, 10_000
MAX_CONTENT = 100_000


MaxRequests = Annotated[
    int, Field(ge=0, le=MAX_REQUESTS, description="requests that this call may make; it fails before it makes more")
]


_NOT_OF_SAMPLES = ("limit", "unique", "latest", "ordered", "index")
_OF_SAMPLE = {"patterns": ["*"], "columns": ["url", "fetch_time", "fetch_status"]}
_OF_QUERY = {"columns": ["url", "fetch_time", "fetch_status", "content_mime_detected"]}
"""Fewer columns than elsewhere: language models read the answers."""


class CrawlsArguments(Arguments):
    """Arguments of ``crawls``."""

    contains: Annotated[str, Field(max_length=50, description="part of the name, such as 2022")] = ""
    stored_only: Annotated[bool, Field(description="only crawls of which something is stored")] = False
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 20
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0


class PlanArguments(query_model(Interface.ASSISTANT, "limit")):  # type: ignore[misc]
    """Arguments of ``plan``."""


class QueryArguments(query_model(Interface.ASSISTANT, "limit", defaults=_OF_QUERY)):  # type: ignore[misc]
    """Arguments of ``query``."""

    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="captures of this answer")] = 20
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET, description="next_offset of the answer before")] = 0
    max_requests: MaxRequests = 50


class SampleArguments(query_model(Interface.ASSISTANT, *_NOT_OF_SAMPLES, defaults=_OF_SAMPLE)):  # type: ignore[misc]
    """Arguments of ``sample``."""

    size: Annotated[int, Field(ge=1, le=MAX_ROWS, description="captures to draw")] = 20
    seed: Annotated[int, Field(ge=0, le=2**31, description="the same seed draws the same sample")] = 0
    per: Annotated[Literal["host", "domain"] | None, Field(description="at most one capture of each")] = None
    max_requests: MaxRequests = 100


class PageArguments(Arguments):
    """Arguments of ``get_page``."""

    url: Annotated[Text, Field(description="of one page", examples=["https://example.com/"])]
    at: Annotated[
        str | None, Field(max_length=30, description="time such as 2022-08: the nearest capture; else the newest")
    ] = None
    crawl: Annotated[
        list[Text],
        BeforeValidator(listed),
        Field(max_length=MAX_VALUES, description="2022-05, a year, A..B, latest, all or stored [default: all]"),
    ] = Field(["all"], min_length=1)
    format: Annotated[
        Literal["text", "markdown", "links", "headers"], Field(description="headers: of the HTTP response")
    ] = "text"
    main_content: Annotated[bool, Field(description="leave out navigation and the like (text and markdown)")] = False
    follow: Annotated[bool, Field(description="follow archived redirects")] = True
    max_chars: Annotated[int, Field(ge=1, le=MAX_CONTENT, description="characters of the content")] = 20_000
    offset: Annotated[int, Field(ge=0, description="next_offset of the answer before; takes no requests then")] = 0
    max_requests: MaxRequests = 20


class SqlArguments(Arguments):
    """Arguments of ``sql_metadata``."""

    sql: Annotated[
        str,
        Field(
            min_length=1,
            max_length=10_000,
            description="one statement that reads, in DuckDB's SQL",
            examples=["from crawls where files_harvested > 0", "describe row_groups"],
        ),
    ]
    limit: Annotated[int, Field(ge=1, le=1000, description="rows of the answer")] = 100


def first_error(errors: Iterable[Any], known: Iterable[str]) -> str:
    error = next(iter(errors))
    name = ".".join(str(part) for part in error["loc"] if not isinstance(part, int)) or "arguments"
    if error["type"] == "extra_forbidden":
        return f"unknown argument {name!r}; the arguments are: {', '.join(known)}"
    if error["type"] == "missing":
        return f"{name} is required"
    return f"invalid {name}: {error['msg']}"
