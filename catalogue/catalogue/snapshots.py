"""What is held, passed on to other people, and taken over from them."""

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

from catalogue import metadata_db
from catalogue.captures import several
from catalogue.catalogue.exporting import Exported, Exporting
from catalogue.commoncrawl.datasets import COMMON_CRAWL
from catalogue.errors import QueryError
from catalogue.examine import Examiner
from catalogue.harvest.publish import publish
from catalogue.harvest.pull import Pull, Pulled
from catalogue.harvest.snapshot import TABLES, Piece
from catalogue.progress import Progress

COMPARED = 3
"""Files of each piece that are compared with the source."""


class Snapshots(Exporting):
    """What makes and takes snapshots."""

    def export_snapshot(
        self,
        place: str | Path,
        *,
        crawls: str | Iterable[str] = "all",
        report: Callable[[Progress], None] | None = None,
    ) -> Exported:
        """Write what is held for others to take over, see ``pull``; and as plain Parquet tables.

        It may be done while others harvest. Written again to the same place, only what is new is written.

        Args:
            place: a folder, or the URL of one that fsspec can write to, such as ``s3://bucket/prefix``.
            crawls: harvested ones: names, years, ranges ``A..B``, ``latest`` or ``all``.
            report: told how far it is, instead of a bar.

        Raises:
            QueryError: if there is something else, or a crawl is not harvested.
            StoreLocked: if another process writes to it.
            OutputFailed: if it cannot be written to.
        """
        chosen, files, missing = self._lake(crawls)
        at = Progress("snapshot", listed=len(files), done=0)

        with self._looking() as connection, self._reporting(report, "files") as bar:

            def told(piece: Piece) -> None:
                at.done += piece.files
                at.bytes += piece.size
                bar(at)

            tables = {view: partial(metadata_db.write_table, connection, view, chosen) for view in TABLES}
            made = publish(place, self._store, chosen, tables, missing=missing, cache=self.settings.cache, report=told)
        return Exported(str(place), chosen, sum(piece.files for piece in made.pieces), missing)

    def pull(
        self,
        place: str,
        *,
        crawls: str | Iterable[str] = "all",
        compare: int = COMPARED,
        report: Callable[[Progress], None] | None = None,
    ) -> Pulled:
        """Take over what somebody else harvested and exported as a snapshot; what is held stays.

        Args:
            place: a folder, or an https, http or s3 address.
            crawls: names, years, ranges ``A..B``, ``latest`` or ``all``, of those in it.
            compare: how many files of each piece, a crawl mostly, are compared with the source, and as many with page
                indexes if there are such; a request each.
            report: told how far it is, instead of a bar.

        Raises:
            QueryError: if this is another table than the index; ``UnknownCrawl`` if it holds nothing of a crawl.
            BadSnapshot: if it is not what it says, or not what the source has; what was taken before stays.
            SourceError: if it, or the source, cannot be read.
            StoreLocked: if another process harvests or pulls the same.
        """
        if self.table != COMMON_CRAWL:
            message = f"snapshots are of Common Crawl's index, and this is {self.table.name}"
            raise QueryError(message)
        with (
            closing(self._open_source(place)) as there,
            Examiner(self.table.key) as examiner,
            self._reporting(report, "pieces") as told,
        ):
            pull = Pull(there, self.create(), self._source, examiner, compare=compare, folder=self.data)
            snapshot = pull.snapshot()
            pieces = snapshot.of(tuple(several(crawls)))
            names = tuple(crawl for crawl in snapshot.crawls if any(piece.crawl == crawl for piece in pieces))
            pulled = Pulled(there.url, names)
            pull.take(
                pieces,
                pulled,
                lambda now: told(Progress("pull", listed=len(pieces), done=now.pieces, bytes=there.bytes)),
            )
        pulled.missing = self._shown().candidates(names, ()).missing if names else ()
        return pulled
