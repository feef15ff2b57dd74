"""Parameters and answers of the JSON API, as models for validation and for its OpenAPI document."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.json_schema import SkipJsonSchema

from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.query.filters import LANGUAGE, MIME, STATUS
from catalogue.query.query import Query

MAX_LIMIT = 10_000
_CRAWL = "CC-(?:MAIN|SUPPLEMENTAL)-[0-9]{4}(?:-[0-9]{2,4})?"
_CLOCK = "[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?)?"
_TIME = f"[0-9]{{1,14}}|[0-9]{{4}}-[0-9]{{2}}(?:-[0-9]{{2}}(?:{_CLOCK})?)?(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?"
_NUMBER = re.compile("-?[0-9]{1,18}")


def _digits(value: object) -> object:
    """Reject numbers that pydantic accepts: ``1_000``, ``1.0``."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError("use digits")
    return value


def _one_of(pattern: str) -> Any:  # noqa: ANN401 - pydantic's field
    return Field(pattern=f"^(?:{pattern})(?:,(?:{pattern})){{0,20}}$")


_RANGE = f"(?:{_CRAWL})?\\.\\.(?:{_CRAWL})?"
Crawl = Annotated[str, Field(pattern=f"^(?:all|latest|stored|(?:19|20)[0-9]{{2}}|{_CRAWL}|{_RANGE})$")]
Url = Annotated[str, Field(min_length=1, max_length=2000, examples=["*.example.com"])]
Time = Annotated[str, Field(pattern=f"^(?:{_TIME})$")]
Columns = Annotated[str, Field(pattern="^(?:\\*|[A-Za-z0-9_]{1,64}(?:,[A-Za-z0-9_]{1,64}){0,40})$")]
RowGroupName = Annotated[str, Field(pattern="^[!-~]{1,500}:[0-9]{1,9}$")]
Limit = Annotated[
    int, Field(ge=1, le=MAX_LIMIT, description="Maximum of rows.", examples=[10]), BeforeValidator(_digits)
]
Missing = SkipJsonSchema[None]
"""The type of an optional parameter that is not given; clients cannot send it."""
_SEVERAL = Field(min_length=1, max_length=20)
_CRAWLS = "CC-MAIN-2022-05, 2022 for the crawls of a year, A..B, latest, all or stored."
Crawls = Annotated[list[Crawl], _SEVERAL, Field(description=_CRAWLS, examples=[["latest"]])]


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class PlanParameters(_Parameters):
    """Parameters of a query without a limit."""

    url: Url
    """A URL, host or pattern: example.com/page, example.com/*, *.example.com, *.is."""
    crawl: Crawls = ["stored"]
    match: Annotated[
        Literal["exact", "prefix", "host", "domain"] | Missing, Field(alias="matchType", examples=["domain"])
    ] = None
    """How to match the URL, instead of wildcards."""
    subset: Annotated[
        list[Literal["warc", "crawldiagnostics", "robotstxt", "all"]], _SEVERAL, Field(examples=[["all"]])
    ] = []
    """warc: pages, the default; crawldiagnostics: redirects and errors; by a status, the subsets that can have it."""
    from_: Annotated[Time | Missing, Field(alias="from", examples=["2018"])] = None
    """First time: 1 to 14 digits or ISO 8601, UTC; inclusive."""
    to: Annotated[Time | Missing, Field(examples=["20261231"])] = None
    """Last time, inclusive."""
    status: Annotated[list[Annotated[str, _one_of(STATUS)]], _SEVERAL, Field(examples=[["200"]])] = []
    """HTTP status: one of these; 2xx for a class."""
    mime: Annotated[list[Annotated[str, _one_of(MIME)]], _SEVERAL, Field(examples=[["text/html"]])] = []
    """Media type as detected (as declared, in crawls without): one of these; text/* for a prefix."""
    language: Annotated[list[Annotated[str, _one_of(LANGUAGE)]], _SEVERAL, Field(examples=[["eng"]])] = []
    """ISO 639-3: pages in one of these languages."""
    columns: Annotated[Columns | Missing, Field(examples=["url,fetch_time,fetch_status"])] = None
    """Columns of the answer, comma-separated, or *; by default those of the CDX index."""
    index: Annotated[Literal["auto", "columnar", "cdx"], Field(examples=["cdx"])] = "auto"
    """columnar: the Parquet files of harvested crawls; cdx: the CDX index; auto: the cheaper one for each crawl."""

    def query(self, limit: int | None = None) -> Query:
        return Query.of(
            self.url,
            crawls=self.crawl,
            subsets=self.subset,
            columns=self.columns.split(",") if self.columns else None,
            status=self.status,
            mime=self.mime,
            lang=self.language,
            from_=self.from_,
            to=self.to,
            limit=limit,
            match=self.match,
            index=self.index,
        )


class QueryParameters(PlanParameters):
    """Parameters of a query."""

    limit: Limit = 100


class RowGroupsParameters(_Parameters):
    """Parameters of a list of row groups."""

    crawl: Crawls = ["stored"]
    key: Url | Missing = None
    """A pattern, as url: only row groups that may contain its keys."""
    limit: Limit = 100
    after: Annotated[
        RowGroupName | Missing,
        Field(examples=["cc-index/table/cc-main/warc/crawl=CC-MAIN-2022-05/subset=warc/part-00000.parquet:0"]),
    ] = None
    """next of the previous answer, to continue."""


class StatusParameters(_Parameters):
    """No parameters."""


Count = Annotated[int, Field(ge=0)]


def _model(name: str, description: str, **fields: Any) -> Any:  # noqa: ANN401 - types
    """Return a model with exactly these fields, each a type or a type and a description."""
    config = ConfigDict(extra="forbid")
    found: dict[str, Any] = {
        key: (kind[0], Field(description=kind[1])) if isinstance(kind, tuple) else kind for key, kind in fields.items()
    }
    model: type[BaseModel] = create_model(name, __doc__=description, __config__=config, **found)
    return model


def _list_of(model: Any) -> Any:  # noqa: ANN401 - types
    return list[model]


def _column(kind: pa.DataType) -> Any:  # noqa: ANN401 - a type
    if pa.types.is_integer(kind):
        return int | None
    return datetime | None if pa.types.is_timestamp(kind) else str | None


_COLUMNS: dict[str, Any] = {
    field.name: (_column(field.type), ... if field.name in COMMON_CRAWL.path_columns else None)
    for field in COMMON_CRAWL.schema
}
Capture: Any = create_model(
    "Capture", __doc__="A row of the columnar index with the requested columns; crawl and subset always.", **_COLUMNS
)
Error = _model("Error", "The request was not answered.", message=(str, "What is wrong, and what to do about it."))
_Index = Literal["columnar", "cdx"]
_Cost: dict[str, Any] = {"index": _Index, "requests": Count, "bytes": Count, "seconds": Annotated[float, Field(ge=0)]}
Way = _model("Way", "What an index costs for a crawl.", **_Cost)
CrawlWay = _model(
    "CrawlWay",
    "Which index answers for a crawl.",
    crawl=str,
    **_Cost,
    why=str,
    other=(Way | None, "The other index, if it can answer and its cost was needed for the choice."),
)
Plan = _model(
    "Plan",
    "The cost of a query.",
    files=Count,
    row_groups=Count,
    row_groups_considered=Count,
    blocks=Count,
    searches=Count,
    crawls=(_list_of(CrawlWay), "Which index answers for each crawl; empty if the query names the index."),
    pages=Count,
    chunks=Count,
    rows=Count,
    requests=Count,
    bytes=Count,
    seconds=Annotated[float, Field(ge=0)],
    waves=Count,
    exact=(bool, "Whether requests and bytes are exact; otherwise they are a maximum or an estimate."),
    estimated=(bool, "Whether page indexes must be fetched before the cost is known."),
    indexes=_model("Indexes", "Page indexes to fetch.", requests=Count, bytes=Count),
    cached_bytes=Count,
    complete=bool,
    missing=list[str],
    without_bounds=_model("WithoutBounds", "Row groups whose key bounds are unknown.", row_groups=Count, bytes=Count),
    warnings=list[str],
)
PlannedFetch = _model(
    "PlannedFetch",
    "A request for a range of a file.",
    wave=(Count, "Waves are sent one after the other; page indexes are wave 0."),
    offset=Count,
    length=Annotated[int, Field(ge=1)],
    row_groups=list[Count],
    columns=list[str],
    cached=bool,
)
PlannedFile = _model(
    "PlannedFile",
    "What is read of a file.",
    path=str,
    crawl=str | None,
    subset=str | None,
    row_groups=list[Count],
    awaited=(list[Count], "Row groups whose page indexes must be fetched first."),
    fetches=_list_of(PlannedFetch),
)
PlanAnswer = _model(
    "PlanAnswer", "A plan and its requests.", plan=Plan, files=_list_of(PlannedFile), files_left_out=Count
)
QueryAnswer = _model(
    "QueryAnswer",
    "Captures.",
    captures=_list_of(Capture),
    limited=(bool, "Whether there may be more than the limit."),
    complete=(bool, "Whether all files that might match are stored."),
    missing=(list[str], "Which of them are not."),
    plan=Plan,
    requests=(Count, "Requests sent to the source in this time, by other queries too."),
    bytes=(Count, "Bytes received for them."),
)
RowGroup = _model(
    "RowGroup",
    "A row of the view row_groups.",
    path=str,
    crawl=str,
    subset=str,
    row_group=Count,
    num_rows=Count,
    total_byte_size=Count | None,
    file_offset=Count | None,
    total_compressed_size=Count | None,
    min_url_surtkey=str | None,
    max_url_surtkey=str | None,
    bounds_from=str,
    first_fetch=datetime | None,
    last_fetch=datetime | None,
)
RowGroupsAnswer = _model(
    "RowGroupsAnswer",
    "Row groups.",
    row_groups=_list_of(RowGroup),
    next=(str | None, "Value of after for the following row groups; null at the end."),
)
Coverage = _model(
    "Coverage",
    "How much of a crawl's subset is stored.",
    crawl=str,
    subset=str,
    files_listed=Count | None,
    files_harvested=Count,
    files_failed=Count,
    requested=(bool, "Whether a harvest requested this subset."),
    row_groups=Count,
    without_bounds=(Count, "Row groups whose key bounds are unknown."),
    num_rows=Count,
    file_size=Count,
)
StatusAnswer = _model(
    "StatusAnswer",
    "What is stored, and what was requested from the source since the server was started.",
    coverage=_list_of(Coverage),
    sizes=_model("Sizes", "Bytes on disk.", store=Count, catalogue=Count),
    requests=Count,
    bytes=Count,
    version=str,
)
