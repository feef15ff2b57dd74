"""The DuckDB catalogue, derived from the store."""

from catalogue.views.candidates import MARGIN, Candidate, Candidates, Shown
from catalogue.views.compared import differences, make_anew, paths_shown, up_to_date
from catalogue.views.exported import lake_files, write_table
from catalogue.views.facts import are_of, packed
from catalogue.views.fresh import STORAGE_VERSION, connect_fresh, is_fresh, reading_fresh, refresh
from catalogue.views.gaps import Gaps, gaps
from catalogue.views.opened import answerable, connect, queries_folder, quoted, readable, reading, statement
from catalogue.views.suspects import alike, intruders

__all__ = [
    "MARGIN",
    "STORAGE_VERSION",
    "Candidate",
    "Candidates",
    "Gaps",
    "Shown",
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
