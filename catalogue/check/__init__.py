"""Compare the store with its digests and the source, and the metadata database with the store."""
