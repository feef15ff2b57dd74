"""What a join has done, so that it can go on after an interruption."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from catalogue.atomic_files import append, resume
from catalogue.errors import QueryError
from catalogue.join.slices import Slice
from catalogue.surt import KeyInterval


class JoinPart(NamedTuple):
    """What a slice has found."""

    file: str
    """Name of the file; empty if there is none, because it would be."""
    rows: int
    size: int
    first: int
    """Least number of its patterns; 0 if it has none."""
    last: int


class JoinLedger:
    """A file with a line of JSON for each step that is on disk."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        """Open the ledger of a join, or begin one.

        Raises:
            QueryError: if it is of another join, or cannot be read.
        """
        self._path = path
        self._crawls: dict[str, tuple[str, str, list[Slice]]] = {}
        """State, index and slices."""
        self.parts: dict[str, JoinPart] = {}
        """Parts by name of the slice."""
        self.failed: dict[str, str] = {}
        """Reasons, by name of the slice."""
        self.input: dict[str, Any] = {}
        """What is known of the input; empty until its keys are sorted."""
        self.rows: int | None = None
        """Rows of the complete result; None until it is on disk."""
        self._files: dict[str, int] = {}
        """Names and sizes of its files."""
        self._file: BinaryIO = resume(path)
        try:
            self._read(json.loads(json.dumps(about)))
        except BaseException:
            self._file.close()
            raise

    def _read(self, about: Mapping[str, Any]) -> None:
        lines = self._file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            self._file.seek(-len(lines.pop()), os.SEEK_CUR)
            self._file.truncate()
        try:
            entries = [json.loads(line) for line in lines]
            is_other = bool(entries) and entries[0]["about"] != about
            if is_other and not any("done" in entry for entry in entries):  # nothing would be lost
                self._file.seek(0)
                self._file.truncate()
                entries, is_other = [], False
            for entry in [] if is_other else entries[1:]:
                self._apply(entry)
        except (ValueError, KeyError, TypeError) as error:
            raise QueryError(f"{self._path} cannot be read; choose another output, or delete it") from error
        if is_other:
            raise QueryError(f"{self._path.parent.parent} has the result of another join; choose another output")
        if not entries:
            self._write({"about": about})

    def _apply(self, entry: dict[str, Any]) -> None:
        match entry:
            case {"input": about}:
                self.input = about
            case {"crawl": crawl, "index": index, "state": state, "slices": keys}:
                slices = [
                    Slice(crawl, index, subset, number, KeyInterval(bytes.fromhex(start), bytes.fromhex(end)))
                    for subset, number, start, end in keys
                ]
                for old in self._crawls.get(crawl, ("", "", []))[2]:
                    self.parts.pop(old.name, None)
                    self.failed.pop(old.name, None)
                self._crawls[crawl] = state, index, slices
                self.rows = None
            case {"done": name, **part}:
                self.parts[name] = JoinPart(**part)
                self.failed.pop(name, None)
            case {"failed": name, "reason": reason}:
                self.failed[name] = reason
            case {"finished": rows, "files": files}:
                self.rows, self._files = rows, files

    @property
    def slice_count(self) -> int:
        """Number of slices of all crawls."""
        return sum(len(slices) for _, _, slices in self._crawls.values())

    def slices(self, crawl: str, state: str) -> list[Slice] | None:
        """Return the slices of a crawl in this state of the store; None if they are not cut yet."""
        known, _, slices = self._crawls.get(crawl, ("", "", []))
        return slices if known == state else None

    def index(self, crawl: str) -> str:
        """Return the index by which a crawl is read."""
        return self._crawls[crawl][1]

    def forget_lost(self, folder: Path) -> None:
        """Forget the parts whose files are not there as they were written, and the result with them."""
        for name, part in [*self.parts.items()]:
            if part.file and not _is_file(folder / part.file, part.size):
                del self.parts[name]
                self.rows = None

    @property
    def finished(self) -> bool:
        return self.rows is not None

    def add_input(self, about: Mapping[str, Any]) -> None:
        self._enter({"input": dict(about)})

    def add_slices(self, crawl: str, index: str, state: str, slices: Sequence[Slice]) -> None:
        """Note the slices of a crawl, whose parts in another state are no longer used."""
        keys = [[each.subset, each.number, each.keys.start.hex(), each.keys.end.hex()] for each in slices]
        self._enter({"crawl": crawl, "index": index, "state": state, "slices": keys})

    def add_part(self, each: Slice, part: JoinPart) -> None:
        """Note the part of a slice, whose file is on disk."""
        self._enter({"done": each.name, **part._asdict()})

    def add_failed(self, each: Slice, reason: str) -> None:
        self._enter({"failed": each.name, "reason": reason})

    def finish(self, rows: int, files: Iterable[Path]) -> None:
        """Note that the complete result is on disk."""
        self._enter({"finished": rows, "files": {path.name: path.stat().st_size for path in files}})

    def has_result(self, folder: Path) -> bool:
        """Return whether the files of the complete result are there as they were written."""
        return all(_is_file(folder / name, size) for name, size in self._files.items())

    def parts_of(self, first: int, last: int) -> Iterator[JoinPart]:
        """Yield the parts that have patterns with numbers between two numbers, inclusive."""
        for part in self.parts.values():
            if part.rows and part.first <= last and part.last >= first:
                yield part

    def _enter(self, entry: dict[str, Any]) -> None:
        self._apply(entry)
        self._write(entry)

    def _write(self, entry: Mapping[str, Any]) -> None:
        append(self._file, json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def _is_file(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
