"""Archived pages: WARC and ARC records, their text, links and metadata."""
