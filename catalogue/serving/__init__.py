"""Questions from many people at once, answered by a few catalogues that share one source."""

from catalogue.serving.cdx import Page, begun, has_captures, page_of, part_of
from catalogue.serving.crawls import elsewhen
from catalogue.serving.service import Service

__all__ = ["Page", "Service", "begun", "elsewhen", "has_captures", "page_of", "part_of"]
