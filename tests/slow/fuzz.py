"""Search for bytes that a parser does not survive, with coverage feedback: ``python -m tests.slow.fuzz TARGET …``.

It needs ``atheris``. Targets are those of ``tests.slow.parsers``. Bytes that were found are written to ``crash-…`` in
the current folder; they belong to ``FINDINGS`` of ``tests/slow/test_slow.py``.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_LONGEST = 8192


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all of them by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        _fuzz(options.targets[0], options.seconds, options.seed, options.here)
    with TemporaryDirectory() as folder:
        from tests.slow.mutations import mirror_of  # noqa: PLC0415 - instrumented by _fuzz
        from tests.slow.parsers import targets  # noqa: PLC0415 - instrumented by _fuzz

        failed = 0
        for name in options.targets or targets(mirror_of(Path(folder) / "mirror")):
            # libFuzzer ends its process, so each target has its own.
            command = [
                sys.executable,
                "-m",
                "tests.slow.fuzz",
                name,
                f"--seconds={options.seconds}",
                f"--here={folder}",
            ]
            failed |= subprocess.run([*command, f"--seed={options.seed}"], check=False).returncode
    return int(bool(failed))


def _fuzz(name: str, seconds: int, seed: int, folder: Path) -> None:
    import atheris  # noqa: PLC0415 - not installed with the tests

    with atheris.instrument_imports(include=["catalogue", "warcio"]):
        from tests.slow.mutations import mirror_of  # noqa: PLC0415 - instrumented
        from tests.slow.parsers import targets  # noqa: PLC0415 - instrumented

    target, corpus = targets(mirror_of(folder / "mirror"))[name], folder / name
    corpus.mkdir()
    for number, data in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(data[:_LONGEST])
    limits = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={_LONGEST}", "-timeout=5", "-rss_limit_mb=1024"]
    arguments = [name, *limits, "-print_final_stats=1", "-close_fd_mask=0", f"-artifact_prefix={Path.cwd()}{os.sep}"]
    atheris.Setup([*arguments, str(corpus)], target.accepts)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
