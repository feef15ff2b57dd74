"""Tables, as Markdown, so that they can be kept as they are printed."""

import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version

_LIBRARIES = ("aiohttp", "duckdb", "fsspec", "pandas", "pyarrow", "sqlitedict")

Value = str | int | float | None


def machine() -> str:
    """Where and with what it is measured."""
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    load = f"; load before the start {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{time.strftime('%Y-%m')}; {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}; "
        f"{libraries}{load}"
    )


def table(title: str, names: Sequence[str], rows: Sequence[Sequence[Value]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    shown = [[_text(value) for value in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(names, *shown, strict=True)]
    rule = [f"{'-' * (width - 1)}:" if at else "-" * width for at, width in enumerate(widths)]
    print(f"\n{title}\n")
    for row in [names, rule, *shown]:
        first, *others = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        print(f"| {' | '.join([first.lstrip().ljust(widths[0]), *others])} |")
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell how far it is."""
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
