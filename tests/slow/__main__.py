"""Run parts of the soak at full size: ``python -m tests.slow [PART …] [--seed N] [--count N]``.

Each part is a module here with a function ``run(count, seed, folder)``: it tries so many times what the seed makes
it try, in a folder of its own, and returns the figures; or raises ``AssertionError`` with all that is needed to do
the same again. The suite calls the same functions with small counts.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

PARTS: dict[str, int] = {
    "traffic": 1_000_000,
    "kills": 1000,
    "errors": 20_000,
    "power": 2000,
    "mutations": 100_000,
    "parsers": 1_000_000,
    "api": 10_000,
}
"""How often, at full size."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow", description="Try at length what the suite tries.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="instead of the full size")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    failed = False
    for part in asked.parts or PARTS:
        count = asked.count or PARTS[part]
        began, cpu = time.monotonic(), time.process_time()
        figures: dict[str, object] = {"part": part, "seed": asked.seed, "count": count}
        with TemporaryDirectory() as folder:
            try:
                figures |= import_module(f"tests.slow.{part}").run(count, asked.seed, Path(folder))
            except AssertionError as error:
                figures["failed"] = str(error)
                failed = True
        figures |= {"seconds": round(time.monotonic() - began, 1), "cpu": round(time.process_time() - cpu, 1)}
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
