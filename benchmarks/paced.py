"""A server as slow as a distant one: late with every answer, and slow with every byte."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from benchmarks.processes import ROOT, Server, wait_for_quiet

LATENCY = 0.03
RATE = 40e6
"""Bytes a second of a connection."""


@contextmanager
def serving(folder: Path, file: str) -> Iterator[tuple[Server, float]]:
    """Serve a folder, late and slowly; with it the rate of one connection, as measured with one of its files."""
    with _started(folder, RATE) as server:
        reached = _measured_rate(server, folder, file)
    # It sleeps between two pieces, and somewhat too long; what that costs a byte is the same at any rate.
    told = 1 / max(1 / RATE - (1 / reached - 1 / RATE), 0.1 / RATE)
    with _started(folder, told) as server:
        yield server, _measured_rate(server, folder, file)


@contextmanager
def _started(folder: Path, rate: float) -> Iterator[Server]:
    pace = ["--latency", str(LATENCY), "--rate", str(rate)]
    command = [sys.executable, "-m", "tests.support.faults", str(folder), *pace, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


def _measured_rate(server: Server, folder: Path, file: str) -> float:
    """Bytes a second of one connection."""
    asked = min(40_000_000, (folder / file).stat().st_size)
    request = Request(server.url + file, headers={"Range": f"bytes=0-{asked - 1}"})
    wait_for_quiet(at_most=5.0)
    started = time.monotonic()
    with build_opener(ProxyHandler({})).open(request) as answer:
        while answer.read(1 << 20):
            pass
    return asked / (time.monotonic() - started - LATENCY)
