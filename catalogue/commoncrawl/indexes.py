"""Names of the two indexes of a crawl."""

COLUMNAR, CDX = "columnar", "cdx"
INDEXES = (COLUMNAR, CDX)
AUTO = "auto"
"""Selects the cheaper index."""
