"""Query + footers and page indexes → the exact byte ranges that answer it.

A plan is a frozen value: it can be printed, counted and compared with nothing fetched. Its waves are what can go out
together: one where files are sorted, two where only the keys of some pages tell which pages of other columns are
wanted.
"""

from catalogue.plan.archives import RecordFetch, record_fetches
from catalogue.plan.choice import HeldFile, key_indexes
from catalogue.plan.cost import Cost
from catalogue.plan.fetches import MAX_FETCH, Fetch, Part, Purpose, fetches
from catalogue.plan.planning import narrowed, plan_reads
from catalogue.plan.reads import Awaited, ColumnRead, FileRead, ReadPlan, RowGroupRead
from catalogue.plan.slicing import sliced

__all__ = [
    "MAX_FETCH",
    "Awaited",
    "ColumnRead",
    "Cost",
    "Fetch",
    "FileRead",
    "HeldFile",
    "Part",
    "Purpose",
    "ReadPlan",
    "RecordFetch",
    "RowGroupRead",
    "fetches",
    "key_indexes",
    "narrowed",
    "plan_reads",
    "record_fetches",
    "sliced",
]
