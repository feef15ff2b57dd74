"""Run the slow tests at full size: ``python -m tests.slow [PART …] [--seed N] [--count N]``.

Each part is a module with a function ``run(count, seed, folder)``, which returns figures, or raises AssertionError with
what is needed to repeat the failure. ``test_slow.py`` calls the same functions with small counts.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

PARTS = {
    "traffic": 1_000_000,
    "commands": 20_000,
    "ends": 2_000,
    "mutations": 100_000,
    "parsers": 1_000_000,
    "both_indexes": 5_000,
    "cdx_load": 100_000,
}
"""Modules, and their full counts."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow", description="Run the slow tests at full size.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="instead of the full count")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    failed = False
    for part in options.parts or PARTS:
        count, began = options.count or PARTS[part], time.monotonic()
        figures: dict[str, object] = {"part": part, "seed": options.seed, "count": count}
        with TemporaryDirectory() as folder:
            try:
                figures |= import_module(f"tests.slow.{part}").run(count, options.seed, Path(folder))
            except AssertionError as error:
                figures["failed"] = str(error)
                failed = True
        print(json.dumps(figures | {"seconds": round(time.monotonic() - began, 1)}), flush=True)  # noqa: T201
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
