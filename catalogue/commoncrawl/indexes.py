"""Names of the two indexes of a crawl, and of columns of the columnar index."""

COLUMNAR, CDX = "columnar", "cdx"
INDEXES = (COLUMNAR, CDX)
AUTO = "auto"


KEY_COLUMN = "url_surtkey"
PATH_COLUMNS = ("crawl", "subset")
"""Columns that are in a file's path alone."""
