"""What a check finds, and which files it compares with the source."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, takewhile

from catalogue.errors import QueryError, SourceError
from catalogue.formatting import ReprMixin, parse_size, plural, size

REPAIR = "catalogue check --repair"
EMPTY = "no file was compared with the source: the share contains no file; choose another, such as 1%"


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect, or a suspicion."""

    kind: str
    """``store`` for the SQLite file; ``files``, ``documents``, ``failures``, ``indexes``, ``facts`` or ``blocks``
    for a value; ``catalogue`` for the metadata database; ``suspect`` for a file that overlaps or equals others;
    ``source`` for a changed file.
    """
    key: str
    """Path of a file or document, or ``path#row_group``; empty if it concerns everything."""
    what: str
    next: str = REPAIR
    """The command that repairs it, if there is one."""

    def __str__(self) -> str:
        return f"{self.key}: {self.what}" if self.key else self.what


@dataclass(slots=True, repr=False)
class Checked(ReprMixin):
    """The result of a check."""

    findings: list[Finding] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)
    """The number of values, by table of the store."""
    bytes: int = 0
    catalogue: bool = False
    """Whether the metadata database was compared with the store."""
    compared: int = 0
    """The number of files that were compared with the source, by one request each."""
    equal: int = 0
    seed: int | None = None
    empty: bool = False
    """Whether a comparison was requested and nothing was compared."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what was not compared, and why."""
    failure: SourceError | None = None
    """Why not all of the share could be compared."""
    repaired: bool = False
    """Whether damaged values were deleted and the metadata database was rebuilt."""
    dropped: list[str] = field(default_factory=list)
    """Paths of files whose stored footers were deleted."""
    harvests: list[str] = field(default_factory=list)
    """The commands that fetch them again."""

    @property
    def unrepaired(self) -> list[Finding]:
        """The findings that this check did not repair."""
        return [finding for finding in self.findings if not (self.repaired and finding.next == REPAIR)]

    @property
    def commands(self) -> list[str]:
        """What to run next."""
        return [*dict.fromkeys(finding.next for finding in self.unrepaired if finding.next), *self.harvests]

    @property
    def complete(self) -> bool:
        """Whether everything is valid now, and something of a requested comparison was compared."""
        return not (self.unrepaired or self.harvests or self.empty) and self.failure is None

    def _line(self) -> str:
        found = plural(len(self.findings), "finding") if self.findings else "no defects"
        return f"{sum(self.values.values()):,} values, {size(self.bytes)}: {found}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from ((table, f"{count:,}") for table, count in self.values.items())
        yield "catalogue", "compared with the store" if self.catalogue else "not compared with the store"
        if self.compared:
            yield "source", f"{self.equal:,} of {plural(self.compared, 'file')} equal"

    def _notes(self) -> Iterator[str]:
        yield from self.notes
        if self.failure:
            yield f"Not all of the share could be compared: {self.failure}"
        yield from (f"run: {command}" for command in self.commands)
        yield from (f"{finding.kind}: {finding}" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Share:
    """Which files are compared with the source."""

    percent: float | None = None
    part: tuple[int, int] | None = None
    size: int | None = None

    @classmethod
    def of(cls, text: str) -> "Share":
        if percent := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text):
            if 0 < float(percent[1]) <= 100:  # noqa: PLR2004
                return cls(percent=float(percent[1]))
        elif part := re.fullmatch(r"([0-9]+)/([0-9]+)", text):
            if 1 <= int(part[1]) <= int(part[2]):
                return cls(part=(int(part[1]), int(part[2])))
        else:
            with suppress(QueryError):
                return cls(size=parse_size(text))
        raise QueryError(
            f"{text!r} is not a share of the files; write it as 1%, as 3/30 for the third of thirty parts, or as 50MB"
        )

    def choose(self, paths: Sequence[str], length: Callable[[str], int], seed: int) -> list[str]:
        """Return the chosen paths, sorted; each file is in one part, independently of others."""
        if self.part:
            at, parts = self.part
            digests = {path: blake2b(path.encode(), digest_size=8).digest() for path in sorted(paths)}
            return [path for path, digest in digests.items() if int.from_bytes(digest) % parts == at - 1]
        drawn = random.Random(seed).sample(sorted(paths), len(paths))  # noqa: S311
        if self.percent is not None:
            return sorted(drawn[: max(1, round(len(drawn) * self.percent / 100))])
        most = self.size or 0
        within = takewhile(lambda total: total <= most, accumulate(map(length, drawn)))
        return sorted(drawn[: max(1, sum(1 for _ in within))])
