"""Questions from many people at once, answered by a few catalogues that share one source."""

from catalogue.serving.cdx import Page, begun, has_captures, page_of, part_of
from catalogue.serving.crawls import crawl_named, elsewhen
from catalogue.serving.questions import Asked, captures_of, plan_of, row_groups_of, status_of
from catalogue.serving.replay import Replayed, described, replay, text
from catalogue.serving.service import Service

__all__ = [
    "Asked",
    "Page",
    "Replayed",
    "Service",
    "begun",
    "captures_of",
    "crawl_named",
    "described",
    "elsewhen",
    "has_captures",
    "page_of",
    "part_of",
    "plan_of",
    "replay",
    "row_groups_of",
    "status_of",
    "text",
]
