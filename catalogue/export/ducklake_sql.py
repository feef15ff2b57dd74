"""SQL over the metadata database, with the DuckLake of the data folder attached as ``cc``."""

from contextlib import suppress
from pathlib import Path

import duckdb

from catalogue.commoncrawl.crawls import newest_first
from catalogue.errors import CatalogueError, NotHarvested, QueryError
from catalogue.export import ducklake_attach
from catalogue.metadata_db.connection import answerable
from catalogue.metadata_db.connection import connect as open_database
from catalogue.metadata_db.refresh import updated
from catalogue.reports import crawl_names, sql_rows
from catalogue.session import Session


def connect(session: Session, *, lake: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection; see ``Catalogue.connect``."""
    if lake:
        return connect_for(session, "FROM cc.captures")
    return open_database(updated(session.writable_database(), session.store, session.dataset))


def run_sql(session: Session, query: str) -> duckdb.DuckDBPyRelation:
    """Run SQL; see ``Catalogue.sql``."""
    with answerable():
        return connect_for(session, query).sql(query)


def connect_for(session: Session, query: str) -> duckdb.DuckDBPyConnection:
    """Connect, with the DuckLake attached if the query names it.

    Raises:
        QueryError: if the query reads it, and it does not exist or cannot be attached.
    """
    connection = connect(session)
    if ducklake_attach.names_lake(query) and (problem := _attach_lake(session, connection)):
        exists = lake_path(session).exists()
        if ducklake_attach.names_captures(query):
            connection.close()
            raise QueryError(problem, call=None if exists else "export_ducklake()")
        if exists:
            session.notify(problem)
    return connection


def _attach_lake(session: Session, connection: duckdb.DuckDBPyConnection) -> str | None:
    """Attach the DuckLake; return a sentence if that is not possible."""
    path = lake_path(session)
    if not path.exists():
        return f"there is no {path} yet; run: catalogue export ducklake"
    try:
        problem = ducklake_attach.attach(connection, path, session.settings.source)
        if not problem and (missing := missing_in_lake(session)):
            session.notify(missing)
    except CatalogueError as error:
        return f"cannot attach cc: {error}"
    return problem


def lake_path(session: Session) -> Path:
    return session.data / ducklake_attach.LAKE_NAME


def missing_in_lake(session: Session) -> str | None:
    """Return a sentence about stored crawls that are missing or outdated in the DuckLake; None if there are none."""
    from catalogue.export.ducklake import crawls_in

    in_lake = crawls_in(lake_path(session))
    missing = newest_first(set(crawl_names(session)) - in_lake.keys())
    if not missing:
        changed = newest_first(crawl for crawl, sizes in _crawl_sizes(session).items() if sizes != in_lake[crawl])
        if not changed:
            return None
        missing = [f"what is new in {changed[0]}", *changed[1:]]
    more = f" and {len(missing) - 1} more" if missing[1:] else ""
    return f"{lake_path(session).name} does not have {missing[0]}{more}; run: catalogue export ducklake"


def _crawl_sizes(session: Session) -> dict[str, tuple[int, ...]]:
    """Return the numbers that ``crawls_in`` returns of a DuckLake for each stored crawl."""
    with suppress(NotHarvested):
        rows = sql_rows(
            session,
            "SELECT crawl, count(*) AS files, sum(num_rows)::BIGINT AS num_rows, sum(file_size)::BIGINT AS bytes, "
            "sum(footer_size)::BIGINT AS footers FROM derived.files GROUP BY crawl",
        )
        return {row.pop("crawl"): tuple(row.values()) for row in rows}
    return {}
