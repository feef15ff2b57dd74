"""What can go wrong, and what to do next.

::

    CatalogueError
    ├── SourceError            the place the files are read from
    │   ├── Missing            404: there is no such file            (FileNotFoundError)
    │   ├── Denied             401 or 403 for one file               (PermissionError)
    │   ├── Blocked            403 for everything: we were too fast  (PermissionError)
    │   ├── SlowDown           429, 503: asked to wait, or longer than there was patience
    │   ├── Unreachable        no answer, or a broken one            (ConnectionError)
    │   │   ├── ConnectionRefused  the host refuses to be connected to
    │   │   ├── NameNotResolved  there is no address for the host's name
    │   │   └── UnexpectedHtml    a page, or an error's text, in the file's place
    │   ├── Redirected         sent elsewhere; never followed
    │   ├── RangeIgnored       200 to a range request; the body was not read
    │   ├── WrongRange         206, but not the bytes that were asked for
    │   ├── WrongLength          fewer or more bytes than were announced
    │   ├── Changed            the file is not the one seen before
    │   └── SourceUnavailable            so many failures that going on would be rude
    ├── FormatError            the bytes themselves                  (ValueError)
    │   ├── BadManifest
    │   ├── NotParquet
    │   ├── BadFooter
    │   ├── BadPageIndex
    │   ├── BadUrlIndex     the URL index of 2012
    │   ├── BadSnapshot        of somebody's store: not what it should be, or not what the source has
    │   ├── BadDocument        an archived page that cannot be parsed
    │   ├── BadRecord          a WARC record that is not what the index says
    │   └── Encrypted
    ├── StoreError             the file of footers on this machine
    │   ├── StoreLocked        somebody else is writing
    │   ├── StoreDamaged       a value is not what was written
    │   ├── ForeignLog         what lies beside the store is another's
    │   └── DiskFailed         full, or broken                       (OSError)
    ├── QueryError             the question                          (ValueError)
    │   ├── UnknownCrawl
    │   ├── UnknownColumn
    │   ├── NotHarvested
    │   └── TooExpensive
    ├── Busy                   a server has more to do than it can
    ├── OutputFailed           the place that output goes to, unless it is this machine's disk
    ├── WorkersLost            processes of an executor died
    └── UnplannedRead          a bug: a read that no plan announced

Every message says what happened to which file and what to do about it: as a command, below which tracebacks show
the call that does the same from Python. ``exit_status`` is what the command line leaves with: 1 done in part, 2 a wrong
question, 74 the disk failed, 75 try again later (BSD's ``sysexits.h``).
"""


class CatalogueError(Exception):
    """The base of everything this package raises on purpose."""

    exit_status = 1


class SourceError(CatalogueError):
    """The source failed."""

    exit_status = 75


class NotFound(SourceError, FileNotFoundError):
    """There is no such file at the source."""


class Forbidden(SourceError, PermissionError):
    """The source refuses this one file; without the right to list, S3 says so of missing files too."""


class Blocked(SourceError, PermissionError):
    """The source refuses everything for now, because too much was asked of it."""


class Throttled(SourceError):
    """The source asks to be asked more slowly, or cannot be asked as soon as somebody wants."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which to ask again: those the source asked for, if it did, or those nobody waited for."""


class Unreachable(SourceError, ConnectionError):
    """No answer came, or the connection broke, or the server failed."""


class ConnectionRefused(Unreachable):
    """The host is there and refuses connections."""


class NameNotResolved(Unreachable):
    """The host's name, or its proxy's, has no address: it is wrong, or this machine is offline."""


class UnexpectedHtml(Unreachable):
    """A page or an error's text came with the status of a file: a listing, a captive portal, an S3 error."""


class Redirected(SourceError):
    """The source sent us elsewhere, which is never followed."""


class RangeIgnored(SourceError):
    """A range was asked for and the whole file was offered; its body was left unread."""


class WrongRange(SourceError):
    """The answer is for other bytes than those asked for."""


class WrongLength(SourceError):
    """The body is shorter or longer than the answer's own headers promise."""


class FileChanged(SourceError):
    """The file at the source is not the one that was seen, or told of, before."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """Whether the source itself said so, for it honours If-Match; else it was seen here."""


class SourceUnavailable(SourceError):
    """Too many requests failed for it to be polite, or useful, to go on."""


class FormatError(CatalogueError, ValueError):
    """Bytes that are not what their name says."""


class BadManifest(FormatError):
    """A manifest or crawl list that cannot be read."""


class NotParquet(FormatError):
    """The file does not end as a Parquet file does."""


class BadFooter(FormatError):
    """The footer cannot be decoded, or contradicts itself."""


class BadPageIndex(FormatError):
    """A page index that cannot be decoded, or contradicts its column chunk."""


class BadUrlIndex(FormatError):
    """The URL index of 2012, or what was given for it, contradicts itself."""


class BadSnapshot(FormatError):
    """A snapshot of a store is not what it says, or not what the source has; nothing of that part was taken."""


class BadRecord(FormatError):
    """A record that is damaged, or not the one that its capture speaks of; or a capture that names none."""


class BadDocument(FormatError):
    """What was archived of a page cannot be parsed."""


class Encrypted(FormatError):
    """The file, or a column of it, is encrypted."""


class StoreError(CatalogueError):
    """The store failed."""

    exit_status = 74


class StoreLocked(StoreError):
    """Another process is at work on the same thing."""

    exit_status = 75


class StoreDamaged(StoreError):
    """The store, or a value in it, is not what was written."""


class ForeignLog(StoreError):
    """The log beside the store is not its own; both may be whole, as long as nothing takes them for one."""


class DiskFailed(StoreError, OSError):
    """The disk is full or broken; what was committed before is kept."""


class QueryError(CatalogueError, ValueError):
    """A question that has no answer as it was put."""

    exit_status = 2

    def __init__(self, message: str, *, call: str | None = None) -> None:
        super().__init__(message)
        self.call = call
        """The call of ``Catalogue`` to make instead, or before."""
        if call:  # below the message in a traceback; there a command is of little use
            self.add_note(f"from Python: cat.{call}")


class UnknownCrawl(QueryError):
    """No such crawl."""


class UnknownColumn(QueryError):
    """No such column."""


class NotHarvested(QueryError):
    """The crawl's footers are not held yet."""

    def __init__(self, message: str, *, crawl: str | None = None, call: str | None = None) -> None:
        super().__init__(message, call=call)
        self.crawl = crawl
        """Which was asked for by its name, and could be answered for once it is harvested; None if there is none."""


class TooExpensive(QueryError):
    """The plan is larger than what was allowed."""


class Busy(CatalogueError):
    """More is asked of a server than it can answer soon."""

    exit_status = 75

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which to ask again."""


class Harvesting(Busy):
    """A crawl is being harvested on demand."""

    def __init__(self, message: str, crawl: str, done: int = 0, listed: int = 0, *, retry_after: float) -> None:
        super().__init__(message, retry_after=retry_after)
        self.crawl = crawl
        self.done = done
        """Files that were harvested or failed so far."""
        self.listed = listed
        """Files of the crawl; 0 while its manifest is not read."""


class OutputFailed(CatalogueError):
    """Output cannot be put where it is to go; what was fetched is kept."""

    exit_status = 75


class WorkersLost(CatalogueError):
    """Workers that were handed part of the work died, and nobody took over."""

    exit_status = 75


class UnplannedRead(CatalogueError):
    """Something was read that no plan announced. This is a bug in this package."""


class IncompleteAnswer(UserWarning):
    """An answer may lack rows, because files that might hold some are not harvested."""
