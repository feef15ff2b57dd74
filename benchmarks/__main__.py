"""Run benchmarks and print their tables; after all of them one table of what they found is written."""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO, TextIOBase
from pathlib import Path

from benchmarks import export, fetch, footer_speed, harvest_speed, lookup, many, scale, serve, site
from benchmarks.peers import PEERS
from benchmarks.report import Neighbours, machine, say
from benchmarks.summary import Result, document, short, summary

_ALL: dict[str, Callable[..., Iterable[Result] | None]] = {
    "harvest_speed": harvest_speed.main,
    "site": site.main,
    "lookup": lookup.main,
    "fetch": fetch.main,
    "serve": serve.main,
    "footer_speed": footer_speed.main,
    "scale": scale.main,
    "export": export.main,
    "many": many.main,
    "lookup_spark": lookup.by_spark,
}
"""Those whose results are in the one table come first, in its order."""
_RESULTS = Path(__file__).parent / "RESULTS.md"


class _Both(TextIOBase):
    """Prints, and keeps what was printed."""

    def __init__(self) -> None:
        self.kept = StringIO()
        self._printed = sys.stdout

    def write(self, text: str, /) -> int:
        self._printed.write(text)
        return self.kept.write(text)

    def flush(self) -> None:
        self._printed.flush()


def main() -> int:
    """Run those named, or all, which then have their results written; 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(_ALL)}; all unless named")
    parser.add_argument("--full", action="store_true", help="measure what is extrapolated otherwise; takes long")
    given = parser.parse_args()
    if unknown := set(given.name) - set(_ALL):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(_ALL)}")
    head, neighbours = machine(), Neighbours()
    print(head)
    results: list[Result] = []
    failed: dict[str, str] = {}
    both = _Both()
    with redirect_stdout(both):
        for name in given.name or _ALL:
            started = time.monotonic()
            try:
                results.extend(_ALL[name](full=given.full) or ())  # keeps what was found before it failed
            except Exception as why:  # noqa: BLE001 - it is told in full, and the others have their turn
                traceback.print_exc()
                failed[name] = short(str(why))
            say(f"{name}: {time.monotonic() - started:.0f} s")
    head += neighbours.told()
    print(f"\n{summary(results)}\n\n{head}")
    if not given.name:
        others = ", ".join(dict.fromkeys(each for peer in PEERS.values() for each in peer)).replace("==", " ")
        _RESULTS.write_text(document(f"{head}. Others: {others}.", results, failed, both.kept.getvalue()), "utf-8")
        say(f"{_RESULTS} is written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
