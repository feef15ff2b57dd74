"""Attaching a lake to DuckDB, by extensions that are there; none is ever downloaded."""

import re
from importlib.util import find_spec
from pathlib import Path

import duckdb

from catalogue.export.ducklake_database import backend_of
from catalogue.metadata_db.connection import quoted
from catalogue.query.where import literal
from catalogue.settings import install_command

NAME = "cc"
"""Under which it is attached."""
LAKE_NAME = "captures.ducklake"
"""Its file in the folder of the catalogue."""

NO_DOWNLOADS = "SET autoinstall_known_extensions = false"
"""What to run before ``attach_statements`` where it is not known whether they work."""

_NAMED = re.compile(rf"\b{NAME}\b", re.IGNORECASE)
_CAPTURES = re.compile(rf"\b{NAME}\s*\.\s*\"?(?:captures|snapshots)", re.IGNORECASE)
_WHEEL = "duckdb_extension_{}"


def names_lake(sql: str) -> bool:
    """Whether SQL speaks of what may be an attached lake."""
    return bool(_NAMED.search(sql))


def names_captures(sql: str) -> bool:
    """Whether SQL surely speaks of it: ``cc`` may be anything's name."""
    return bool(_CAPTURES.search(sql))


def data_path(source: str) -> str:
    """Where files of a source are, with a slash at the end.

    Args:
        source: an address, or a folder.
    """
    place = source if "://" in source else str(Path(source).absolute())
    return place if place.endswith("/") else f"{place}/"


def attach_statements(path: Path, source: str, version: str = duckdb.__version__) -> list[str]:
    """The SQL that attaches a lake, to be read only, with files where the source has them.

    Each statement needs those before it: what is not loaded, DuckDB might fetch by itself; see ``NO_DOWNLOADS``.

    Args:
        path: of the lake.
        source: an address, or a folder.
        version: of the DuckDB that is to run it, such as 1.5.5: extensions are made for one.

    Raises:
        QueryError: if the path is that of something else.
    """
    kept_in, where = backend_of(path), data_path(source)
    needed = ["ducklake", *(["sqlite_scanner"] if kept_in == "sqlite" else []), *(["httpfs"] if "://" in where else [])]
    place = literal(f"ducklake:{'sqlite:' if kept_in == 'sqlite' else ''}{path.absolute()}")
    return [
        *(f"LOAD {_extension(name, version)}" for name in needed),
        f"ATTACH {place} AS {NAME} (READ_ONLY, DATA_PATH {literal(where)}, OVERRIDE_DATA_PATH true)",
    ]


def _extension(name: str, version: str) -> str:
    """An extension as LOAD takes it: the file of an installed wheel, else the name of one that was installed."""
    wheel = find_spec(_WHEEL.format(name))
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        file = Path(folder) / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
        if file.is_file():
            return quoted(file)
    return name


def attach(connection: duckdb.DuckDBPyConnection, path: Path, source: str) -> str | None:
    """Attach a lake to a connection.

    Returns:
        Why it could not be, and what to do, in a sentence; None if it was.

    Raises:
        QueryError: if the path is that of something else.
    """
    try:
        for statement in (NO_DOWNLOADS, *attach_statements(path, source)):
            connection.execute(statement)
    except duckdb.Error as error:
        return not_attached(path, str(error))
    return None


def not_attached(path: Path, why: str) -> str:
    """What to tell of a lake that could not be attached, by DuckDB's own words."""
    first = next(iter(why.strip().splitlines()), "DuckDB does not say why")
    if "xtension" in why and ("not found" in why or "INSTALL" in why):
        return (
            f"{path.name} is not attached, because DuckDB lacks extensions for it; run: "
            f"{install_command('lake')}; or in DuckDB: INSTALL ducklake; INSTALL sqlite; INSTALL httpfs"
        )
    return f"{path.name} is not attached ({first}); run: catalogue export ducklake"
