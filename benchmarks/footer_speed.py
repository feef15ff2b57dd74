"""Speed of decoding and examining footers."""

import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.crawls import COLUMNS, CRAWL, ROW_GROUPS, make_template
from benchmarks.processes import wait_for_quiet
from benchmarks.report import say, table
from catalogue.parquet.footer import decode_footer, examine_footer
from catalogue.parquet.model import MAGIC
from catalogue.parquet.splice import with_trailer

_FOOTERS, _RUNS = 200, 5


def main(*, full: bool) -> None:  # noqa: ARG001 - all benchmarks have this parameter
    """Measure and print."""
    template = make_template()
    footers = [template.footer_of(CRAWL, number) for number in range(_FOOTERS)]
    files = [MAGIC + with_trailer(footer) for footer in footers]

    def decode(footer: bytes) -> None:
        decode_footer(footer, template.size)

    def examine(footer: bytes) -> None:
        examine_footer(footer, template.size)

    rows = [
        _row("decode_footer", decode, footers),
        _row("examine_footer", examine, footers),
        _row("pyarrow: read_metadata and to_dict", _read_all, files),
        _row("pyarrow: read_metadata and bounds of the key", _read_key_bounds, files),
    ]
    table(
        f"Footers of {template.footer_length:,} bytes, {ROW_GROUPS} row groups of {COLUMNS} columns, best of {_RUNS}",
        ["", "ms a footer", "footers/s", "row groups/s"],
        rows,
    )


def _read_all(file: bytes) -> None:
    pq.read_metadata(pa.BufferReader(file)).to_dict()


def _read_key_bounds(file: bytes) -> None:
    metadata = pq.read_metadata(pa.BufferReader(file))
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(0).statistics
        _ = statistics.min, statistics.max


def _row(name: str, work: Callable[[bytes], None], items: Sequence[bytes]) -> list[str | float]:
    def work_on_all(items: Sequence[bytes]) -> None:
        for item in items:
            work(item)

    return _timed(name, work_on_all, items)


def _timed(name: str, work: Callable[[Sequence[bytes]], None], items: Sequence[bytes]) -> list[str | float]:
    say(name)
    wait_for_quiet()
    best = float("inf")
    for _ in range(_RUNS):
        started = time.perf_counter()
        work(items)
        best = min(best, time.perf_counter() - started)
    return [name, 1000 * best / len(items), len(items) / best, ROW_GROUPS * len(items) / best]
