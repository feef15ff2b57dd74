"""The store: raw footers and page indexes in one SQLite file."""
