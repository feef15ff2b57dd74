"""Questions from many people at once, answered by a few catalogues that share one source."""

from catalogue.serving.questions import Asked, captures_of, plan_of, row_groups_of, status_of
from catalogue.serving.replay import Replayed, described, replay, text
from catalogue.serving.service import Service

__all__ = [
    "Asked",
    "Replayed",
    "Service",
    "captures_of",
    "described",
    "plan_of",
    "replay",
    "row_groups_of",
    "status_of",
    "text",
]
