"""Parquet's metadata: thrift, footers, page indexes, page headers, key ranges, and spliced files."""
