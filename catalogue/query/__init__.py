"""Queries: what a user asks, filters, ``--where``, deduplication."""
