"""Compare the store with its digests and the source, the metadata database with the store, and the two indexes."""
