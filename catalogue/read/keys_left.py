"""Lower bounds of the keys that are still to be read."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalogue.parquet.arrow_arrays import numbers
from catalogue.plan.plan import ReadPlan
from catalogue.plan.sections import Section, sections
from catalogue.read.key_order import Piece
from catalogue.read.row_order import is_all
from catalogue.surt import END


class GroupsLeft:
    """Lower bounds of the keys of the row groups of a plan, from each of them on."""

    def __init__(self, plan: ReadPlan) -> None:
        """Use the bounds of a plan."""
        self._sections: list[Section] = []
        """By row group."""
        self._leasts: list[bytes] = []
        """By row group, of its keys and those of the row groups after it in its section."""
        for section in sections(plan):
            leasts = [group.least for file in section.files for group in file.row_groups]
            self._leasts += reversed([*accumulate(reversed(leasts), min)])
            self._sections += [section] * len(leasts)

    def after(self, number: int) -> bytes:
        """Return the same of the row groups after a row group; ``END`` if it is the last one of its section."""
        following = self._sections[number + 1 : number + 2]
        return self._leasts[number + 1] if following and following[0] is self._sections[number] else END

    def pieces(self, tables: Sequence[pa.Table], groups: range) -> Iterator[Piece]:
        """Yield the rows of some row groups, which have crawl and subset, as a piece of each section."""
        of_section: dict[tuple[str, str], pa.Table] = {}
        if tables:
            rows = pa.concat_tables(tables)
            names = [rows.column(name).combine_chunks() for name in ("crawl", "subset")]
            changes = pc.or_(*(pc.not_equal(name[1:], name[:-1]) for name in names))
            cuts = (numbers(pa.chunked_array([pc.indices_nonzero(changes)])) + 1).tolist()
            for start, end in pairwise([0, *cuts, rows.num_rows]):
                crawl, subset = (name[start].as_py() for name in names)
                of_section[crawl, subset] = rows.slice(start, end - start)
        for number in groups:
            section = self._sections[number]
            if number == groups[-1] or self._sections[number + 1] is not section:
                yield Piece(of_section.get((section.crawl, section.subsets[0])), self.after(number))


class KeysLeft:
    """Lower bounds of the keys of consecutive rows, from each of them on."""

    def __init__(self, pieces: Iterable[pa.BinaryArray]) -> None:
        """Use the keys in pieces, some of which may be null."""
        self._pieces = [piece for piece in pieces if len(piece)]
        self._starts: list[int] = np.cumsum([0, *map(len, self._pieces)]).tolist()
        self._ascend = [_ascends(piece) for piece in self._pieces]
        leasts = [_least(piece, ascends) for piece, ascends in zip(self._pieces, self._ascend, strict=True)]
        self._after = [*accumulate(reversed(leasts), min, initial=END)][::-1]
        """By piece, of its keys and those of the pieces after it."""

    def at(self, row: int) -> bytes:
        """Return a lower bound of the keys of a row and those after it; ``END`` if there are none."""
        number = bisect_right(self._starts, row) - 1
        if number == len(self._pieces) or not self._ascend[number]:
            return self._after[number]
        key: bytes = self._pieces[number][row - self._starts[number]].as_py()
        return min(key, self._after[number + 1])


def _ascends(keys: pa.BinaryArray) -> bool:
    return not keys.null_count and is_all(pc.less_equal(keys[:-1], keys[1:]))


def _least(keys: pa.BinaryArray, ascends: bool) -> bytes:  # noqa: FBT001
    scalar = keys[0] if ascends else pc.min_max(keys).values()[0]
    least: bytes = scalar.as_py() if scalar.is_valid else END
    return least
