"""The command line: each command parses its options, makes one call and prints the result."""

from catalogue.cli.process import main

__all__ = ["main"]
