"""The OpenAPI document of the JSON API (https://spec.openapis.org/oas/v3.1.1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalogue.catalogue import Catalogue
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.server.parameters import Parameter
from catalogue.server.service import Service
from catalogue.settings import package_version

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One path that can be asked."""

    path: str
    name: str
    about: str
    parameters: tuple[Parameter, ...]
    answer: Callable[[Catalogue, Mapping[str, Any], Service], Any]
    """From the catalogue, the values of the parameters, and the service."""
    schema: str
    """Of the answer, by its name among ``SCHEMAS``."""


_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_SENTENCES: Schema = {"type": "array", "items": _TEXT}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _whole(**properties: Schema) -> Schema:
    """An object with exactly these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _column(kind: pa.DataType) -> Schema:
    if pa.types.is_integer(kind):
        return _or_null({"type": "integer"})
    return _or_null(_TIME) if pa.types.is_timestamp(kind) else _or_null(_TEXT)


_PLAN = _whole(
    files=_COUNT,
    row_groups=_COUNT,
    row_groups_considered=_COUNT,
    pages=_COUNT,
    chunks=_COUNT,
    rows=_COUNT,
    requests=_COUNT,
    bytes=_COUNT,
    seconds={"type": "number", "minimum": 0},
    waves=_COUNT,
    exact={**_FLAG, "description": "Whether requests and bytes are exactly these; else at most, or about."},
    estimated={**_FLAG, "description": "Whether page indexes must be fetched before these can be known."},
    indexes=_whole(requests=_COUNT, bytes=_COUNT),
    cached_bytes=_COUNT,
    complete=_FLAG,
    missing=_SENTENCES,
    without_bounds=_whole(row_groups=_COUNT, bytes=_COUNT),
    warnings=_SENTENCES,
)
_FETCH = _whole(
    wave={**_COUNT, "description": "Waves go out one after the other; 0 is that of page indexes."},
    offset=_COUNT,
    length={"type": "integer", "minimum": 1},
    row_groups=_list(_COUNT),
    columns=_list(_TEXT),
    cached=_FLAG,
)
_KEYS = _or_null(_list(_whole(min=_or_null(_TEXT), max=_or_null(_TEXT))))

SCHEMAS: dict[str, Schema] = {
    "Error": _whole(message={**_TEXT, "description": "What is wrong and what to do about it."}),
    "Capture": {
        "type": "object",
        "description": "A row of the columnar index, with the columns asked for; crawl and subset always.",
        "properties": {field.name: _column(field.type) for field in COMMON_CRAWL.schema},
        "required": list(COMMON_CRAWL.path_columns),
    },
    "Plan": _PLAN,
    "PlanAnswer": _whole(
        plan=_named("Plan"),
        files=_list(
            _whole(
                path=_TEXT,
                crawl=_or_null(_TEXT),
                subset=_or_null(_TEXT),
                row_groups=_list(_COUNT),
                awaited={**_list(_COUNT), "description": "Row groups whose page indexes must be fetched first."},
                fetches=_list(_FETCH),
            )
        ),
        files_left_out=_COUNT,
    ),
    "QueryAnswer": _whole(
        captures=_list(_named("Capture")),
        limited={**_FLAG, "description": "Whether there may be more than the limit."},
        complete={**_FLAG, "description": "Whether all files that might match are harvested."},
        missing={**_SENTENCES, "description": "What of them is not."},
        plan=_named("Plan"),
        requests={**_COUNT, "description": "Made of the source meanwhile; those of others may be among them."},
        bytes={**_COUNT, "description": "Received for them."},
    ),
    "RowGroup": _whole(
        path=_TEXT,
        crawl=_TEXT,
        subset=_TEXT,
        row_group=_COUNT,
        num_rows=_COUNT,
        total_byte_size=_or_null(_COUNT),
        file_offset=_or_null(_COUNT),
        total_compressed_size=_or_null(_COUNT),
        min_url_surtkey=_or_null(_TEXT),
        max_url_surtkey=_or_null(_TEXT),
        bounds_from=_TEXT,
        key_intervals=_KEYS,
        first_fetch=_or_null(_TIME),
        last_fetch=_or_null(_TIME),
    ),
    "RowGroupsAnswer": _whole(
        row_groups=_list(_named("RowGroup")),
        next={**_or_null(_TEXT), "description": "What to give as after, to get those that follow; null at the end."},
    ),
    "Coverage": _whole(
        crawl=_TEXT,
        subset=_TEXT,
        files_listed=_or_null(_COUNT),
        files_harvested=_COUNT,
        files_failed=_COUNT,
        requested={"type": "boolean", "description": "Whether a harvest asked for this subset."},
        row_groups=_COUNT,
        without_bounds={**_COUNT, "description": "Row groups of which no bounds of the keys are known."},
        num_rows=_COUNT,
        file_size=_COUNT,
    ),
    "StatusAnswer": _whole(
        coverage=_list(_named("Coverage")),
        sizes=_whole(store=_COUNT, catalogue=_COUNT),
        requests={**_COUNT, "description": "Made of the source since the server began."},
        bytes={**_COUNT, "description": "Received from it since then."},
        version=_TEXT,
    ),
}

_ERRORS = {
    "400": "A parameter is unknown, lacking, given too often, or has not its form.",
    "404": "There is no such crawl, or it is not harvested yet.",
    "422": "The parameters have their form, but there is no such question, it takes too much, or an answer might lack "
    "something and the server was told to give none such.",
    "503": "Too much is asked at the moment, or the source does not answer; Retry-After says when to come back.",
}
_PATIENCE = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}, "required": True}}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The document that describes operations."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Catalogue of Common Crawl's columnar index",
            "version": package_version(),
            "description": "Captures, and what finding them takes. Names are those of the columnar index's columns, "
            "times are UTC.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {each.path: {"get": _described(each)} for each in operations},
        "components": {"schemas": SCHEMAS},
    }


def _described(operation: Operation) -> dict[str, Any]:
    return {
        "operationId": operation.name,
        "summary": operation.about,
        "parameters": [each.documented for each in operation.parameters],
        "responses": {
            "200": {"description": "The answer.", "content": _json(operation.schema)},
            **{
                status: {"description": what, "content": _json("Error")}
                | ({"headers": _PATIENCE} if status == "503" else {})
                for status, what in _ERRORS.items()
            },
        },
    }


def _json(name: str) -> Schema:
    return {"application/json": {"schema": _named(name)}}
