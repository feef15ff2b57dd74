"""What a join has done before an interruption."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from catalogue.join.slices import Slice
from catalogue.output.ledger import JsonLedger
from catalogue.surt import KeyInterval


class JoinPart(NamedTuple):
    """What a slice has found."""

    file: str
    """Empty if there are no rows."""
    rows: int
    size: int
    first: int
    """Least number of its patterns; 0 if it has none."""
    last: int


class JoinLedger(JsonLedger):
    """The ledger of a join."""

    replaces_unused = True

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._crawls: dict[str, tuple[str, str, list[Slice]]] = {}
        """State, index and slices."""
        self.parts: dict[str, JoinPart] = {}
        """Parts by name of the slice."""
        self.failed: dict[str, str] = {}
        """Reasons, by name of the slice."""
        self.input: dict[str, Any] = {}
        """Counts of the input; empty until its keys are sorted."""
        self.rows: int | None = None
        """Rows of the complete result; None until it is on disk."""
        self._files: dict[str, int] = {}
        super().__init__(
            path,
            about,
            unreadable=f"{path} cannot be read; choose another output, or delete it",
            other=f"{path.parent.parent} has the result of another join; choose another output",
        )

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
        return sum(len(slices) for _, _, slices in self._crawls.values())

    def slices(self, crawl: str, state: str) -> list[Slice] | None:
        """Return the slices of a crawl; None if they are not cut, or what is stored has another ``state``."""
        known, _, slices = self._crawls.get(crawl, ("", "", []))
        return slices if known == state else None

    def index(self, crawl: str) -> str:
        return self._crawls[crawl][1]

    def forget_lost(self, folder: Path) -> None:
        """Forget parts whose files are missing or changed, and the result with them."""
        for name, part in [*self.parts.items()]:
            if part.file and not _is_file(folder / part.file, part.size):
                del self.parts[name]
                self.rows = None

    @property
    def finished(self) -> bool:
        return self.rows is not None

    def add_input(self, about: Mapping[str, Any]) -> None:
        self._enter({"input": about})

    def add_slices(self, crawl: str, index: str, state: str, slices: Sequence[Slice]) -> None:
        keys = [[each.subset, each.number, each.keys.start.hex(), each.keys.end.hex()] for each in slices]
        self._enter({"crawl": crawl, "index": index, "state": state, "slices": keys})

    def add_part(self, each: Slice, part: JoinPart) -> None:
        self._enter({"done": each.name, **part._asdict()})

    def add_failed(self, each: Slice, reason: str) -> None:
        self._enter({"failed": each.name, "reason": reason})

    def finish(self, rows: int, files: Iterable[Path]) -> None:
        self._enter({"finished": rows, "files": {path.name: path.stat().st_size for path in files}})

    def has_result(self, folder: Path) -> bool:
        """Return whether the files of the result are unchanged."""
        return all(_is_file(folder / name, size) for name, size in self._files.items())

    def parts_of(self, first: int, last: int) -> Iterator[JoinPart]:
        for part in self.parts.values():
            if part.rows and part.first <= last and part.last >= first:
                yield part


def _is_file(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
