"""The command line: each command parses, makes one call, and shows what came of it."""

from catalogue.cli.app import main

__all__ = ["main"]
