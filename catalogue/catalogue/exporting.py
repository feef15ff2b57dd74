"""What is held, for other engines and other people."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from catalogue import metadata_db
from catalogue.catalogue.telling import Telling
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.display import Displayed, some
from catalogue.errors import IncompleteAnswer, QueryError
from catalogue.export import ducklake, ducklake_attach, ducklake_database
from catalogue.formatting import plural
from catalogue.metadata_db.file_stats import LakeFile
from catalogue.settings import address, install_command

if TYPE_CHECKING:
    from catalogue.export.iceberg_read import IcebergTable


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Displayed):
    """What was exported, and what should have been."""

    place: str
    """Where it is: a path or an address."""
    crawls: tuple[str, ...]
    """Newest first."""
    files: int
    missing: tuple[str, ...]
    """Of these crawls, what is not harvested and so is not in it: a sentence each."""

    @property
    def complete(self) -> bool:
        """Whether all that the crawls' lists name is in it, of those subsets that are held."""
        return not self.missing

    def _line(self) -> str:
        return f"in {self.place}: {plural(self.files, 'file')} of {some(self.crawls, len(self.crawls))}"

    def _notes(self) -> Iterable[str]:
        return self.missing


class Exporting(Telling):
    """What writes down what is held."""

    def export_ducklake(
        self, path: str | Path | None = None, *, crawls: str | Iterable[str] = "all", backend: str | None = None
    ) -> Exported:
        """Write a DuckLake whose one table is all files held of crawls, where they are; nothing is fetched.

        One that is there is made to hold what is asked for and nothing else: each crawl that is new or another than
        before is a snapshot of its own. ``sql`` attaches that in our folder as ``cc``.

        Args:
            path: of the file; None for ``captures.ducklake`` in our folder.
            crawls: names, ``A..B``, ``latest`` or ``all``.
            backend: ``sqlite`` or ``duckdb``; None for that of the lake that is there, else ``sqlite``.

        Raises:
            QueryError: if the path is that of something else or of a lake kept otherwise, its folder is not there, or a
                crawl is not harvested.
            StoreLocked: if somebody is writing to it.
            DiskFailed: if it cannot be written; the one that was there stays.
        """
        if backend not in {None, *ducklake_database.BACKENDS}:
            message = f"a lake cannot be kept in {backend!r}; choose among {', '.join(ducklake_database.BACKENDS)}"
            raise QueryError(message)
        place = Path(path) if path is not None else self.lake_path
        chosen, files, missing = self._lake(crawls)
        where = ducklake_attach.data_path(self.settings.source)
        ducklake.export_lake(place, files, missing, data_path=where, backend=backend)
        return Exported(str(place), chosen, len(files), missing)

    def export_iceberg(
        self, path: str | Path, *, crawls: str | Iterable[str] = "all", location: str | None = None
    ) -> Exported:
        """Write an Iceberg table of what is held, over the published files where they are; nothing is fetched.

        pyiceberg, DuckDB and Spark read it by its path, and open only the files that might hold what is asked for by
        ``url_surtkey``, ``crawl`` and ``subset``. It has addresses in it and so works only where it was made. Exported
        to again it gets a new snapshot, of just these crawls; who reads an older one is not disturbed.

        Times of files before CC-MAIN-2021-49 are UTC and do not say so: DuckDB takes them for times of its session's
        zone (``SET TimeZone = 'UTC'``), pyiceberg and Spark read them rightly. In Spark, with the jar
        iceberg-spark-runtime and a table whose location is ``s3a://commoncrawl/``, or without either by a plan::

            index = spark.read.format("iceberg").load("file:///data/index.iceberg")

            files = [f"s3a://commoncrawl/{path}" for path in cat.captures("example.com/*").plan.paths]
            base = "s3a://commoncrawl/cc-index/table/cc-main/warc/"
            index = spark.read.option("basePath", base).parquet(*files)  # of one crawl: older ones lack columns

            index.where("url_surtkey LIKE 'com,example)/%'")

        Args:
            path: of its folder.
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.
            location: where engines read the files from, such as ``s3a://commoncrawl/`` for Spark; the source, if None.

        Raises:
            QueryError: if something else is at the path, tables cannot name it or the location, nothing is held, or
                pyiceberg is not installed.
            StoreLocked: if another process writes there.
        """
        _need_pyiceberg()
        from catalogue.export.iceberg import export  # noqa: PLC0415 - an extra, and slow to import
        from catalogue.export.iceberg_folder import check_address  # noqa: PLC0415 - an extra, and slow to import

        where = self._location(location)
        check_address(where)
        chosen, files, missing = self._lake(crawls)
        export(Path(path), files, where, missing)
        return Exported(str(path), chosen, len(files), missing)

    def iceberg(self, crawls: str | Iterable[str] = "all") -> "IcebergTable":
        """The same as a table of pyiceberg's, ready to be scanned, for as long as this is open.

        A scan asks for no footer: those are held. Data is read from our source, as politely, from our cache if it is
        there, and of no other version than that whose footer is held. Filters on crawl and subset hold even if these
        columns are not selected, which pyiceberg itself gets wrong.

        ::

            table = cat.iceberg("latest")
            table.scan("url_surtkey >= 'com,example)/' AND url_surtkey < 'com,example)0'", ("url",)).to_pandas()

        Args:
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.

        Raises:
            QueryError: if nothing is held, or pyiceberg is not installed.
        """
        _need_pyiceberg()
        from catalogue.export.iceberg import export  # noqa: PLC0415 - an extra, and slow to import
        from catalogue.export.iceberg_files import FooterIO, HeldFiles  # noqa: PLC0415 - an extra
        from catalogue.export.iceberg_read import IcebergTable  # noqa: PLC0415 - likewise

        location = self._location(None)
        held = HeldFiles(self._store, self._reading, location)  # as they are before the table is made
        _, files, missing = self._lake(crawls)
        metadata = export(self._temporary_folder() / "iceberg", files, location, missing)
        for lack in missing:
            warnings.warn(lack, IncompleteAnswer, stacklevel=2)
        return IcebergTable.at(metadata, FooterIO(held=held))

    def _lake(self, crawls: str | Iterable[str]) -> tuple[tuple[str, ...], list[LakeFile], tuple[str, ...]]:
        """The crawls that words mean, newest first, their files, and what is missing of these.

        Raises:
            QueryError: if this is another table than the index, or a crawl is not harvested.
        """
        if self.table != COMMON_CRAWL:
            message = f"only Common Crawl's index can be exported, and this is {self.table.name}"
            raise QueryError(message)
        shown = self._shown()
        chosen = tuple(self.select_held(shown.crawls, crawls))
        missing = (*self.gaps(shown.crawls, crawls), *shown.candidates(chosen, ()).missing)
        with self._looking() as connection:
            return chosen, metadata_db.lake_files(connection, chosen), missing

    def _location(self, given: str | None) -> str:
        """Where files are, as an address that paths can be put behind.

        Raises:
            QueryError: if one that was given is none.
        """
        place = given or self.settings.source
        address(place)  # it is written into the table
        if "://" not in place:
            if given:
                message = f"{given!r} is no address; one looks like s3a://commoncrawl/"
                raise QueryError(message)
            place = f"file://{Path(place).resolve().as_posix()}"
        return place.rstrip("/") + "/"


def _need_pyiceberg() -> None:
    if find_spec("pyiceberg") is None:
        message = f"Iceberg tables need pyiceberg; run: {install_command('iceberg')}"
        raise QueryError(message)
