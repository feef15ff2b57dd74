"""The format of an output."""

import sys
from pathlib import Path

from catalogue.cli.options import CAPTURE_FORMATS, check_folder
from catalogue.cli.tables import options_of_command
from catalogue.errors import QueryError

_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "url"}
_BY_SUFFIX |= {f".{format_}": format_ for format_ in ("json", "csv", "tsv", "cdxj", "parquet", "arrow", "arrows")}
_BINARY = {"parquet", "arrow", "arrows"}
SUFFIXES = {format_: suffix.removeprefix(".") for suffix, format_ in reversed(_BY_SUFFIX.items())}


def format_for(requested: str | None, output: Path | None) -> str:
    """Return the requested format, or the one that the output implies.

    Raises:
        QueryError: if there is none, or the output cannot have it.
    """
    if requested == "table" and output is not None:
        raise QueryError(f"--format table cannot be written to a file; use {', '.join(CAPTURE_FORMATS[1:])}")
    if output is not None:
        check_folder(output)
    terminal = output is None and sys.stdout.isatty()
    if output is None:
        format_ = requested or ("table" if terminal else "jsonl")
    else:
        format_ = requested or _BY_SUFFIX.get(Path(output.name.removesuffix(".gz")).suffix, "")
    if not format_:
        endings = ", ".join(sorted(_BY_SUFFIX))
        otherwise = "; or add --format" if "--format" in options_of_command() else ""
        raise QueryError(f"the name {output} does not say its format; use an ending: {endings}{otherwise}")
    if format_ in _BINARY and terminal:
        raise QueryError(f"--format {format_} cannot be printed on a terminal; add -o FILE")
    if format_ in _BINARY and output is not None and output.suffix == ".gz":
        raise QueryError(f"{format_} files are compressed already; use a name without .gz")
    return format_
