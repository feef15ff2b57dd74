"""The header of a list of URLs, by which a list is CSV whatever its name is."""

import csv

URL = "url"


def is_skipped(line: str) -> bool:
    return not line.strip() or line.startswith("#")


def header_of(line: str, *names: str, tabs: bool = False) -> tuple[str, list[str]]:
    """Return the delimiter of a list and the fields of its first line; ``names`` are possible columns of its URLs."""
    delimiter, fields = ",", [line.strip()]
    try:
        for delimiter in "\t" if tabs or "\t" in line else ",;,":  # the last one if none makes such a column
            fields = [field.strip() for field in next(csv.reader([line], delimiter=delimiter))]
            if has_column(fields, *names):
                break
    except csv.Error:  # a field has more than 128 KiB
        pass
    return delimiter, fields


def has_column(fields: list[str], *names: str) -> bool:
    """Return whether fields of a first line include the column ``url``, in any case, or one of ``names``."""
    return any(field.lower() == URL or field in names for field in fields)


def cells_differ(line: int | str, expected: int | str, found: int | str) -> str:
    advice = 'quote a value that contains the delimiter, as in "http://example.com/a,b"'
    return f"line {line} has {found} cells, but the header has {expected}; {advice}"
