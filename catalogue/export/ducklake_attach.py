"""Attach a lake to DuckDB with installed extensions; none is downloaded."""

import re
from importlib.util import find_spec
from pathlib import Path

import duckdb

from catalogue.export.ducklake_database import backend_of
from catalogue.metadata_db.connection import quoted
from catalogue.query.literals import literal
from catalogue.settings import install_command

NAME = "cc"
"""The attached database."""
LAKE_NAME = "captures.ducklake"
"""Default name of the lake in the data folder."""

NO_DOWNLOADS = "SET autoinstall_known_extensions = false"
"""Run this before ``attach_statements`` if extensions may be missing."""

_NAMED = re.compile(rf"\b{NAME}\b", re.IGNORECASE)
_CAPTURES = re.compile(rf"\b{NAME}\s*\.\s*\"?(?:captures|snapshots)", re.IGNORECASE)
_WHEEL = "duckdb_extension_{}"


def names_lake(sql: str) -> bool:
    """Whether SQL may refer to an attached lake."""
    return bool(_NAMED.search(sql))


def names_captures(sql: str) -> bool:
    """Whether SQL certainly refers to it: ``cc`` can also be another name."""
    return bool(_CAPTURES.search(sql))


def data_path(source: str) -> str:
    """Return an address or folder as absolute path with a slash at its end."""
    place = source if "://" in source else str(Path(source).absolute())
    return place if place.endswith("/") else f"{place}/"


def attach_statements(path: Path, source: str, version: str = duckdb.__version__) -> list[str]:
    """Return the SQL that attaches a lake read-only, with the files of a source.

    If a statement fails, do not run the next: DuckDB could download an extension; see ``NO_DOWNLOADS``.

    ``version`` is that of the DuckDB that runs them, such as 1.5.5: extensions are built for one version.
    """
    backend, where = backend_of(path), data_path(source)
    needed = ["ducklake", *(["sqlite_scanner"] if backend == "sqlite" else []), *(["httpfs"] if "://" in where else [])]
    place = literal(f"ducklake:{'sqlite:' if backend == 'sqlite' else ''}{path.absolute()}")
    return [
        *(f"LOAD {_extension(name, version)}" for name in needed),
        f"ATTACH {place} AS {NAME} (READ_ONLY, DATA_PATH {literal(where)}, OVERRIDE_DATA_PATH true)",
    ]


def _extension(name: str, version: str) -> str:
    """Return an extension for LOAD: the file of an installed wheel, else its name."""
    wheel = find_spec(_WHEEL.format(name))
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        file = Path(folder) / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
        if file.is_file():
            return quoted(file)
    return name


def attach(connection: duckdb.DuckDBPyConnection, path: Path, source: str) -> str | None:
    """Attach a lake to a connection.

    Returns:
        None; if that failed, a message with the reason and what to do.
    """
    try:
        for statement in (NO_DOWNLOADS, *attach_statements(path, source)):
            connection.execute(statement)
    except duckdb.Error as error:
        return not_attached(path, str(error))
    return None


def not_attached(path: Path, why: str) -> str:
    """Return the message for a lake that could not be attached, from DuckDB's error."""
    first = next(iter(why.strip().splitlines()), "DuckDB gives no reason")
    if "xtension" in why and ("not found" in why or "INSTALL" in why):
        return (
            f"{path.name} is not attached, because extensions of DuckDB are missing; run: "
            f"{install_command('lake')}; or in DuckDB: INSTALL ducklake; INSTALL sqlite; INSTALL httpfs"
        )
    return f"{path.name} is not attached ({first}); run: catalogue export ducklake"
