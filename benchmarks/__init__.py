"""Benchmarks of requests, bytes and speed; see ``README.md``."""
