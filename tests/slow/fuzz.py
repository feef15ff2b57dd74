"""Look for bytes that a parser does not survive, guided by what they reach: ``python -m tests.slow.fuzz TARGET …``.

It needs ``atheris`` (https://github.com/google/atheris). Targets are those of ``tests.slow.parsers``. What is found is
printed, and goes to the folder in which this is started, as ``crash-…``; it belongs among the findings of
``tests/slow/test_soak_parsers.py``.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_LONGEST = 8192
"""Bytes of an input."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all if none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="a folder of one, kept for the next time")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        _fuzz(asked.targets[0], asked.seconds, asked.seed, asked.corpus)
    from tests.slow.parsers import TARGETS  # noqa: PLC0415 - in the process that fuzzes only behind atheris

    if unknown := {*asked.targets} - TARGETS.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}; targets are {', '.join(TARGETS)}")
    failed = 0
    for target in asked.targets or TARGETS:
        with TemporaryDirectory() as folder:
            corpus = (asked.corpus or Path(folder)) / target
            corpus.mkdir(parents=True, exist_ok=True)
            options = [f"--seconds={asked.seconds}", f"--seed={asked.seed}", f"--corpus={corpus}", "--here"]
            # libFuzzer ends its process, so each target has one of its own.
            done = subprocess.run([sys.executable, "-m", "tests.slow.fuzz", target, *options], check=False)
            failed |= done.returncode
    return int(bool(failed))


def _fuzz(name: str, seconds: int, seed: int, corpus: Path) -> None:
    import atheris  # noqa: PLC0415 - not installed with the tests

    with atheris.instrument_imports(include=["catalogue", "warcio"]):
        from tests.slow.parsers import TARGETS, mirror_of  # noqa: PLC0415 - instrumented as it is imported

    target = TARGETS[name]
    for number, data in enumerate(target.seeds(mirror_of(corpus.parent / "mirror"))):
        (corpus / f"seed-{number}").write_bytes(data[:_LONGEST])
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={_LONGEST}",
        "-timeout=5",
        "-rss_limit_mb=1024",
    ]
    arguments = [name, *options, "-print_final_stats=1", "-close_fd_mask=0", f"-artifact_prefix={Path.cwd()}{os.sep}"]
    atheris.Setup([*arguments, str(corpus)], target.accepts)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
