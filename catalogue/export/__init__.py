"""Table formats for other engines: Iceberg and DuckLake."""
