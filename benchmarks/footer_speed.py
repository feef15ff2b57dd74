"""How quickly footers become row groups."""

import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.crawls import COLUMNS, CRAWL, ROW_GROUPS, make_template
from benchmarks.processes import wait_for_quiet
from benchmarks.report import say, table
from catalogue.parquet.footer import MAGIC, decode_footer, with_trailer
from catalogue.parquet.summary import examine_footer

_FOOTERS, _RUNS = 200, 5


def main(*, full: bool) -> None:  # noqa: ARG001 - there is no more to it
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
        _row("pyarrow: read_metadata and to_dict", _everything, files),
        _row("pyarrow: read_metadata and bounds of the key", _keys, files),
    ]
    table(
        f"Footers of {template.footer_length:,} bytes, {ROW_GROUPS} row groups of {COLUMNS} columns, best of {_RUNS}",
        ["", "ms a footer", "footers/s", "row groups/s"],
        rows,
    )


def _everything(file: bytes) -> None:
    pq.read_metadata(pa.BufferReader(file)).to_dict()


def _keys(file: bytes) -> None:
    metadata = pq.read_metadata(pa.BufferReader(file))
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(0).statistics
        _ = statistics.min, statistics.max


def _row(name: str, work: Callable[[bytes], None], items: Sequence[bytes]) -> list[str | float]:
    def each(items: Sequence[bytes]) -> None:
        for item in items:
            work(item)

    return _timed(name, each, items)


def _timed(name: str, work: Callable[[Sequence[bytes]], None], items: Sequence[bytes]) -> list[str | float]:
    say(name)
    wait_for_quiet()
    best = float("inf")
    for _ in range(_RUNS):
        started = time.perf_counter()
        work(items)
        best = min(best, time.perf_counter() - started)
    return [name, 1000 * best / len(items), len(items) / best, ROW_GROUPS * len(items) / best]
