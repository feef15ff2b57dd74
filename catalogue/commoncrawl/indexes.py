"""Names of the two indexes of a crawl, and of columns of the columnar index."""

COLUMNAR, CDX = "columnar", "cdx"
INDEXES = (COLUMNAR, CDX)
AUTO = "auto"
"""Selects the cheaper index."""


KEY_COLUMN = "url_surtkey"
"""The column that index files are sorted by."""
PATH_COLUMNS = ("crawl", "subset")
"""Columns that are in a file's path alone."""
