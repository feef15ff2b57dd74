"""Rows on their way into a table: as JSON in a temporary file, which DuckDB reads without pandas."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from catalogue.atomic_files import create
from catalogue.query.literals import literal

_NAME = "incoming.json"


@contextmanager
def incoming(folder: Path, kinds: Mapping[str, str], lines: Iterable[bytes]) -> Iterator[str]:
    """Write rows to a file, and yield what a statement can select them from.

    Args:
        folder: for the file.
        kinds: DuckDB's types by column; columns of type BLOB are given and read as hexadecimal digits.
        lines: of JSON, one for each row.
    """
    path = folder / _NAME
    with create(path) as file:
        file.writelines(lines)
    readable = {name: "VARCHAR" if kind == "BLOB" else kind for name, kind in kinds.items()}
    columns = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in readable.items())
    source = f"read_json({literal(str(path))}, format = 'newline_delimited', columns = {{{columns}}})"
    blobs = [f"unhex({name}) AS {name}" for name, kind in kinds.items() if kind == "BLOB"]
    try:
        yield f"(SELECT * REPLACE ({', '.join(blobs)}) FROM {source})" if blobs else source  # noqa: S608 - literals
    finally:
        path.unlink()
