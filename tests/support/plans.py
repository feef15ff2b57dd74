"""Plans of files that no store has."""

from collections.abc import Sequence

from catalogue.plan.plan import ReadPlan
from catalogue.plan.planner import plan_files
from catalogue.plan.requests import Cost
from catalogue.query.resolved_query import ResolvedQuery
from catalogue.tables.crawl_table import FileMetadata


def plan_reads(query: ResolvedQuery, files: Sequence[FileMetadata], *, cost: Cost, considered: int) -> ReadPlan:
    """Plan a query of files of one crawl; ``considered`` is the number of their row groups."""
    crawl = files[0].file.crawl
    return ReadPlan(query, cost, (plan_files(query, crawl, files, cost, considered, 1.0),))
