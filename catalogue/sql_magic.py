"""The magic ``%%catalogue``: cells of SQL in notebooks."""

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import duckdb

from catalogue.catalogue import Catalogue
from catalogue.errors import QueryError
from catalogue.export.ducklake_sql import connect_for
from catalogue.metadata_db.connection import answerable

if TYPE_CHECKING:
    import pandas as pd


def load(shell: Any) -> None:  # noqa: ANN401 - an InteractiveShell of IPython, which need not be installed
    """Register the magic in a shell."""

    def run(line: str, cell: str | None = None) -> "pd.DataFrame":
        """Run SQL over the views of ``Catalogue.sql`` and over captures and DataFrames in variables.

        ``%catalogue SQL`` is one line of SQL. ``%%catalogue`` begins a cell of SQL; after it may stand the variable of
        the catalogue, if there are several.
        """
        name, sql = ("", line) if cell is None else (line.strip(), cell)
        return _answer(_catalogue(name, shell.user_ns), sql, shell.user_ns)

    shell.register_magic_function(run, "line_cell", "catalogue")


def _catalogue(name: str, variables: dict[str, Any]) -> Catalogue:
    # IPython has the latest results in variables with a _ as well.
    found = {key: value for key, value in variables.items() if isinstance(value, Catalogue) and key[:1] != "_"}
    if name in found:
        return found[name]
    if name or not found:
        raise QueryError(f"there is no catalogue {name}".rstrip() + "; write cat = catalogue.open(), then %%catalogue")
    first = next(iter(found))
    if any(value is not found[first] for value in found.values()):
        raise QueryError(f"there are several catalogues: {', '.join(found)}; name one, such as: %%catalogue {first}")
    return found[first]


def _answer(catalogue: Catalogue, sql: str, variables: dict[str, Any]) -> "pd.DataFrame":
    if not sql.strip():
        raise QueryError("no SQL; write some after %catalogue, or below %%catalogue, such as: from crawls")
    with connect_for(catalogue.session, sql) as connection, answerable():
        views = {name for (name,) in connection.sql("SELECT view_name FROM duckdb_views()").fetchall()}
        for name in {*re.findall(r"\w+", sql)} & variables.keys() - views:
            value = variables[name]
            if hasattr(value, "__arrow_c_stream__") or hasattr(value, "collect_schema"):  # the latter is lazy
                with suppress(duckdb.Error):  # a Series, or no columns; the word may be a column of the SQL
                    connection.register(name, value)
        return connection.execute(sql).df()
