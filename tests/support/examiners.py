"""Examiners, and the children that they have."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from catalogue.examine import Examiner
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.summary import FileSummary, summarize_file
from catalogue.supervised import end_spare
from tests.support.footers import Made, made, small_file

SMALL = made(small_file())

FACTS = summarize_file(decode_footer(SMALL.footer, SMALL.file_size))


def children() -> set[int]:
    """The processes that this one started and that did not end yet."""
    if Path("/proc/self/status").exists():
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            except OSError:  # ended meanwhile
                continue
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(folder.name))
        return found
    listed = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False)
    return set(map(int, listed.stdout.split()))


def leaving_no_child() -> Iterator[None]:
    """What is started is new, and ends, but for one that waits for more."""
    end_spare()
    before = children()
    yield
    assert len(children() - before) <= 1
    end_spare()
    assert children() == before


def one_examiner() -> Iterator[Examiner]:
    """An examiner with one child."""
    with Examiner(children=1, seconds=30) as examiner:
        yield examiner


def child_of(examiner: Examiner) -> int:
    """The only child of an examiner, started if need be."""
    before = children()
    assert examine(examiner, SMALL) == FACTS
    started = children() - before
    assert len(started) == 1
    return started.pop()


def examine(examiner: Examiner, footer: Made) -> FileSummary:
    return examiner.examine(footer.footer, footer.file_size)


def with_unknown_field(kind: int, value: bytes) -> bytes:
    """A footer with one more field, number 100."""
    return SMALL.footer[:-1] + bytes([kind]) + b"\xc8\x01" + value + b"\x00"


def listed(kind: int, element: bytes) -> bytes:
    """The next field of a struct: a list of 20,000, which is the limit."""
    return b"\x19" + bytes([0xF0 | kind]) + b"\xa0\x9c\x01" + element * 20_000


class Watched(Examiner):
    """Counts what it is asked to examine."""

    def __init__(self) -> None:
        super().__init__(children=1)
        self.examined = 0

    def examine(self, footer: bytes, file_size: int, *, column_chunks: bool = False) -> FileSummary:
        self.examined += 1
        return super().examine(footer, file_size, column_chunks=column_chunks)
