"""The names of the commands; messages for the user, with complete commands."""

import itertools
import os
import re
import shlex
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import click

from catalogue.formatting import printable_lines

COMMANDS = {
    "crawls": "harvest_command",
    "harvest": "harvest_command",
    "backfill": "harvest_command",
    "status": "status_command",
    "forget": "harvest_command",
    "check": "status_command",
    "doctor": "status_command",
    "plan": "query_command",
    "query": "query_command",
    "get": "get_command",
    "site": "get_command",
    "join": "join_command",
    "fetch": "fetch_command",
    "sample": "sample_command",
    "old-index": "query_command",
    "export": "export_command",
    "pull": "export_command",
    "verify": "status_command",
    "serve": "serve_command",
    "mcp": "serve_command",
    "sql": "sql_command",
    "demo": "serve_command",
    "completion": "completion",
}

SYNONYMS = {
    "download": "fetch",
    **dict.fromkeys(["cat", "open", "show", "wget", "curl"], "get"),
    **dict.fromkeys(["search", "find", "lookup"], "query"),
    **dict.fromkeys(["delete", "remove", "rm"], "forget"),
    "list": "crawls",
    "--format": "--text",
    "--json": "--format",
    **dict.fromkeys(["-o", "--output"], "--save"),
    **dict.fromkeys(["--since", "--after"], "--from"),
    **dict.fromkeys(["--until", "--before"], "--to"),
}
"""Names of commands and options of other tools, or of our other commands, for the same, to suggest ours."""


_PROPOSED = re.compile(rf"\bcatalogue ({'|'.join(COMMANDS)})\b")
_TO_RUN = re.compile(r"(?<=run: )[^;\n]+")
_ARGUMENT = re.compile(
    r"\b(answer|columns|crawls|exact_url|follow|how|index|latest|main_content|match|most|on|read_subset|source)="
    r"('[^']*'|True|False|$)"
)
"""An argument of Python in a message, or its name at the end of a message."""
_OPTIONS = {"crawls": "crawl", "most": "max-size"}
"""Options with other names than their arguments."""
_WITHOUT_TABLE = {"crawls", "doctor"}
"""Commands of messages that refuse --table."""
given_options: dict[str, object] = {}
"""Options of the running command that the commands in its messages need, too."""


def options_of_command() -> set[str]:
    context = click.get_current_context(silent=True)
    return {option for each in (context.command.params if context else ()) for option in each.opts}


def show(text: str, *, err: bool = False) -> None:
    """Print a message without control characters, and with complete commands."""
    echo(printable_lines(for_command_line(text)), err=err)


def for_command_line(text: str) -> str:
    return complete_commands(with_options(text))


def echo(text: str, *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout  # by itself, click would write past the stream of a progress bar
    click.echo(wrapped(text) if stream.isatty() else text, stream)


def wrapped(text: str, width: int | None = None, margin: str = "") -> str:
    """Break lines at a width, by default the terminal's, but not in commands, so that they can be copied."""
    unbroken = _TO_RUN.sub(lambda match: match[0].replace(" ", "\0"), text)
    wrapper = textwrap.TextWrapper(
        width or shutil.get_terminal_size().columns, margin, margin, break_long_words=False, break_on_hyphens=False
    )
    lines = (wrapper.wrap(line) or [""] for line in unbroken.split("\n"))
    return "\n".join(itertools.chain.from_iterable(lines)).replace("\0", " ")


_DAY = 24 * 3600.0


def is_new_tip(name: str, folder: Path) -> bool:
    """Return whether a tip was not given yet in this terminal's session; ``folder`` has an empty file for each one."""
    session = os.getsid(0) if hasattr(os, "getsid") else os.getppid()
    given = folder / "tips" / f"{session}-{name}"
    try:
        given.parent.mkdir(parents=True, exist_ok=True)
        for each in given.parent.iterdir():  # numbers of sessions are used again
            if time.time() - each.stat().st_mtime > _DAY:
                each.unlink()
        given.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def warn(text: str) -> None:
    """Print a message even with --quiet."""
    show(f"catalogue: {text}", err=True)


def report_incomplete(sentence: str, problems: Collection[str]) -> int:
    """Print why a result is incomplete; return the exit status of the command."""
    for problem, times in Counter(problems).items():
        warn(f"{sentence}: {problem}" + (f" ({times:,} times)" if times > 1 else ""))
    return int(bool(problems))


def with_options(text: str) -> str:
    """Write arguments as options: ``index='cdx'`` becomes ``--index cdx``, and ``follow=False`` ``--no-follow``.

    The name alone, as in ``query without columns=``, becomes ``--columns``.
    """

    def option(match: re.Match[str]) -> str:
        name, value = _OPTIONS.get(match[1], match[1].replace("_", "-")), match[2]
        if value in {"True", "False"}:
            return f"--{'no-' if value == 'False' else ''}{name}"
        return f"--{name} {value[1:-1]}" if value else f"--{name}"

    return _ARGUMENT.sub(option, text)


def complete_commands(text: str) -> str:
    """Add --data, --source and --table of this command to the commands in a message."""

    def with_options(match: re.Match[str]) -> str:
        rest = re.split("[;\n]", text[match.end() :], maxsplit=1)[0]
        missing = {
            option: value
            for option, value in given_options.items()
            if value is not None and option not in rest and not (option == "--table" and match[1] in _WITHOUT_TABLE)
        }
        return " ".join(["catalogue", *(f"{option} {shlex.quote(str(v))}" for option, v in missing.items()), match[1]])

    return _PROPOSED.sub(with_options, text)
