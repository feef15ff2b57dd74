"""The DuckDB catalogue, derived from the store."""

from catalogue.views.build import STORAGE_VERSION, connect_fresh, is_fresh, refresh
from catalogue.views.candidates import MARGIN, Candidate, Candidates, Shown
from catalogue.views.exported import lake_files, write_table
from catalogue.views.facts import packed
from catalogue.views.gaps import Gaps, gaps
from catalogue.views.opened import answerable, connect, queries_folder, quoted, statement

__all__ = [
    "MARGIN",
    "STORAGE_VERSION",
    "Candidate",
    "Candidates",
    "Gaps",
    "Shown",
    "answerable",
    "connect",
    "connect_fresh",
    "gaps",
    "is_fresh",
    "lake_files",
    "packed",
    "queries_folder",
    "quoted",
    "refresh",
    "statement",
    "write_table",
]
