"""What a check finds, and of which files it asks the source."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, takewhile

from catalogue.display import Displayed
from catalogue.errors import QueryError, SourceError
from catalogue.formatting import parse_size, plural, size

REPAIR = "catalogue repair"
EMPTY = "no file was compared with the source, since none is in this share; choose another share, such as 1%"
LOST = "StoreDamaged: it was lost with the damaged store"
"""Why a file is not held that was, until it is taken again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or may be."""

    kind: str
    """``store`` for its file; ``files``, ``documents``, ``failures``, ``indexes`` or ``facts`` for a value in that
    table of it; ``catalogue``; ``suspect`` for a file that no checksum tells from a right one; ``source`` for one that
    the source has otherwise."""
    key: str
    """Path of a file or document, ``path#row_group`` of a page index; empty where it is about all."""
    what: str
    """What is wrong with it."""
    next: str = REPAIR
    """The command that mends it."""

    def __str__(self) -> str:
        return f"{self.key}: {self.what}" if self.key else self.what


def told_next(findings: Sequence[Finding]) -> Iterator[str]:
    """Which commands mend findings, and these."""
    yield from (f"run: {command}" for command in dict.fromkeys(finding.next for finding in findings))
    yield from (f"{finding.kind}: {finding}" for finding in findings)


@dataclass(slots=True, repr=False)
class Checked(Displayed):
    """What a check came to."""

    findings: list[Finding] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)
    """How many were looked at, by table of the store."""
    bytes: int = 0
    """That they have."""
    catalogue: bool = False
    """Whether the catalogue was compared with the store."""
    compared: int = 0
    """Files that were compared with the source; a request each."""
    equal: int = 0
    """Of these, those that are the same."""
    seed: int | None = None
    """Which share was compared, if it was drawn at random."""
    empty: bool = False
    """Whether the share to compare contains no stored file, so that nothing was compared with the source."""
    failure: SourceError | None = None
    """Why not all of it could be compared."""

    @property
    def complete(self) -> bool:
        """Whether all is well, and all was looked at."""
        return not self.findings and not self.empty and self.failure is None

    def _line(self) -> str:
        found = plural(len(self.findings), "finding") if self.findings else "nothing is wrong"
        return f"{sum(self.values.values()):,} values, {size(self.bytes)}: {found}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from ((table, f"{count:,}") for table, count in self.values.items())
        yield "catalogue", "compared with the store" if self.catalogue else "not compared with the store"
        if self.compared:
            yield "source", f"{self.equal:,} of {plural(self.compared, 'file')} the same"

    def _notes(self) -> Iterator[str]:
        if self.empty:
            yield f"{EMPTY}."
        if self.failure:
            yield f"Not all could be compared: {self.failure}"
        yield from told_next(self.findings)


@dataclass(frozen=True, slots=True)
class Share:
    """Which of the files are compared with the source."""

    percent: float | None = None
    part: tuple[int, int] | None = None
    """The first is from 1 to the second."""
    size: int | None = None
    """Bytes, of footers and page indexes."""

    @classmethod
    def of(cls, text: str) -> "Share":
        """What ``1%``, ``3/30`` and ``50MB`` mean.

        Raises:
            QueryError: if it is none of these.
        """
        if percent := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text):
            if 0 < float(percent[1]) <= 100:  # noqa: PLR2004
                return cls(percent=float(percent[1]))
        elif part := re.fullmatch(r"([0-9]+)/([0-9]+)", text):
            if 1 <= int(part[1]) <= int(part[2]):
                return cls(part=(int(part[1]), int(part[2])))
        else:
            with suppress(QueryError):
                return cls(size=parse_size(text))
        message = (
            f"{text!r} is no share of the files; write it as 1%, as 3/30 for the third of thirty parts, or as 50MB"
        )
        raise QueryError(message)

    def choose(self, paths: Sequence[str], length: Callable[[str], int], seed: int) -> list[str]:
        """The files that are meant, in order of name; of parts each file is in one, whichever others there are.

        Args:
            paths: of those held.
            length: bytes that are asked for of one.
            seed: draws them.
        """
        if self.part:
            at, parts = self.part
            return [path for path in sorted(paths) if _number(path) % parts == at - 1]
        drawn = random.Random(seed).sample(sorted(paths), len(paths))  # noqa: S311 - nobody is to be surprised
        if self.percent is not None:
            return sorted(drawn[: max(1, round(len(drawn) * self.percent / 100))])
        most = self.size or 0
        taken = takewhile(lambda sofar: sofar <= most, accumulate(map(length, drawn)))  # no more are looked into
        return sorted(drawn[: max(1, sum(1 for _ in taken))])


def _number(path: str) -> int:
    return int.from_bytes(blake2b(path.encode(), digest_size=8).digest())
