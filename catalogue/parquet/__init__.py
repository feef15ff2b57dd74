"""Parquet's metadata, decoded with bounds, and spliced files."""
