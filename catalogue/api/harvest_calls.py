"""Calls of ``Catalogue`` that change or check what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from catalogue.check.check import Checked
    from catalogue.check.doctor import Diagnosis
    from catalogue.commoncrawl.crawls import CrawlWords
    from catalogue.export.exports import Exported
    from catalogue.harvest.backfill import Backfill
    from catalogue.harvest.harvest import Harvested
    from catalogue.harvest.harvest_crawls import HarvestEstimate
    from catalogue.harvest.snapshot import Pulled
    from catalogue.progress import Progress
    from catalogue.session import Session
    from catalogue.surt.pattern import Keys


class HarvestCalls:
    """Harvests, snapshots and checks."""

    session: Session

    def define(
        self, key: str, *, keys: Keys | str | None = None, manifest: str | None = None, paths: str | Iterable[str] = ()
    ) -> None:
        """Define the dataset that was named in ``open``: sorted Parquet files, and their paths.

        Args:
            key: the text column that the files are sorted by.
            keys: its content, ``url``, ``host`` or ``text``; by default derived from its name.
            manifest: path of a list of the files: a path a line, gzipped or not.
            paths: paths of the files, instead of a manifest.

        Raises:
            QueryError: if the arguments conflict with each other, or with stored footers.
        """
        from catalogue.harvest.harvest_crawls import define

        return define(self.session, key, keys=keys, manifest=manifest, paths=paths)

    def harvest(
        self,
        crawls: CrawlWords | None = None,
        *,
        subsets: str | Iterable[str] = (),
        refresh: bool = False,
        pages: bool = False,
        index: str = "columnar",
        values: str | Iterable[str] = (),
        report: Callable[[Progress], None] | None = None,
    ) -> list[Harvested]:
        """Fetch and store the footers of crawls that are not stored yet, and update the metadata database.

        With ``index="cdx"`` it stores the list of blocks of the CDX index, with which one URL takes one request: 105 MB
        to fetch and 26 MB on disk a crawl.

        Args:
            crawls: listed crawls; of another dataset everything by default.
            subsets: ``warc``, the default, ``crawldiagnostics``, ``robotstxt`` or ``all``.
            refresh: fetch stored footers again.
            pages: fetch page indexes, too; otherwise queries fetch those that they need.
            index: ``columnar``, ``cdx`` or ``both``.
            values: columns of which it stores the values of each row group, such as ``content_mime_detected``, or
                ``all`` for media types, languages, charset, status and TLD. Queries with conditions on these columns
                then read no row group without a matching value.
            report: see ``Catalogue``.

        Raises:
            SourceError: if the source fails as a whole; footers fetched before stay stored.
        """
        from catalogue.harvest.harvest_crawls import HarvestOptions, harvest_crawls

        return harvest_crawls(self.session, crawls, HarvestOptions(subsets, refresh, pages, index, values), report)

    def harvest_estimate(
        self,
        crawls: CrawlWords | None = None,
        *,
        subsets: str | Iterable[str] = (),
        refresh: bool = False,
        pages: bool = False,
        index: str = "columnar",
        values: str | Iterable[str] = (),
    ) -> HarvestEstimate:
        """Estimate the cost of ``harvest``; at most the list of crawls is fetched.

        Raises:
            SourceError: if that list is needed and cannot be fetched.
        """
        from catalogue.harvest.harvest_crawls import HarvestOptions, estimate_crawls

        return estimate_crawls(self.session, crawls, HarvestOptions(subsets, refresh, pages, index, values))

    def backfill(
        self,
        crawls: CrawlWords = "all",
        *,
        only_gaps: bool = False,  # noqa: ARG002 - callers of earlier versions pass it
        files: str | Iterable[str] = (),
    ) -> Backfill:
        """Prepare to find the bounds of row groups whose footers have none. Nothing is read yet.

        Args:
            crawls: see ``Catalogue``.
            only_gaps: has no effect.
            files: patterns of paths, such as ``*part-00007-*``; all by default.
        """
        from catalogue.harvest.backfill import prepare_backfill

        return prepare_backfill(self.session, crawls, files)

    def forget(self, crawls: CrawlWords) -> int:
        """Delete what is stored of crawls; return the number of footers.

        Raises:
            NotHarvested: if nothing is stored of one.
            StoreLocked: if another process harvests one.
        """
        from catalogue.harvest.harvest_crawls import forget_crawls

        return forget_crawls(self.session, crawls)

    def pull(
        self,
        place: str | Path,
        *,
        crawls: CrawlWords = "all",
        compare: int = 3,
        report: Callable[[Progress], None] | None = None,
    ) -> Pulled:
        """Store a snapshot that somebody else exported; what is stored already stays.

        Args:
            place: a folder, or an https, http or s3 address.
            crawls: crawls of the snapshot.
            compare: how many files of each crawl are compared with the source, and as many with page indexes, by one
                request each.
            report: see ``Catalogue``.

        Raises:
            QueryError: if this is another dataset; ``UnknownCrawl`` if the snapshot does not have a crawl.
            BadSnapshot: if it is invalid, or differs from the source; crawls that were stored before stay.
            SourceError: if it, or the source, cannot be read.
            StoreLocked: if another process harvests or pulls the same.
        """
        from catalogue.harvest.snapshot import pull_snapshot

        return pull_snapshot(self.session, place, crawls, compare, report)

    def export_snapshot(
        self, place: str | Path, *, crawls: CrawlWords = "all", report: Callable[[Progress], None] | None = None
    ) -> Exported:
        """Write a snapshot of what is stored, a file for each crawl, for ``pull``.

        Written again to the same place, only crawls that have changed are written. With ``crawls``, other crawls of the
        snapshot stay; else those that are not stored any more are removed. Others can harvest at the same time.

        Args:
            place: a folder, or the URL of one that fsspec can write to, such as ``s3://bucket/prefix``.
            crawls: see ``Catalogue``.
            report: see ``Catalogue``.

        Raises:
            QueryError: if the folder has other files, or a crawl is not stored.
            StoreLocked: if another process writes to it.
            OutputFailed: if it cannot be written to.
        """
        from catalogue.export.exports import export_snapshot

        return export_snapshot(self.session, place, crawls, report)

    def check(
        self,
        crawls: CrawlWords = "all",
        *,
        read_subset: str | None = None,
        seed: int | None = None,
        repair: bool = False,
        report: Callable[[Progress], None] | None = None,
    ) -> Checked:
        """Check every stored value against its digest, and the metadata database against the store.

        A failure of the source is one of the findings; it is not raised.

        Args:
            crawls: crawls whose values are checked.
            read_subset: compare a share of the files with each host, by one request each: ``1%`` of them at random,
                ``3/30`` the third of thirty parts, or as many as have ``50MB`` of footers and page indexes.
            seed: selects the random share; by default a new one each time.
            repair: delete damaged values, note which footers a harvest has to fetch again, and rebuild the metadata
                database.
            report: see ``Catalogue``.

        Raises:
            QueryError: if a crawl is not stored, or the share is invalid.
            StoreError: if the store cannot be opened for another reason than damage.
        """
        from catalogue.check.check import check_store

        return check_store(self.session, crawls, read_subset, seed, report, repair=repair)

    def doctor(self, crawl: str | None = None) -> Diagnosis:
        """Examine the installation and the source, by at most ten requests.

        Works with nothing harvested, and if the source does not answer. Only what is known about the host is stored.

        Args:
            crawl: a crawl whose index file is examined, or ``latest``; by default the newest stored one, else the
                newest listed.

        Raises:
            UnknownCrawl: if the source does not have the crawl.
            QueryError: if this is another dataset.
        """
        from catalogue.check.doctor import diagnose

        return diagnose(self.session, crawl)
