"""Export Iceberg tables, DuckLakes and snapshots."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue.commoncrawl.crawls import CrawlWords
from catalogue.errors import QueryError, warn
from catalogue.export.ducklake import export_lake
from catalogue.export.ducklake_sql import LAKE_NAME, check_exportable, data_path, subsets_not_harvested
from catalogue.export.ducklake_tables import BACKENDS
from catalogue.formatting import ReprMixin, join_first, plural
from catalogue.harvest import snapshot
from catalogue.metadata_db.lake_files import LakeFile, lake_files
from catalogue.output.targets import local_path
from catalogue.progress import Progress, Report
from catalogue.query.arguments import one_of, several
from catalogue.selection import select_stored
from catalogue.session import Session
from catalogue.settings import address, needing

if TYPE_CHECKING:
    from catalogue.export.iceberg_read import IcebergTable


@dataclass(frozen=True, slots=True, repr=False)
class Exported(ReprMixin):
    """The result of an export."""

    place: str
    crawls: tuple[str, ...]
    """The crawls, newest first."""
    files: int
    missing: tuple[str, ...]
    """Sentences about what was not harvested."""

    @property
    def complete(self) -> bool:
        """Whether all files of the stored subsets were exported."""
        return not self.missing

    def _line(self) -> str:
        return f"in {self.place}: {plural(self.files, 'file')} of {join_first(self.crawls)}"

    def _notes(self) -> Iterable[str]:
        return self.missing


def export_ducklake(session: Session, path: str | Path | None, crawls: CrawlWords, backend: str | None) -> Exported:
    if backend is not None:
        one_of("backend", BACKENDS)(backend)
    place = local_path(path) if path is not None else session.data / LAKE_NAME
    chosen, files, missing = _stored_files(session, crawls)
    where = data_path(session.settings.source)
    others = subsets_not_harvested(session, chosen)
    export_lake(place, files, [*missing, *others], data_path=where, backend=backend)
    return Exported(str(place), chosen, len(files), missing)


def export_iceberg(session: Session, path: str | Path, crawls: CrawlWords, location: str | None) -> Exported:
    with needing("iceberg", "an Iceberg table"):
        from catalogue.export.iceberg import check_address, export  # noqa: PLC0415 - an extra, and slow to import

    place = local_path(path)
    where = _location(session, location)
    check_address(where)
    chosen, files, missing = _stored_files(session, crawls)
    export(place, files, where, missing)
    return Exported(str(path), chosen, len(files), missing)


def open_iceberg(session: Session, crawls: CrawlWords) -> "IcebergTable":
    with needing("iceberg", "an Iceberg table"):
        from catalogue.export.iceberg import export  # noqa: PLC0415 - an extra, and slow to import
        from catalogue.export.iceberg_read import FooterIO, IcebergTable  # noqa: PLC0415 - an extra

    location = _location(session, None)
    stored = FooterIO(session.store, session.reading, location)  # before the table is written
    _, files, missing = _stored_files(session, crawls)
    metadata = export(session.temporary_folder / "iceberg", files, location, missing)
    for message in missing:
        warn(message)
    return IcebergTable.at(metadata, stored)


def export_snapshot(session: Session, place: str | Path, crawls: CrawlWords, report: Report | None) -> Exported:
    words = several(crawls, "crawls")
    chosen, files, missing = _stored_files(session, words)
    paths: dict[str, list[str]] = {crawl: [] for crawl in chosen}
    for each in files:
        paths[each.crawl].append(each.path)
    at = Progress("snapshot", listed=len(files), done=0)
    with session.reporting(report, "files") as bar:
        for file in snapshot.export(place, session, paths, removes=words == ("all",)):
            at.done += len(paths[file.crawl])
            at.bytes += file.size
            bar(at)
    return Exported(str(place), chosen, at.done, missing)


def _stored_files(session: Session, crawls: CrawlWords) -> tuple[tuple[str, ...], list[LakeFile], tuple[str, ...]]:
    check_exportable(session)
    shown, words = session.metadata(), several(crawls, "crawls")
    requested = select_stored(session, words, shown.requested_crawls)  # some may have no stored file
    chosen = [each for each in requested if each in shown.crawls] or select_stored(session, words, shown.crawls)
    files_missing = tuple(each for crawl in sorted(requested) for each in shown.missing(crawl))
    with session.database() as connection:
        return tuple(chosen), lake_files(connection, chosen), files_missing


def _location(session: Session, given: str | None) -> str:
    place = given or session.settings.source
    address(place)  # the table will contain it
    if "://" not in place:
        if given:
            raise QueryError(f"invalid address {given!r}; use one such as s3a://commoncrawl/")
        place = f"file://{Path(place).resolve().as_posix()}"
    return place.rstrip("/") + "/"
