"""Names of columns of Common Crawl's index."""

KEY_COLUMN = "url_surtkey"
"""The column that index files are sorted by."""
PATH_COLUMNS = ("crawl", "subset")
"""Columns that are in a file's path and not in the file."""
