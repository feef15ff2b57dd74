"""SQL over the metadata database, with the DuckLake of the data folder attached as ``cc``."""

import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import duckdb

from catalogue.commoncrawl.crawls import newest_first, subset_place
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import CatalogueError, QueryError, warn
from catalogue.export.ducklake_tables import backend_of
from catalogue.formatting import join_first
from catalogue.metadata_db.connection import answerable, check_text, quoted
from catalogue.metadata_db.connection import connect as open_database
from catalogue.metadata_db.refresh import refresh
from catalogue.query.literals import literal
from catalogue.reports import block_list_rows, sql_rows
from catalogue.selection import select_stored
from catalogue.session import Session
from catalogue.settings import install_command
from catalogue.store.stored_lists import crawls_with_blocks

NAME = "cc"
LAKE_NAME = "captures.ducklake"
"""Default name of the lake in the data folder."""

NO_DOWNLOADS = "SET autoinstall_known_extensions = false"
"""Run this before ``attach_statements`` if extensions may be missing."""

_NAMED = re.compile(rf"\b{NAME}\b(?!-)", re.IGNORECASE)  # CC-MAIN-2022-05 is the name of a crawl
_CAPTURES = re.compile(rf"\b{NAME}\s*\.\s*\"?(?:captures|snapshots)", re.IGNORECASE)
"""Certainly of the lake; ``cc`` can also be another name."""
_BLOCKS = re.compile(r"\bblocks\b", re.IGNORECASE)
_HARVESTED = {"pages": "--pages", "blocks": "--index cdx", "column_values": "--values COLUMN"}
"""Views of what a harvest stores only with an option."""
_VIEWS = re.compile(rf"\b(?:from|join)\s+\"?(column_chunks|{'|'.join(_HARVESTED)})\b")
_WHEEL = "duckdb_extension_{}"


def add_column_chunks(session: Session, crawls: Iterable[str]) -> None:
    """Fill the view ``column_chunks`` for crawls; it has no others, so that it is small."""
    requested = set(select_stored(session, crawls))
    with session.database() as connection:
        rows = connection.execute("SELECT crawl FROM derived.tables WHERE column_chunks").fetchall()
    if requested - {crawl for (crawl,) in rows}:
        path = session.writable_database(changes=True)
        refresh(path, session.store, session.dataset, column_chunks=requested, notify=session.notify)


def notes_on_views(session: Session, connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[str]:
    """Yield sentences about views of a query that have no rows, or none of some crawls, and how to fill them."""
    views = {*_VIEWS.findall(query.lower())} - ({"blocks"} if session.dataset != COMMON_CRAWL else set())
    for view in sorted(views):
        if view == "column_chunks":
            rows = connection.execute("SELECT crawl FROM derived.tables WHERE NOT column_chunks").fetchall()
            if crawls := newest_first(each for (each,) in rows):
                yield f"the view {view} has no rows of {join_first(crawls)}; run: catalogue sql --column-chunks CRAWL"
        elif not connection.execute(f"SELECT 1 FROM {view} LIMIT 1").fetchall():  # noqa: S608 - one of ours
            crawl = next(iter(newest_first(session.metadata().crawls)), "latest")
            harvest = f"{session.dataset.harvest_command(crawl)} {_HARVESTED[view]}"
            yield f"nothing is stored for the view {view} yet; run: {harvest}"


def check_exportable(session: Session) -> None:
    if session.dataset != COMMON_CRAWL:
        raise QueryError(f"only Common Crawl's index can be exported, and this is {session.dataset.name}")


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
    return connect_for(session, "FROM cc.captures" if lake else "")


def run_sql(session: Session, query: str) -> duckdb.DuckDBPyRelation:
    with answerable():
        return connect_for(session, query).sql(query)


def connect_for(session: Session, query: str) -> duckdb.DuckDBPyConnection:
    """Connect, with the DuckLake attached if the query names it; warn of what it does not have.

    Raises:
        QueryError: if the query reads it, and it does not exist or cannot be attached.
    """
    connection = open_database(session.updated_database())
    try:
        for problem in attach_named(session, connection, query):
            warn(problem)
        for note in notes_on_views(session, connection, query):
            warn(note)
    except BaseException:
        connection.close()
        raise
    return connection


def attach_named(session: Session, connection: duckdb.DuckDBPyConnection, query: str) -> tuple[str, ...]:
    """Attach the DuckLake if the query names it; return sentences about what it, or the view ``blocks``, lacks."""
    check_text(query)
    if not _NAMED.search(query):
        stored = crawls_with_blocks(session.store) if _BLOCKS.search(query) else ()
        lost = {*stored}.difference(row["crawl"] for row in block_list_rows(session)) if stored else ()
        lists = f"the stored lists of blocks of {join_first(newest_first(lost))} cannot be read"
        return (f"{lists}; run: catalogue check --repair",) if lost else ()
    if _CAPTURES.search(query):
        check_exportable(session)
    path = lake_path(session)
    exists, missing = path.exists(), tuple[str, ...]()
    problem: str | None = f"there is no {path} yet; run: catalogue export ducklake"
    if exists:
        try:
            problem = attach(connection, path, session.settings.source)
            missing = () if problem else missing_in_lake(session)
        except CatalogueError as error:
            problem = f"cannot attach cc: {error}"
    if problem and _CAPTURES.search(query):
        raise QueryError(problem, call=None if exists else "export_ducklake()")
    if problem and exists:
        session.notify(problem)
    if not problem and (notes := subsets_not_harvested(session, session.metadata().crawls)):
        session.notify(f"{path.name} has only the harvested subsets: {'; '.join(notes)}")
    return missing


def lake_path(session: Session) -> Path:
    return session.data / LAKE_NAME


def missing_in_lake(session: Session) -> tuple[str, ...]:
    """Return sentences about what the DuckLake does not have: what is new, and what is not harvested."""
    from catalogue.export.ducklake import crawls_in

    path, shown = lake_path(session), session.metadata()
    in_lake = crawls_in(path)
    sql = (
        "SELECT crawl, count(*) AS files, sum(num_rows)::BIGINT AS num_rows, sum(file_size)::BIGINT AS bytes, "
        "sum(footer_size)::BIGINT AS footers FROM derived.files GROUP BY crawl"
    )
    sizes = {row.pop("crawl"): tuple(row.values()) for row in sql_rows(session, sql)}
    new = newest_first(crawl for crawl, size in sizes.items() if size != in_lake.get(crawl))
    what = [crawl if crawl not in in_lake else f"what is new in {crawl}" for crawl in new]
    found = [f"{path.name} does not have {join_first(what)}; run: catalogue export ducklake"] if new else []
    return (*found, *(each for crawl in newest_first(shown.requested_crawls) for each in shown.missing(crawl)))


def subsets_not_harvested(session: Session, crawls: Iterable[str]) -> list[str]:
    shown, without = session.metadata(), dict[str, list[str]]()
    for crawl in newest_first(crawls):
        for subset in sorted(shown.subsets_not_requested(crawl), key=subset_place):
            without.setdefault(subset, []).append(crawl)
    return [f"{subset} of {join_first(found)} is not harvested" for subset, found in without.items()]
