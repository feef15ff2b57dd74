"""Answers of the JSON API, for its OpenAPI document."""

from datetime import datetime
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, create_model

from catalogue.commoncrawl.datasets import COMMON_CRAWL

Count = Annotated[int, Field(ge=0)]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Error(_Answer):
    """The request was not answered."""

    message: str = Field(description="What is wrong, and what to do about it.")


def _column(kind: pa.DataType) -> Any:  # noqa: ANN401 - a type
    if pa.types.is_integer(kind):
        return int | None
    return datetime | None if pa.types.is_timestamp(kind) else str | None


_COLUMNS: dict[str, Any] = {
    field.name: (_column(field.type), ... if field.name in COMMON_CRAWL.path_columns else None)
    for field in COMMON_CRAWL.schema
}
Capture = create_model(
    "Capture", __doc__="A row of the columnar index with the requested columns; crawl and subset always.", **_COLUMNS
)


class Transfer(_Answer):
    """Requests and bytes."""

    requests: Count
    bytes: Count


class WithoutBounds(_Answer):
    """Row groups whose key bounds are not known."""

    row_groups: Count
    bytes: Count


class Plan(_Answer):
    """The cost of a query."""

    files: Count
    row_groups: Count
    row_groups_considered: Count
    pages: Count
    chunks: Count
    rows: Count
    requests: Count
    bytes: Count
    seconds: Annotated[float, Field(ge=0)]
    waves: Count
    exact: bool = Field(
        description="Whether requests and bytes are exact; otherwise they are a maximum or an estimate."
    )
    estimated: bool = Field(description="Whether page indexes must be fetched before the cost is known.")
    indexes: Transfer
    cached_bytes: Count
    complete: bool
    missing: list[str]
    without_bounds: WithoutBounds
    warnings: list[str]


class PlannedFetch(_Answer):
    """A request for a range of a file."""

    wave: Count = Field(description="Waves are sent one after the other; page indexes are wave 0.")
    offset: Count
    length: Annotated[int, Field(ge=1)]
    row_groups: list[Count]
    columns: list[str]
    cached: bool


class PlannedFile(_Answer):
    """What is read of a file."""

    path: str
    crawl: str | None
    subset: str | None
    row_groups: list[Count]
    awaited: list[Count] = Field(description="Row groups whose page indexes must be fetched first.")
    fetches: list[PlannedFetch]


class PlanAnswer(_Answer):
    """A plan and the requests of its files."""

    plan: Plan
    files: list[PlannedFile]
    files_left_out: Count


class QueryAnswer(_Answer):
    """Captures."""

    captures: list[Capture]  # type: ignore[valid-type]
    limited: bool = Field(description="Whether there may be more than the limit.")
    complete: bool = Field(description="Whether all files that might match are stored.")
    missing: list[str] = Field(description="Which of them are not.")
    plan: Plan
    requests: Count = Field(description="Requests sent to the source in this time, by other queries too.")
    bytes: Count = Field(description="Bytes received for them.")


class KeyRange(_Answer):
    """An interval of keys, both ends inclusive."""

    min: str | None
    max: str | None


class RowGroup(_Answer):
    """A row of the view row_groups."""

    path: str
    crawl: str
    subset: str
    row_group: Count
    num_rows: Count
    total_byte_size: Count | None
    file_offset: Count | None
    total_compressed_size: Count | None
    min_url_surtkey: str | None
    max_url_surtkey: str | None
    bounds_from: str
    key_intervals: list[KeyRange] | None
    first_fetch: datetime | None
    last_fetch: datetime | None


class RowGroupsAnswer(_Answer):
    """Row groups."""

    row_groups: list[RowGroup]
    next: str | None = Field(description="Value of after for the following row groups; null at the end.")


class Coverage(_Answer):
    """How much of a crawl's subset is stored."""

    crawl: str
    subset: str
    files_listed: Count | None
    files_harvested: Count
    files_failed: Count
    requested: bool = Field(description="Whether a harvest requested this subset.")
    row_groups: Count
    without_bounds: Count = Field(description="Row groups whose key bounds are not known.")
    num_rows: Count
    file_size: Count


class Sizes(_Answer):
    """Bytes on disk."""

    store: Count
    catalogue: Count


class StatusAnswer(_Answer):
    """What is stored, and what was requested from the source since the server was started."""

    coverage: list[Coverage]
    sizes: Sizes
    requests: Count
    bytes: Count
    version: str
