"""Run benchmarks and print their tables."""

import argparse

from benchmarks import export, fetch, footer_speed, harvest_speed, lookup, many, scale, serve
from benchmarks.report import machine

_ALL = {
    "harvest_speed": harvest_speed.main,
    "footer_speed": footer_speed.main,
    "scale": scale.main,
    "export": export.main,
    "lookup": lookup.main,
    "lookup_spark": lookup.by_spark,
    "many": many.main,
    "fetch": fetch.main,
    "serve": serve.main,
}


def main() -> None:
    """Run those named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(_ALL)}; all unless named")
    parser.add_argument("--full", action="store_true", help="measure what is extrapolated otherwise; takes long")
    given = parser.parse_args()
    if unknown := set(given.name) - set(_ALL):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(_ALL)}")
    print(machine())
    for name in given.name or _ALL:
        _ALL[name](full=given.full)


if __name__ == "__main__":
    main()
