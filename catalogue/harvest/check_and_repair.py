"""Check what is stored, and repair it."""

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress

from catalogue import metadata_db
from catalogue.check.check import Check
from catalogue.check.findings import Checked, Finding, Share
from catalogue.commoncrawl.datasets import COMMON_CRAWL, DATASET_DOCUMENT, PATHS_DOCUMENT, Dataset
from catalogue.errors import (
    CatalogueError,
    DiskFailed,
    ForeignLog,
    FormatError,
    StoreDamaged,
    StoreError,
    StoreLocked,
)
from catalogue.examine import Examiner
from catalogue.harvest.harvest_crawls import crawl_list
from catalogue.harvest.repair import Repair, Repaired, note_lost
from catalogue.progress import Progress
from catalogue.selection import several
from catalogue.session import Session
from catalogue.store.database import Store
from catalogue.store.locks import alone
from catalogue.store.read_only import unwritable
from catalogue.store.salvaging import Salvaged, salvage
from catalogue.store.stored_lists import known_crawls, load_dataset
from catalogue.surt import Keys


def check_store_values(
    session: Session,
    crawls: str | Iterable[str] = "all",
    *,
    read_subset: str | None = None,
    seed: int | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Checked:
    """Check what is stored; see ``Catalogue.check``."""
    share = Share.of(read_subset) if read_subset is not None else None
    with session.reporting(report, "values") as told:
        return _checked(session, crawls, share, seed, told)


def _checked(
    session: Session,
    crawls: str | Iterable[str],
    share: Share | None,
    seed: int | None,
    report: Callable[[Progress], None],
) -> Checked:
    store = _openable(session)
    check = Check(session.store_path, _scope(session, crawls, store), report=report)
    if not check.look_at_file() or store is None:
        _say_why(session, check.checked, store)
        return check.checked
    table, known = _dataset_of(session, store)
    path = session.writable_database()
    state, fresh = store.state(), metadata_db.is_fresh(path, store)
    check.look_at_values(table, fresh=lambda: fresh and store.state() == state)
    if not check.checked.findings:
        check.look_at_catalogue(path, store, table)
    if share and known:
        with Examiner(table.key) as examiner:
            drawn = secrets.randbelow(1 << 32) if seed is None else seed
            check.compare(share, drawn, store, table, session.source, examiner)
    return check.checked


def repair_store(
    session: Session, crawls: str | Iterable[str] = "all", *, report: Callable[[Progress], None] | None = None
) -> Repaired:
    """Repair what a check finds; see ``Catalogue.repair``."""
    with session.reporting(report, "values") as told:
        return _repaired(session, crawls, told)


def _repaired(session: Session, crawls: str | Iterable[str], report: Callable[[Progress], None]) -> Repaired:
    store = _openable(session)
    if store and store.read_only:
        raise unwritable(store.path)
    repaired, requests = Repaired(), session.requests
    with alone(session.data / "repair.lock", f"another process repairs {session.data}; wait for it"):
        checked = check_store_values(session, crawls, report=report)
        lost: Iterable[str] = ()
        repaired.found = checked.findings
        if broken := [finding for finding in checked.findings if finding.kind == "store"]:
            lost = _salvage(session, repaired).lost
            checked = check_store_values(session, crawls, report=report)
            repaired.found = [*broken, *checked.findings]
        store, (table, known) = session.store, _dataset_of(session, session.store)
        if known:
            with Examiner(table.key) as examiner:
                mending = Repair(
                    store,
                    table,
                    lambda: session.source,
                    examiner,
                    crawl_list=lambda: crawl_list(session),
                    report=report,
                )
                mending.mend(checked.findings, repaired, lost=lost)
                with suppress(StoreDamaged):  # of another crawl than those that are asked about
                    metadata_db.up_to_date(session.database_path, store, table, facts=mending.facts, examiner=examiner)
            if any(finding.kind == "catalogue" for finding in checked.findings):
                _rebuild(session, repaired)
        _left(session, crawls, report, repaired)
    repaired.requests = session.requests - requests
    return repaired


def _openable(session: Session) -> Store | None:
    """The store; None if it is one that is damaged.

    With another's log beside it, it is not looked at: SQLite would show both as one, and folding that log in for a
    repair would spoil what is whole.
    """
    try:
        return session.store
    except (DiskFailed, ForeignLog, StoreLocked):
        raise
    except StoreError:
        return None


def _say_why(session: Session, checked: Checked, store: Store | None) -> None:
    """Say of a store that cannot be opened why, if nothing else does."""
    if store is None and not checked.findings:
        try:
            session.open_store(create=False)
        except StoreError as error:
            checked.findings.append(Finding("store", "", str(error)))


def _dataset_of(session: Session, store: Store) -> tuple[Dataset, bool]:
    """The table; and whether it is that, or only has its name, since what it is cannot be read."""
    if session.dataset_name is None:
        return COMMON_CRAWL, True
    with suppress(StoreDamaged, FormatError):
        if table := load_dataset(store):
            return table, True
    return Dataset(session.dataset_name, "", Keys.TEXT), False


def _scope(session: Session, crawls: str | Iterable[str], store: Store | None) -> list[str] | None:
    """The crawls that are meant; None if all, or that cannot be told."""
    words = several(crawls)
    if store is None or tuple(words) == ("all",):
        return None
    table, _ = _dataset_of(session, store)
    with suppress(StoreDamaged):
        files = (table.file(path) for kind in ("files", "failures") for path in store.keys(kind))
        return table.select_stored({file.crawl for file in files if file}, words, listed=lambda: known_crawls(store))
    return None


def _salvage(session: Session, repaired: Repaired) -> Salvaged:
    """Make a new store of what is whole."""
    table, known = COMMON_CRAWL, session.dataset_name is None
    if store := _openable(session):
        with suppress(CatalogueError):
            table, known = _dataset_of(session, store)
    others = {DATASET_DOCUMENT, PATHS_DOCUMENT, table.manifest if known else None}

    def is_file(key: str) -> bool:
        if not known:
            return key.endswith(".parquet")
        return table.file(key) is not None and key not in others and not key.startswith("snapshots/")

    shown = metadata_db.paths_shown(session.database_path)
    session.close()
    salvaged = salvage(session.store_path, is_file, shown)
    repaired.aside, repaired.salvaged = salvaged.aside, dict(salvaged.rows)
    note_lost(session.store, _dataset_of(session, session.store)[0], salvaged.lost)
    return salvaged


def _left(
    session: Session, crawls: str | Iterable[str], report: Callable[[Progress], None], repaired: Repaired
) -> None:
    """See what is left; a catalogue that is wrong is made anew, now that the store is well."""
    for last in (False, True):
        repaired.left = check_store_values(session, crawls, report=report).findings
        if last or all(finding.kind != "catalogue" for finding in repaired.left):
            return
        _rebuild(session, repaired)


def _rebuild(session: Session, repaired: Repaired) -> None:
    metadata_db.make_anew(session.database_path, session.database_path, session.store, session.dataset)
    repaired.catalogue = True
