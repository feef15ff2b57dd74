"""The DuckDB catalogue, derived from the store."""

from catalogue.metadata_db.candidates import MARGIN, Candidate, Candidates, MetadataSnapshot
from catalogue.metadata_db.compare import differences, make_anew, paths_shown, up_to_date
from catalogue.metadata_db.connection import answerable, connect, queries_folder, quoted, readable, reading, statement
from catalogue.metadata_db.export_rows import lake_files, write_table
from catalogue.metadata_db.file_rows import are_of, packed
from catalogue.metadata_db.gaps import Gaps, gaps
from catalogue.metadata_db.refresh import STORAGE_VERSION, connect_fresh, is_fresh, reading_fresh, refresh
from catalogue.metadata_db.suspects import alike, intruders

__all__ = [
    "MARGIN",
    "STORAGE_VERSION",
    "Candidate",
    "Candidates",
    "Gaps",
    "MetadataSnapshot",
    "alike",
    "answerable",
    "are_of",
    "connect",
    "connect_fresh",
    "differences",
    "gaps",
    "intruders",
    "is_fresh",
    "lake_files",
    "make_anew",
    "packed",
    "paths_shown",
    "queries_folder",
    "quoted",
    "readable",
    "reading",
    "reading_fresh",
    "refresh",
    "statement",
    "up_to_date",
    "write_table",
]
