"""Files of URLs or other patterns: text with one a line, or CSV; also gzipped."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from catalogue.errors import QueryError

_GZIP = b"\x1f\x8b"
_URL = "url"
_IN_URLS = set("./*:")


def patterns_in(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Read the patterns of a file, each with file name and line number for messages.

    Skips blank lines and lines that start with ``#``. A file is CSV if its first line has a field ``url``, or if its
    name ends so.

    Raises:
        QueryError: if it is not UTF-8 text, or CSV without a column ``url`` and with several others.
    """
    buffered = io.BufferedReader(file) if not hasattr(file, "peek") else file  # type: ignore[type-var]
    zipped = buffered.peek(len(_GZIP)).startswith(_GZIP)
    stream = gzip.GzipFile(fileobj=buffered) if zipped else buffered
    try:
        with io.TextIOWrapper(stream, "utf-8-sig", newline="") as lines:
            for number, text in _patterns(lines, file.name):
                if text and not text.startswith("#"):
                    yield f"{file.name}, line {number}", text
    except UnicodeDecodeError as error:
        raise QueryError(f"{file.name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (csv.Error, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise QueryError(f"{file.name} cannot be read: {error}") from error


def _patterns(lines: Iterator[str], name: str) -> Iterator[tuple[int, str]]:
    before = 0
    for first in lines:
        if first.strip() and not first.startswith("#"):
            break
        before += 1
    else:
        return
    with_semicolons = _URL in (field.strip().lower() for field in first.split(";"))
    delimiter = "\t" if "\t" in first else ";" if with_semicolons else ","
    header = [field.strip().lower() for field in next(csv.reader([first], delimiter=delimiter))]
    if _URL not in header and not name.lower().removesuffix(".gz").endswith((".csv", ".tsv")):
        yield from ((number, line.strip()) for number, line in enumerate(chain([first], lines), before + 1))
        return
    if _URL not in header and len(header) > 1:
        raise QueryError(f"{name} has no column url, but {', '.join(header)}; rename the column with the URLs to url")
    at = header.index(_URL) if _URL in header else 0
    without_header = _URL not in header and not _IN_URLS.isdisjoint(header[0])
    rows = csv.reader(chain([first] if without_header else [], lines), delimiter=delimiter)
    for row in rows:
        if row and not row[0].startswith("#"):
            yield before + rows.line_num + (not without_header), row[at].strip() if at < len(row) else ""
