"""Fetch footers and page indexes into the store, and exchange snapshots of it."""
