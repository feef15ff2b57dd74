"""Rows on their way into a table: as JSON in a temporary file, which DuckDB reads without pandas."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from catalogue.atomic_files import create
from catalogue.query.literals import literal

_NAME = "incoming.json"
_BUFFER = 1 << 20


@contextmanager
def incoming(folder: Path, kinds: Mapping[str, str], lines: Iterable[bytes]) -> Iterator[str]:
    """Write rows to a file, and yield what a statement can select them from.

    Args:
        folder: for the file.
        kinds: DuckDB's types by column; columns of type BLOB are given and read as hexadecimal digits.
        lines: of JSON, one for each row.
    """
    path = folder / _NAME
    longest = 0
    with create(path, buffering=_BUFFER) as file:
        for line in lines:
            longest = max(longest, len(line))
            file.write(line)
    readable = {name: "VARCHAR" if kind == "BLOB" else kind for name, kind in kinds.items()}
    columns = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in readable.items())
    # DuckDB's buffers have twice this size; by default 32 MB.
    options = f"format = 'newline_delimited', maximum_object_size = {max(longest, _BUFFER)}"
    source = f"read_json({literal(str(path))}, {options}, columns = {{{columns}}})"
    blobs = [f"unhex({name}) AS {name}" for name, kind in kinds.items() if kind == "BLOB"]
    try:
        yield f"(SELECT * REPLACE ({', '.join(blobs)}) FROM {source})" if blobs else source  # noqa: S608 - literals
    finally:
        path.unlink()
