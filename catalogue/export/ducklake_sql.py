"""SQL over the metadata database, with the DuckLake of the data folder attached as ``cc``."""

import re
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import duckdb

from catalogue.commoncrawl.crawls import newest_first
from catalogue.errors import CatalogueError, NotHarvested, QueryError
from catalogue.export.ducklake_tables import backend_of
from catalogue.metadata_db.connection import answerable, quoted
from catalogue.metadata_db.connection import connect as open_database
from catalogue.metadata_db.refresh import refresh
from catalogue.query.literals import literal
from catalogue.reports import crawl_names, sql_rows
from catalogue.selection import select_stored
from catalogue.session import Session
from catalogue.settings import install_command

NAME = "cc"
LAKE_NAME = "captures.ducklake"
"""Default name of the lake in the data folder."""

NO_DOWNLOADS = "SET autoinstall_known_extensions = false"
"""Run this before ``attach_statements`` if extensions may be missing."""

_NAMED = re.compile(rf"\b{NAME}\b", re.IGNORECASE)
_CAPTURES = re.compile(rf"\b{NAME}\s*\.\s*\"?(?:captures|snapshots)", re.IGNORECASE)
"""Certainly of the lake; ``cc`` can also be another name."""
_WHEEL = "duckdb_extension_{}"


def add_column_chunks(session: Session, crawls: Iterable[str]) -> None:
    """Fill the view ``column_chunks`` for crawls; it has no others, so that it is small."""
    requested = set(select_stored(session, crawls))
    with session.database() as connection:
        rows = connection.execute("SELECT crawl FROM derived.tables WHERE column_chunks").fetchall()
    if requested - {crawl for (crawl,) in rows}:
        path = session.writable_database(changes=True)
        refresh(path, session.store, session.dataset, column_chunks=requested)


def data_path(source: str) -> str:
    """Return an address or folder as absolute path with a slash at its end."""
    place = source if "://" in source else str(Path(source).absolute())
    return place if place.endswith("/") else f"{place}/"


def attach_statements(path: Path, source: str, version: str = duckdb.__version__) -> list[str]:
    """Return the SQL that attaches a lake read-only, with the files of a source.

    If a statement fails, do not run the next: DuckDB could download an extension; see ``NO_DOWNLOADS``. Extensions are
    built for one ``version`` of DuckDB.
    """
    backend, where = backend_of(path), data_path(source)
    needed = ["ducklake", *(["sqlite_scanner"] if backend == "sqlite" else []), *(["httpfs"] if "://" in where else [])]
    place = literal(f"ducklake:{'sqlite:' if backend == 'sqlite' else ''}{path.absolute()}")
    return [
        *(f"LOAD {_extension(name, version)}" for name in needed),
        f"ATTACH {place} AS {NAME} (READ_ONLY, DATA_PATH {literal(where)}, OVERRIDE_DATA_PATH true)",
    ]


def _extension(name: str, version: str) -> str:
    wheel = find_spec(_WHEEL.format(name))
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        file = Path(folder) / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
        if file.is_file():
            return quoted(file)
    return name


def attach(connection: duckdb.DuckDBPyConnection, path: Path, source: str) -> str | None:
    """Attach a lake to a connection; return why that failed and what to do, or None."""
    try:
        for statement in (NO_DOWNLOADS, *attach_statements(path, source)):
            connection.execute(statement)
    except duckdb.Error as error:
        return not_attached(path, str(error))
    return None


def not_attached(path: Path, why: str) -> str:
    first = next(iter(why.strip().splitlines()), "DuckDB gives no reason")
    if "xtension" in why and ("not found" in why or "INSTALL" in why):
        return (
            f"{path.name} is not attached, because extensions for this version of DuckDB are missing; run: "
            f"{install_command('lake')}; or in DuckDB: INSTALL ducklake; INSTALL sqlite; INSTALL httpfs; "
            "catalogue doctor compares the versions"
        )
    return f"{path.name} is not attached ({first}); run: catalogue export ducklake"


def connect(session: Session, *, lake: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection; see ``Catalogue.connect``."""
    if lake:
        return connect_for(session, "FROM cc.captures")
    return open_database(session.updated_database())


def run_sql(session: Session, query: str) -> duckdb.DuckDBPyRelation:
    with answerable():
        return connect_for(session, query).sql(query)


def connect_for(session: Session, query: str) -> duckdb.DuckDBPyConnection:
    """Connect, with the DuckLake attached if the query names it.

    Raises:
        QueryError: if the query reads it, and it does not exist or cannot be attached.
    """
    connection = connect(session)
    if _NAMED.search(query) and (problem := _attach_lake(session, connection)):
        exists = lake_path(session).exists()
        if _CAPTURES.search(query):
            connection.close()
            raise QueryError(problem, call=None if exists else "export_ducklake()")
        if exists:
            session.notify(problem)
    return connection


def _attach_lake(session: Session, connection: duckdb.DuckDBPyConnection) -> str | None:
    path = lake_path(session)
    if not path.exists():
        return f"there is no {path} yet; run: catalogue export ducklake"
    try:
        problem = attach(connection, path, session.settings.source)
        if not problem and (missing := missing_in_lake(session)):
            session.notify(missing)
    except CatalogueError as error:
        return f"cannot attach cc: {error}"
    return problem


def lake_path(session: Session) -> Path:
    return session.data / LAKE_NAME


def missing_in_lake(session: Session) -> str | None:
    """Return a sentence about stored crawls that are missing or outdated in the DuckLake."""
    from catalogue.export.ducklake import crawls_in

    in_lake, sizes = crawls_in(lake_path(session)), dict[str, tuple[int, ...]]()
    missing = newest_first(set(crawl_names(session)) - in_lake.keys())
    if not missing:
        with suppress(NotHarvested):
            sql = (
                "SELECT crawl, count(*) AS files, sum(num_rows)::BIGINT AS num_rows, sum(file_size)::BIGINT AS bytes, "
                "sum(footer_size)::BIGINT AS footers FROM derived.files GROUP BY crawl"
            )
            sizes = {row.pop("crawl"): tuple(row.values()) for row in sql_rows(session, sql)}
        changed = newest_first(crawl for crawl in sizes if sizes[crawl] != in_lake[crawl])
        if not changed:
            return None
        missing = [f"what is new in {changed[0]}", *changed[1:]]
    more = f" and {len(missing) - 1} more" if missing[1:] else ""
    return f"{lake_path(session).name} does not have {missing[0]}{more}; run: catalogue export ducklake"
