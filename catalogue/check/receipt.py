"""Receipts: which bytes of which files an answer was made of, and whether they are still the same.

A receipt is a text file of JSON lines: a head with the query and the digest of the answer, a line for each range that
was read, and the SHA-256 of all bytes before.
"""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from catalogue.atomic_files import open_file, output_file
from catalogue.commoncrawl.crawls import COLLINFO
from catalogue.commoncrawl.datasets import is_path
from catalogue.errors import FileChanged, FormatError, NotFound, QueryError, RangeIgnored, WrongRange
from catalogue.formatting import ReprMixin, json_line, plural, printable, size, to_json
from catalogue.progress import Progress
from catalogue.session import Session
from catalogue.settings import package_version
from catalogue.source.byte_ranges import ByteRange
from catalogue.source.observe import RequestEvent
from catalogue.source.parallel import run_ahead
from catalogue.store.folder_settings import as_setting

_FORMAT = 1
_LARGEST = 1 << 30
"""Bytes of a receipt; a query that takes a request a millisecond for an hour has one of this size."""
_LARGEST_FILE = (1 << 63) - 1
_IN_FLIGHT = 64 << 20
_CHUNK = 1 << 20
_LONGEST_HEAD, _LONGEST_LINE = 64 << 20, 1 << 16
"""Bytes of the first line, and of the line of a range."""
_AFTER_FOOTER = 8
"""Bytes for the length of a footer and the magic number."""
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class ReadRange:
    """A range of one version of a file."""

    path: str
    start: int
    end: int
    size: int
    etag: str | None
    sha256: str
    reason: str
    source: str


class ReceiptRecorder:
    """Records what is read, as an observer of requests, for any thread."""

    def __init__(self) -> None:
        self._reads: dict[ReadRange, None] = {}

    def __call__(self, event: RequestEvent) -> None:
        response = event.response
        if response is None or response.redirected or event.path == COLLINFO:  # the list may be on another host
            return
        read = ReadRange(
            event.path,
            response.start,
            response.start + len(response.body),
            response.total_size,
            response.etag,
            hashlib.sha256(response.body).hexdigest(),
            event.reason,
            event.source,
        )
        self._reads[read] = None

    def add_footers(self, session: Session, paths: Iterable[str]) -> None:
        """Add the footers in the store by which files were planned."""
        for path in paths:
            stored = session.store.get("files", path)
            if stored and stored.data:
                end = stored.size - _AFTER_FOOTER
                digest = hashlib.sha256(stored.data).hexdigest()
                start, origin = end - len(stored.data), stored.source
                read = ReadRange(path, start, end, stored.size, stored.etag, digest, "stored footer", origin)
                self._reads[read] = None

    def write(self, receipt: Path, answer: Path, query: dict[str, Any], incomplete: Iterable[str]) -> None:
        length, digest = _digest(answer)
        reads = sorted(self._reads, key=lambda read: (read.path, read.start, read.end))
        head = {
            "receipt": _FORMAT,
            "by": f"catalogue {package_version()}",
            "created": datetime.now(UTC),
            "query": query,
            "answer": {"file": answer.name, "bytes": length, "sha256": digest},
            "incomplete": list(incomplete),
            "ranges": len(reads),
        }
        whole = hashlib.sha256()
        with output_file(receipt) as file:
            for value in (head, *map(asdict, reads)):
                line = json_line(to_json(value))
                whole.update(line)
                file.write(line)
            file.write(_last_line(whole.hexdigest()))


@dataclass(frozen=True, slots=True, repr=False)
class Receipt(ReprMixin):
    """A receipt that is valid in itself."""

    query: dict[str, Any]
    created: str
    answer: str
    length: int
    sha256: str
    incomplete: tuple[str, ...]
    reads: tuple[ReadRange, ...]

    @property
    def bytes(self) -> int:
        return sum(read.end - read.start for read in self.reads)

    def _line(self) -> str:
        files = len({read.path for read in self.reads})
        return f"of {self.answer}: {plural(len(self.reads), 'range')} of {plural(files, 'file')}, {size(self.bytes)}"


def read_receipt(path: Path) -> Receipt:
    """Read a receipt and check its own digest.

    Raises:
        FormatError: if it is invalid or was changed.
        QueryError: if it cannot be read.
    """
    try:
        with open_file(path) as file:
            return _read_receipt(path, file)
    except OSError as error:
        raise QueryError(f"{path} cannot be read: {error.strerror}") from error


def _read_receipt(path: Path, file: BinaryIO) -> Receipt:
    length = os.fstat(file.fileno()).st_size
    if length > _LARGEST:
        raise FormatError(f"{path} is larger than {size(_LARGEST)}")
    last = len(_last_line("0" * 64))
    content, digest = max(0, length - last), hashlib.sha256()
    while chunk := file.read(min(_CHUNK, content - file.tell())):
        digest.update(chunk)
    if file.read(last + 1) != _last_line(digest.hexdigest()):
        raise FormatError(f"{path} is not a receipt, or was changed: its last line is not the digest of the others")
    file.seek(0)
    try:
        head = json.loads(file.readline(_LONGEST_HEAD))
        reads = []
        while file.tell() < content:
            reads.append(_checked(ReadRange(**json.loads(file.readline(_LONGEST_LINE)))))
        if head["receipt"] != _FORMAT or head["ranges"] != len(reads):
            raise FormatError(f"{path} has another format than this version writes")
        json.dumps(to_json(head), ensure_ascii=False).encode()  # raises an error for what cannot be printed
        answer = head["answer"]
        name = str(answer["file"])
        if not name or "\0" in name or name != Path(name).name:
            raise ValueError("invalid name of the answer")  # noqa: TRY301 - reported below
        return Receipt(
            dict(head["query"]),
            str(head["created"]),
            name,
            int(answer["bytes"]),
            str(answer["sha256"]),
            tuple(map(str, head["incomplete"])),
            tuple(reads),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path} is not a receipt: {printable(str(error)[:200])}") from error


def _checked(read: ReadRange) -> ReadRange:
    numbers = (read.start, read.end, read.size)
    if not (all(type(each) is int for each in numbers) and 0 <= read.start <= read.end <= read.size <= _LARGEST_FILE):
        raise ValueError("a range is outside of its file")
    texts = (read.path, read.sha256, read.reason, read.source)
    if not all(isinstance(each, str) for each in texts):
        raise ValueError("a range has a value of another type")
    if not (is_path(read.path) and _DIGEST.fullmatch(read.sha256)):
        raise ValueError("a range has an invalid path or digest")
    return read


def check_answer(receipt: Receipt, answer: Path) -> str | None:
    """Return why a file is not the answer of a receipt; None if it is.

    Raises:
        QueryError: if it cannot be read.
    """
    try:
        length, digest = _digest(answer)
    except OSError as error:
        raise QueryError(f"{answer} cannot be read: {error.strerror}; name it, as answer='FILE'") from error
    if length != receipt.length:
        return f"{answer} has {length:,} bytes, and its receipt {receipt.length:,}"
    return None if digest == receipt.sha256 else f"{answer} was changed: its SHA-256 is not that of the receipt"


def check_source(receipt: Receipt, session: Session) -> Iterator[str]:
    """Read the ranges of a receipt again, without the cache, and yield a sentence for each that differs.

    Raises:
        QueryError: if the receipt is of another source.
        SourceError: if the source fails.
    """
    source = session.source
    hosts = {each.url for each in source.hosts_of()}
    reads = [read for read in receipt.reads if read.source in hosts]
    if others := sorted({read.source for read in receipt.reads} - hosts):
        if not reads:
            place = shlex.quote(printable(as_setting(others[0])))
            raise QueryError(f"the receipt is of {printable(others[0])}; run the same command with --source {place}")
        yield from (f"ranges of {printable(other)} were not read" for other in others)
    at = Progress("reading", len(reads), 0)

    def check(read: ReadRange) -> str | None:
        place = f"{read.path}, {read.start:,} to {read.end - 1:,}"
        if read.start == read.end:
            return None
        try:
            response = source.get(read.path, ByteRange(read.start, read.end))
        except NotFound:
            return f"{read.path} no longer exists"
        except (FileChanged, RangeIgnored, WrongRange) as error:
            return f"{place}: {error}"
        if response.total_size != read.size:
            return f"{read.path} has {response.total_size:,} bytes, and the receipt {read.size:,}"
        return None if hashlib.sha256(response.body).hexdigest() == read.sha256 else f"{place} was changed"

    calls = run_ahead(
        source.connections,
        lambda read: check(read) and check(read),  # the response may be damaged, so another one confirms a problem
        reads,
        limit=_IN_FLIGHT,
        weight=lambda read: read.end - read.start,
    )
    with closing(calls), session.bars("ranges") as advance:
        for _, call in calls:
            problem = call.result()
            at.done += 1
            advance(at)
            if problem:
                yield problem


def _digest(path: Path) -> tuple[int, str]:
    with open_file(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _last_line(digest: str) -> bytes:
    return f'{{"sha256": "{digest}"}}\n'.encode()
