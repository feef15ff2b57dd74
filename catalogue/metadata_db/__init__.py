"""The DuckDB database of what is stored, derived from the store."""

from catalogue.metadata_db.candidates import MARGIN, Candidate, Candidates, MetadataSnapshot
from catalogue.metadata_db.compare import problems, rebuild, suspects
from catalogue.metadata_db.connection import (
    answerable,
    connect,
    open_early,
    queries_folder,
    quoted,
    readable,
    reading,
    statement,
)
from catalogue.metadata_db.export_rows import lake_files, write_table
from catalogue.metadata_db.file_rows import are_of, of_version, packed
from catalogue.metadata_db.gaps import Gaps, gaps
from catalogue.metadata_db.refresh import STORAGE_VERSION, connect_fresh, is_fresh, open_bounds, reading_fresh, refresh

__all__ = [
    "MARGIN",
    "STORAGE_VERSION",
    "Candidate",
    "Candidates",
    "Gaps",
    "MetadataSnapshot",
    "answerable",
    "are_of",
    "connect",
    "connect_fresh",
    "gaps",
    "is_fresh",
    "lake_files",
    "of_version",
    "open_bounds",
    "open_early",
    "packed",
    "problems",
    "queries_folder",
    "quoted",
    "readable",
    "reading",
    "reading_fresh",
    "rebuild",
    "refresh",
    "statement",
    "suspects",
    "write_table",
]
