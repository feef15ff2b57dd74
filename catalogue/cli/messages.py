"""Print messages for the user, with complete commands."""

import itertools
import re
import shlex
import shutil
import sys
import textwrap

import click

from catalogue.cli.command_names import COMMANDS
from catalogue.formatting import printable_lines

_PROPOSED = re.compile(rf"\bcatalogue ({'|'.join(COMMANDS)})\b")
"""A command in a message."""
_TO_RUN = re.compile(r"(?<=run: )[^;\n]+")
"""A command to copy."""
given_options: dict[str, object] = {}
"""Options of the running command that the commands in its messages need, too."""


def show(text: str, *, err: bool = False) -> None:
    """Print a message without control characters, and with complete commands."""
    echo(printable_lines(complete_commands(text)), err=err)


def echo(text: str, *, err: bool) -> None:
    click.echo(wrapped(text) if (sys.stderr if err else sys.stdout).isatty() else text, err=err)


def wrapped(text: str) -> str:
    """Break lines at the width of the terminal, but not in commands, so that they can be copied."""
    unbroken = _TO_RUN.sub(lambda match: match[0].replace(" ", "\0"), text)
    width = shutil.get_terminal_size().columns
    lines = (
        textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
        for line in unbroken.split("\n")
    )
    return "\n".join(itertools.chain.from_iterable(lines)).replace("\0", " ")


def warn(text: str) -> None:
    """Print a message even with --quiet."""
    show(f"catalogue: {text}", err=True)


def complete_commands(text: str) -> str:
    """Add --data, --source and --table of this command to the commands in a message."""

    def with_options(match: re.Match[str]) -> str:
        rest = re.split("[;\n]", text[match.end() :], maxsplit=1)[0]
        missing = {
            option: value
            for option, value in given_options.items()
            if value is not None and option not in rest and (option, match[1]) != ("--table", "crawls")
        }
        return " ".join(["catalogue", *(f"{option} {shlex.quote(str(v))}" for option, v in missing.items()), match[1]])

    return _PROPOSED.sub(with_options, text)
