"""Parameters and answers of the JSON API, as models."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.query.models import Arguments, Missing, Text, field_type, query_model
from catalogue.query.parameters import Interface

MAX_LIMIT = 10_000
_NUMBER = re.compile("-?[0-9]{1,18}")


def _digits(value: object) -> object:
    """Reject numbers that pydantic accepts: ``1_000``, ``1.0``."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError("use digits")
    return value


Limit = Annotated[
    int, Field(ge=1, le=MAX_LIMIT, description="Maximum number of rows.", examples=[10]), BeforeValidator(_digits)
]


class PlanParameters(query_model(Interface.JSON, "limit")):  # type: ignore[misc] # made of the table of parameters
    limit: Limit | Missing = None


class QueryParameters(query_model(Interface.JSON, "limit")):  # type: ignore[misc] # made of the table of parameters
    limit: Limit = 100


class RowGroupsParameters(Arguments):
    crawl: field_type("crawls") = None  # type: ignore[valid-type]
    key: Annotated[
        Text | Missing,
        Field(description="A pattern, as url: only row groups that may contain its keys.", examples=["*.example.com"]),
    ] = None
    limit: Limit = 100
    after: Annotated[
        Annotated[str, Field(pattern="^[!-~]{1,500}:[0-9]{1,9}$")] | Missing,
        Field(
            description="To continue: next of the previous answer.",
            examples=["cc-index/table/cc-main/warc/crawl=CC-MAIN-2022-05/subset=warc/part-00000.parquet:0"],
        ),
    ] = None


Count = Annotated[int, Field(ge=0)]


def _model(name: str, description: str, **fields: Any) -> Any:  # noqa: ANN401 - types
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
    "Capture", __doc__="A capture: the requested columns, and always crawl and subset.", **_COLUMNS
)
Error = _model("Error", "The request was not answered.", message=(str, "What is wrong, and what to do."))
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
    row_groups_ruled_out=(Count, "Row groups that the keys allow and that have no matching values."),
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
    estimated=(bool, "Whether the cost is known only after page indexes, places of blocks or rare values are found."),
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
    "Captures that match, and the cost of finding them.",
    captures=_list_of(Capture),
    limited=(bool, "Whether there may be more than the limit."),
    complete=(bool, "Whether everything that may match was read."),
    missing=(list[str], "Sentences about what was not read."),
    plan=Plan,
    requests=(Count, "Requests to the source during this query, including those of other queries."),
    bytes=(Count, "Bytes received by these requests."),
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
