"""Lazy queries of other engines: their conditions, columns and limits become a query."""
