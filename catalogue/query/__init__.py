"""Queries, filters, ``--where``, deduplication."""
