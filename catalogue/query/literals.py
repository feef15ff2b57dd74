"""Values as SQL literals.

DuckDB imports pandas for a statement with a parameter, which takes longer than most queries.
"""

import re


def literal(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value)
        case str():
            quoted = "'" + value.replace("'", "''") + "'"
            return quoted.replace("\0", "' || chr(0) || '") if "\0" in quoted else quoted
        case bytes():
            return "unhex('" + value.hex() + "')"
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
    raise TypeError(type(value).__name__)


def file_literal(path: object) -> str:
    """Return the name of a file as an SQL literal for functions that read files, where ``*``, ``?`` and ``[`` match."""
    return literal(re.sub(r"([*?\[])", r"[\1]", str(path)))


def with_literals(sql: str, *parameters: object) -> str:
    """Replace ``$1``, ``$2`` and so on by literals."""
    return re.sub(r"\$([0-9]+)", lambda found: literal(parameters[int(found[1]) - 1]), sql)
