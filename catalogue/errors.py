"""All exceptions, with the exit status of the command line.

Exit statuses: 1 done in part or no such file, 2 invalid query, 74 disk failed, 75 try again later (``sysexits.h``), 70
a bug. A message names the file and the next command; in a traceback a note has the call in Python.
"""

import inspect
import warnings
from copyreg import __newobj__  # type: ignore[attr-defined] # as pickle uses it


class CatalogueError(Exception):
    """Base class of all exceptions of this package."""

    exit_status = 1

    def __reduce__(self) -> tuple[object, ...]:
        return __newobj__, (type(self), *self.args), vars(self)  # without __init__, whose arguments are not stored


class SourceError(CatalogueError):
    """The source failed."""

    exit_status = 75


class NotFound(SourceError, FileNotFoundError):
    """The source has no such file; trying again does not change that."""

    exit_status = 1


class Forbidden(SourceError, PermissionError):
    """The source refuses this file. S3 answers so for missing files, too, without the right to list."""


class Blocked(SourceError, PermissionError):
    """The source refuses every request for now: the rate limit was exceeded."""


class Throttled(SourceError):
    """The source demands a lower rate (429, 503), or a wait would exceed ``max_wait``."""

    def __init__(self, message: str, *, retry_after: float | None = None, pause: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.pause = pause
        """Seconds without any request to the host, because a quota is used up."""


class Unreachable(SourceError, ConnectionError):
    """No response, a broken connection, or a server error."""


class ConnectionRefused(Unreachable):
    """The host refuses connections."""


class ProxyRefused(ConnectionRefused):
    """The proxy that the environment names refuses connections."""


class NameNotResolved(Unreachable):
    """The name of the host, or of its proxy, has no address."""


class WithoutTls(Unreachable):
    """An https address is answered without TLS."""


class UnexpectedHtml(Unreachable):
    """The body is a web page or an error text: a listing, a captive portal, an S3 error."""


class Redirected(SourceError):
    """The source answered with a redirect, which is not followed."""


class RangeIgnored(SourceError):
    """The source offers the complete file for a range, or refuses the range; the body was not read."""

    def __init__(self, message: str, *, file_size: int | None = None) -> None:
        super().__init__(message)
        self.file_size = file_size
        """Bytes of the file, if the source stated them when it refused a suffix."""


class WrongRange(SourceError):
    """The response is for another range than the request."""


class WrongLength(SourceError):
    """The body is shorter or longer than its headers announce."""


class FileChanged(SourceError):
    """The file differs from the version seen before, by ETag or size."""


class SourceUnavailable(SourceError):
    """Too many requests failed to go on."""


class FormatError(CatalogueError, ValueError):
    """Invalid bytes in a file."""


UNUSABLE = (NotFound, Forbidden, FileChanged, FormatError)
"""Errors of a file that a later request would meet again, so that the other index has to answer."""
OF_ONE_FILE = (*UNUSABLE, Redirected, Throttled, Unreachable, RangeIgnored, WrongRange, WrongLength)
"""Errors after which other files of the source can be read, unlike ``Blocked`` and ``SourceUnavailable``."""


class BadManifest(FormatError):
    """A manifest or list of crawls cannot be read."""


class NotParquet(FormatError):
    """The file does not end like a Parquet file."""


class BadFooter(FormatError):
    """The footer cannot be decoded, contradicts itself, or it or a column is encrypted."""


class BadPageIndex(FormatError):
    """The page index cannot be decoded, or contradicts its column chunk."""


class BadCdx(FormatError):
    """A CDX index is invalid: its list of blocks, a block or a line; or the URL index of 2012."""


class BadSnapshot(FormatError):
    """A snapshot is invalid, or differs from the source; nothing of that part was stored."""


class BadRecord(FormatError):
    """A record is damaged or contradicts its capture, or a capture names no record."""


class BadDocument(FormatError):
    """An archived page cannot be parsed."""

    def __init__(self, message: str, *, permanent: bool = True) -> None:
        super().__init__(message)
        self.permanent = permanent
        """Whether another attempt would fail, too."""


class StoreError(CatalogueError):
    """The store failed."""

    exit_status = 74


class StoreLocked(StoreError):
    """Another process uses the same data."""

    exit_status = 75


class StoreChanged(StoreLocked):
    """Another process has changed what is stored, of a crawl or a file, while it was used."""

    def __init__(self, what: object) -> None:
        super().__init__(f"another process has changed what is stored of {what}; run the same command again")


class StoreDamaged(StoreError):
    """The store, or a value in it, is damaged."""


class DiskFailed(StoreError, OSError):
    """The disk is full or broken; earlier commits are safe."""


class QueryError(CatalogueError, ValueError):
    """The query or an option is invalid."""

    exit_status = 2

    def __init__(self, message: str, *, call: str | None = None) -> None:
        super().__init__(message)
        self.call = call
        """The call of ``Catalogue`` that helps."""
        if call:  # shown in a traceback, where a command is of little use
            self.add_note(f"from Python: cat.{call}")


class UnknownCrawl(QueryError):
    """There is no such crawl."""


class UnknownColumn(QueryError):
    """There is no such column, or the index that must answer does not have it."""


class NotHarvested(QueryError):
    """No footers of the crawl are stored."""

    def __init__(self, message: str, *, crawl: str | None = None, call: str | None = None) -> None:
        super().__init__(message, call=call)
        self.crawl = crawl


class NothingStored(NotHarvested):
    """Nothing is stored in the data folder."""

    def __init__(self, what: str, folder: object, advice: str = "") -> None:
        advice = f"yet; {advice}run: catalogue harvest --crawl latest"
        super().__init__(f"{what} in {folder} {advice}", call="harvest('latest')")
        self.without_folder = f"{what} {advice}"
        """The message for clients of a server."""


class TooExpensive(QueryError):
    """The plan exceeds the limit of requests or bytes."""


class LimitReached(TooExpensive):
    """All requests that were allowed have been made."""


class OverBudget(TooExpensive):
    """An assistant's call takes more requests than its server may make."""


class NotArchived(CatalogueError):
    """No crawl that was searched has a capture."""

    def __init__(
        self, message: str, *, empty: tuple[str, ...] = (), doubts: tuple[str, ...] = (), target: str | None = None
    ) -> None:
        super().__init__(message)
        self.empty = empty
        """Crawls that certainly have no capture."""
        self.doubts = doubts
        self.target = target
        """The URL that is not archived or not valid, if archived redirects lead to it."""


class Busy(CatalogueError):
    """The server is over its limit."""

    exit_status = 75

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which to try again."""


class Harvesting(Busy):
    """The server harvests the crawl now."""

    def __init__(self, message: str, crawl: str, done: int = 0, listed: int = 0, *, retry_after: float) -> None:
        super().__init__(message, retry_after=retry_after)
        self.crawl = crawl
        self.done = done
        self.listed = listed
        """Files of the crawl; 0 until its manifest is read."""


class OutputFailed(CatalogueError):
    """The output cannot be written to its target; fetched records are saved."""

    exit_status = 75


class OutOfMemory(CatalogueError):
    """There is not enough memory, or no more threads may be started."""

    exit_status = 75


class WorkersLost(CatalogueError):
    """Worker processes died and no other could take over."""

    exit_status = 75


class IncompleteAnswer(UserWarning):
    """The result may be incomplete: files are not stored, or old crawls do not have a column of a condition."""


def warn(message: str, kind: type[UserWarning] = IncompleteAnswer) -> None:
    """Warn at the line outside of this package that led to the call."""
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)
