"""Run benchmarks and print their tables; a run of all benchmarks writes RESULTS.md."""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO, TextIOBase
from pathlib import Path

from benchmarks import (
    cluster,
    export,
    fetch,
    footer_speed,
    harvest_speed,
    install,
    join,
    lookup,
    many,
    scale,
    serve,
    site,
    values,
)
from benchmarks.peers import PEERS
from benchmarks.report import Neighbours, machine, say
from benchmarks.summary import Result, document, grown, short, summary

_ALL: dict[str, Callable[..., Iterable[Result] | None]] = {
    "harvest_speed": harvest_speed.main,
    "site": site.main,
    "values": values.main,
    "lookup": lookup.main,
    "fetch": fetch.main,
    "serve": serve.main,
    "footer_speed": footer_speed.main,
    "scale": scale.main,
    "export": export.main,
    "many": many.main,
    "join": join.main,
    "cluster": cluster.main,
    "install": install.main,
    "lookup_spark": lookup.by_spark,
}
"""Benchmarks with results in the summary come first, in its order."""
_RESULTS = Path(__file__).parent / "RESULTS.md"


class _Tee(TextIOBase):
    """Standard output that also records the text."""

    def __init__(self) -> None:
        self.recorded = StringIO()
        self._printed = sys.stdout

    def write(self, text: str, /) -> int:
        self._printed.write(text)
        return self.recorded.write(text)

    def flush(self) -> None:
        self._printed.flush()


def main() -> int:
    """Run the named benchmarks, or all and write their results; return 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(_ALL)}; default: all")
    parser.add_argument("--full", action="store_true", help="measure larger cases; takes long")
    options = parser.parse_args()
    if unknown := set(options.name) - set(_ALL):
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; use one of {', '.join(_ALL)}")
    head, neighbours = machine(), Neighbours()
    print(head)
    results: list[Result] = []
    failed: dict[str, str] = {}
    tee = _Tee()
    with redirect_stdout(tee):
        for name in options.name or _ALL:
            started = time.monotonic()
            try:
                results.extend(_ALL[name](full=options.full) or ())  # keeps the results before a failure
            except Exception as error:  # noqa: BLE001 - printed in full; the other benchmarks continue
                traceback.print_exc()
                failed[name] = short(str(error))
            say(f"{name}: {time.monotonic() - started:.0f} s")
    head += neighbours.describe()
    print(f"\n{summary(results)}\n\n{head}")
    for sentence in grown(results, _RESULTS.read_text("utf-8") if _RESULTS.exists() else ""):
        print(f"more than published: {sentence}")
    if not options.name:
        others = ", ".join(dict.fromkeys(package for peer in PEERS.values() for package in peer)).replace("==", " ")
        _RESULTS.write_text(document(f"{head}. Others: {others}.", results, failed, tee.recorded.getvalue()), "utf-8")
        say(f"wrote {_RESULTS}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
