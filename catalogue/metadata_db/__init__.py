"""The DuckDB database of what is stored, derived from the store."""
