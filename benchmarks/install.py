"""What an installation downloads and takes, and how long commands take to start in it.

The wheel of ``make wheel`` is installed into empty environments with the versions of ``constraints.txt``. Seconds with
empty caches contain downloads from the package index, so they depend on the network.
"""

import os
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.processes import ROOT, Failed, away_from_home, wait_for_quiet
from benchmarks.report import say, table
from catalogue.demo import write_miniature

_PACKAGE = "commoncrawl-catalogue"
_CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
_UV = str(Path(sys.executable).with_name("uv"))
_INSTALLS, _STARTS = 3, 9
"""Measurements of which the median counts."""
_CRAWL = "CC-MAIN-2022-05"
_QUERY = ("query", "https://shop.example.com/", "--crawl", _CRAWL)


def main(*, full: bool) -> None:
    """Measure and print; ``full`` also measures installations of all extras."""
    wheels = [*(ROOT / "dist/compiled").glob("*.whl")]
    if len(wheels) != 1:
        message = "there is no wheel to install; run: make wheel"
        raise Failed(message)
    (wheel,) = wheels
    table(
        "Size of an installation",
        ["extras", "packages", "MB to download"],
        [[extras or "none", *_downloads(wheel, extras)] for extras in ("", "serve", "s3", "all")],
    )
    with TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        rows = [_installations(folder, wheel, extras) for extras in (["", "all"] if full else [""])]
        table(
            f"Seconds of an installation, median of {_INSTALLS}",
            [
                "extras",
                "uv, from its cache",
                "and the index",
                "uv, no cache",
                "pip, from its cache",
                "pip, no cache",
                "MB on disk",
            ],
            rows,
        )
        table(
            f"CPU seconds of a command, modules compiled to bytecode, median of {_STARTS}",
            ["command", "CPU s", "seconds"],
            _starts(folder, wheel),
        )


def _downloads(wheel: Path, extras: str) -> tuple[int, float]:
    """Return the number of packages, and their megabytes; of several wheels that fit, the largest counts."""
    requirement = f"{_PACKAGE}[{extras}] @ {wheel.as_uri()}"
    command = [
        _UV,
        "pip",
        "compile",
        "--quiet",
        "--python",
        sys.executable,
        *_CONSTRAINTS,
        "--format",
        "pylock.toml",
        "-",
    ]
    locked = tomllib.loads(_output(command, given=requirement))["packages"]
    files = [package.get("wheels") or [package.get("sdist", {"size": wheel.stat().st_size})] for package in locked]
    return len(files), sum(max(file["size"] for file in each) for each in files) / 1e6


def _installations(folder: Path, wheel: Path, extras: str) -> list[Any]:
    requirement = f"{_PACKAGE}[{extras}] @ {wheel.as_uri()}"
    environment = folder / "environment"
    uv = (_UV, "pip", "install", "--quiet", *_CONSTRAINTS, "--python", str(environment / "bin/python"))
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(environment / "bin/python"),
        "install",
        "--quiet",
        *_CONSTRAINTS,
    )
    # The first ones fill the caches for the others.
    ways = [
        [*uv, requirement],
        [*uv, "--offline", requirement],
        [*uv, "--no-cache", requirement],
        [*pip, requirement],
        [*pip, "--no-cache-dir", requirement],
    ]
    for way in (ways[0], ways[3]):
        _install(environment, way)
    seconds = [median(_install(environment, way) for _ in range(_INSTALLS)) for way in ways]
    size = sum(file.lstat().st_size for file in environment.rglob("*")) / 1e6
    return [extras or "none", seconds[1], seconds[0], seconds[2], seconds[3], seconds[4], size]


def _install(environment: Path, command: Sequence[str]) -> float:
    """Return the seconds of an installation into an empty environment."""
    venv.create(environment, clear=True, with_pip=False)
    say(" ".join(word for word in command if word.startswith("-") or "/" not in word))
    return _seconds(lambda: _output(command))


def _starts(folder: Path, wheel: Path) -> list[list[Any]]:
    """Return the costs of commands on a miniature crawl in a folder, with footers and the list of blocks stored."""
    environment, home = folder / "environment", folder / "home"
    python, program = str(environment / "bin/python"), str(environment / "bin/catalogue")
    _install(
        environment, [_UV, "pip", "install", "--quiet", *_CONSTRAINTS, "--python", python, "--compile", str(wheel)]
    )
    write_miniature(folder / "mirror")
    settings = {"CATALOGUE_SOURCE": str(folder / "mirror"), "CATALOGUE_DATA": str(folder / "data")}
    variables = {**away_from_home(home), **settings}
    variables.pop("PYTHONPATH", None)
    for index in ("columnar", "cdx"):
        _output([program, "harvest", "--crawl", _CRAWL, "--index", index], environment=variables)
    rows = []
    for command in (
        [python, "-c", ""],
        [program, "--version"],
        *([program, *_QUERY, "--index", i] for i in ("columnar", "cdx")),
    ):
        wait_for_quiet()
        runs = [_cost(command, variables) for _ in range(_STARTS)]
        shown = " ".join(command[1:]).replace(" ".join(_QUERY), "query URL")
        rows.append(
            [
                f"catalogue {shown}" if command[0] == program else "python, empty program",
                *map(median, zip(*runs, strict=True)),
            ]
        )
    return rows


def _cost(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the CPU seconds and the seconds of a command."""
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        message = f"{' '.join(command)} exits with status {process.returncode}"
        raise Failed(message)
    return usage.ru_utime + usage.ru_stime, time.monotonic() - started


def _seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _output(command: Sequence[str], *, given: str = "", environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        message = f"{' '.join(command)} failed:\n{done.stderr}"
        raise Failed(message)
    return done.stdout
