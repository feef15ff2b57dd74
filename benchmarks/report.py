"""Tables in Markdown, and a description of the machine."""

import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

_LIBRARIES = ("commoncrawl-catalogue", "aiohttp", "duckdb", "fsspec", "pandas", "pyarrow", "sqlitedict")

Value = str | int | float | None


def machine() -> str:
    """Describe date, machine and versions."""
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    load = f"; load before the start {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{time.strftime('%Y-%m-%d')}; {os.cpu_count()} cores, {_system()}, Python {platform.python_version()}; "
        f"{libraries}{load}"
    )


class Neighbours:
    """CPU time taken by other virtual machines on the same hardware."""

    def __init__(self) -> None:
        self._before = _ticks()

    def describe(self) -> str:
        """Return the share since construction as a clause; empty where the system has no such counter."""
        after = _ticks()
        if not (after and self._before):
            return ""
        stolen, everything = (now - then for now, then in zip(after, self._before, strict=True))
        return f"; {stolen / max(1, everything):.0%} of the processors' time was taken by other machines"


def _ticks() -> tuple[int, int] | None:
    """Return stolen and total time since boot; see proc_stat(5)."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return None
    return ticks[7], sum(ticks)


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def table(title: str, names: Sequence[str], rows: Sequence[Sequence[Value]]) -> None:
    """Print a title and a table."""
    print(f"\n### {title}\n\n{markdown(names, rows)}", flush=True)


def markdown(names: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    """Format a table; the first column is text, the others are numbers."""
    shown = [[_text(value) for value in row] for row in rows]
    widths = [max(3, *(len(text) for text in column)) for column in zip(names, *shown, strict=True)]
    rule = [f"{'-' * (width - 1)}:" if at else "-" * width for at, width in enumerate(widths)]
    lines = []
    for row in [names, rule, *shown]:
        first, *others = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        lines.append(f"| {' | '.join([first.lstrip().ljust(widths[0]), *others])} |")
    return "\n".join(lines)


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def _text(value: Value) -> str:
    match value:
        case None:
            return "-"
        case int():
            return f"{value:,}"
        case float() if abs(value) >= 100:
            return f"{value:,.0f}"
        case float():
            return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}"
    return str(value)
