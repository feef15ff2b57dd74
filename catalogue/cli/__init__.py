"""The command line: each command parses its options, makes one call and prints the result."""

from importlib import import_module
from typing import NoReturn

from catalogue.cli.process import run_command


def main() -> NoReturn:
    """Run the command line and exit.

    Exit status: 0 done; 1 partly done, or no such file; 2 invalid arguments; 70 internal error; 74 disk failure; 75 try
    again later; 129, 130 or 143 stopped; 141 standard output was closed.
    """
    run_command(lambda: import_module("catalogue.cli.app").run())
