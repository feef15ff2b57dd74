"""A DuckLake: one table over all index files where they are, for any DuckDB."""

from catalogue.ducklake.attaching import (
    LAKE_NAME,
    NO_DOWNLOADS,
    attach,
    attach_statements,
    data_path,
    names_captures,
    names_lake,
    not_attached,
)
from catalogue.ducklake.database import BACKENDS
from catalogue.ducklake.exporting import crawls_in, export_lake

__all__ = [
    "BACKENDS",
    "LAKE_NAME",
    "NO_DOWNLOADS",
    "attach",
    "attach_statements",
    "crawls_in",
    "data_path",
    "export_lake",
    "names_captures",
    "names_lake",
    "not_attached",
]
