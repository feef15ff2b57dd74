"""Arguments of the tools, with their bounds."""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MAX_ROWS, MAX_OFFSET, MAX_REQUESTS = 200, 10_000, 10_000
MAX_CONTENT = 100_000


def _listed(value: Any) -> Any:  # noqa: ANN401 - before validation
    """Make a list of a single text, and of JSON in a text, which some clients send."""
    if isinstance(value, str):
        with suppress(ValueError):
            decoded = json.loads(value)
            if isinstance(decoded, list):
                return decoded
        return [value]
    return value


Text = Annotated[str, Field(min_length=1, max_length=2000)]
Words = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], BeforeValidator(_listed)]
Column = Literal[
    "url",
    "url_surtkey",
    "fetch_time",
    "fetch_status",
    "fetch_redirect",
    "content_digest",
    "content_mime_type",
    "content_mime_detected",
    "content_charset",
    "content_languages",
    "content_truncated",
    "warc_filename",
    "warc_record_offset",
    "warc_record_length",
    "warc_segment",
]
MaxRequests = Annotated[
    int, Field(ge=0, le=MAX_REQUESTS, description="requests that this call may make; it fails before it makes more")
]
CRAWLS = "names such as CC-MAIN-2022-05, a year such as 2022, ranges A..B, latest, all or stored"


class Arguments(BaseModel):
    """Arguments; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class CrawlsArguments(Arguments):
    """Arguments of ``crawls``."""

    contains: Annotated[str, Field(max_length=50, description="part of the name, such as 2022")] = ""
    stored_only: Annotated[bool, Field(description="only crawls of which something is stored")] = False
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 20
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0


class QueryArguments(Arguments):
    """Arguments of all queries."""

    patterns: Annotated[
        list[Text],
        BeforeValidator(_listed),
        Field(
            min_length=1,
            max_length=100,
            description="URLs or hosts: example.com/page, example.com/blog/*, *.example.com (with subdomains), *.is",
            examples=[["example.com/page"], ["*.example.com"]],
        ),
    ]
    crawls: Annotated[Words, Field(min_length=1, max_length=50, description=CRAWLS)] = ["latest"]
    match: Annotated[
        Literal["exact", "prefix", "host", "domain"] | None, Field(description="instead of * in the patterns")
    ] = None
    subset: Annotated[
        Literal["all", "warc", "crawldiagnostics", "robotstxt"] | None,
        Field(description="warc: pages, the default without status; crawldiagnostics: redirects and errors"),
    ] = None
    status: Annotated[Words, Field(max_length=20, description="such as 200, 2xx or 404")] = []
    mime: Annotated[Words, Field(max_length=20, description="media types, such as text/html or image/*")] = []
    lang: Annotated[Words, Field(max_length=20, description="ISO 639-3, such as isl; pages in one of them")] = []
    from_time: Annotated[
        str | None, Field(max_length=30, description="first time, UTC: 2022, 2022-01-31 or 2022-01-31T12:00:00")
    ] = None
    to_time: Annotated[str | None, Field(max_length=30, description="last time, inclusive")] = None

    def options(self) -> dict[str, Any]:
        """Return the parameters of ``Catalogue.captures``."""
        return {
            "patterns": self.patterns,
            "crawls": self.crawls,
            "subsets": self.subset or (),
            "match": self.match,
            "status": self.status or None,
            "mime": self.mime or None,
            "lang": self.lang or None,
            "from_": self.from_time,
            "to": self.to_time,
        }


class CapturesArguments(QueryArguments):
    """Arguments of ``query``."""

    columns: Annotated[list[Column], BeforeValidator(_listed), Field(min_length=1, max_length=20)] = [
        "url",
        "fetch_time",
        "fetch_status",
        "content_mime_detected",
    ]
    latest_only: Annotated[bool, Field(description="keep only the latest capture of each URL")] = False
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="captures of this answer")] = 20
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET, description="next_offset of the answer before")] = 0
    max_requests: MaxRequests = 50


class SampleArguments(QueryArguments):
    """Arguments of ``sample``."""

    patterns: Annotated[
        list[Text],
        BeforeValidator(_listed),
        Field(min_length=1, max_length=100, description="as of query; by default everything"),
    ] = ["*"]
    size: Annotated[int, Field(ge=1, le=MAX_ROWS, description="captures to draw")] = 20
    seed: Annotated[int, Field(ge=0, le=2**31, description="the same seed draws the same sample")] = 0
    per: Annotated[Literal["host", "domain"] | None, Field(description="at most one capture of each")] = None
    columns: Annotated[list[Column], BeforeValidator(_listed), Field(min_length=1, max_length=20)] = [
        "url",
        "fetch_time",
        "fetch_status",
    ]
    max_requests: MaxRequests = 100


class PageArguments(Arguments):
    """Arguments of ``get_page``."""

    url: Annotated[Text, Field(description="of one page", examples=["https://example.com/"])]
    at: Annotated[
        str | None, Field(max_length=30, description="time such as 2022-08: the nearest capture; else the newest")
    ] = None
    crawls: Annotated[
        Words, Field(min_length=1, max_length=50, description=f"{CRAWLS}; by default all, from the newest back")
    ] = ["all"]
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
    """Return a sentence about the first invalid argument."""
    error = next(iter(errors))
    name = ".".join(str(part) for part in error["loc"] if not isinstance(part, int)) or "arguments"
    if error["type"] == "extra_forbidden":
        return f"unknown argument {name!r}; the arguments are: {', '.join(known)}"
    if error["type"] == "missing":
        return f"{name} is required"
    return f"invalid {name}: {error['msg']}"
