"""The slices of a join: cut so that they read no page and no block twice, and the ledger of those that are done."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from catalogue.cdx.block_file import StoredList
from catalogue.commoncrawl.crawls import COLUMNAR
from catalogue.join.keys import JoinKeys
from catalogue.output.ledger import JsonLedger
from catalogue.surt.interval import END, KeyInterval


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that decide about the memory of a join and the cost of an interruption."""

    keys: int = 100_000
    """Approximate keys of a slice."""
    row_groups: int = 32
    """Row groups of a slice, which have some GB."""
    blocks: int = 500
    """Blocks of a slice, of whose rows some wait in memory."""
    run: int = 16
    """Blocks between which no slice starts."""
    few: int = 1_000
    """Keys that are one slice in any case."""
    planned: int = 6
    """Slices of a crawl that are planned for its price."""
    rows: int = 200_000
    """Rows of the input for a file of the result."""
    unbounded: int = 1_000_000
    """Intervals of a crawl that is one slice, because keys of row groups are unknown."""
    batch: int = 1 << 13
    """Rows of a batch of sorted keys."""
    sorted: int = 160 << 20
    """Bytes of keys that are sorted in memory."""


DEFAULT_SIZES = Sizes()


@dataclass(frozen=True, slots=True)
class Slice:
    """Keys of one crawl, which are read as a whole."""

    crawl: str
    index: str
    subset: str
    """Subset of the columnar index, sorted separately; empty for all subsets of the query."""
    number: int
    keys: KeyInterval

    @property
    def name(self) -> str:
        return "-".join(filter(None, [self.crawl, self.subset, f"{self.number:05}"]))


Piece: TypeAlias = tuple[bytes, int]
"""Least key and number of row groups or blocks that are in one slice, because a key may be in several of them."""


def pieces_of_row_groups(bounds: Iterable[tuple[bytes, bytes]]) -> Iterator[Piece]:
    least, reached, count = b"", b"", 0
    for low, high in sorted(bounds):
        if count and low > reached:
            yield least, count
            least, count = low, 0
        least = least if count else low
        reached, count = max(reached, high), count + 1
    if count:
        yield least, count


def pieces_of_blocks(listed: StoredList, run: int) -> Iterator[Piece]:
    for part in listed.parts():
        for place in range(0, len(part), run):
            yield part.key(place), min(run, len(part) - place)


def cut(
    crawl: str, index: str, subset: str, pieces: Iterable[Piece], keys: JoinKeys, sizes: Sizes, *, splits: bool
) -> list[Slice]:
    """Cut keys between pieces; return the slices that have keys.

    Only with ``splits`` a cut may be within an interval of the join.
    """
    if len(keys) <= sizes.few:
        pieces = ()
    most = sizes.row_groups if index == COLUMNAR else sizes.blocks
    starts, count, begun = [b""], 0, 0
    size, before = 0, 0  # of the last piece, and the place where it starts
    for least, size_of_piece in pieces:
        place = keys.place(least)
        if keys.is_wide or place > before:  # a piece without keys is not read
            count += size
        size, before = size_of_piece, place
        if (
            (count + size > most or place - begun >= sizes.keys)
            and place > begun
            and (splits or keys.lacks_all(least, least + b"\0"))
        ):
            starts.append(least)
            count, begun = 0, place
    found: list[Slice] = []
    for start, end in pairwise([*starts, END]):
        if keys.place(end) > keys.place(start) or not keys.lacks_all(start, end):
            found.append(Slice(crawl, index, subset, len(found), KeyInterval(start, end)))
    return found


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
