"""Lazy queries of other engines."""
