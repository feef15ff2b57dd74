"""A server with delayed responses and limited bandwidth."""

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
"""Bytes per second and connection."""


@contextmanager
def serving(folder: Path, file: str) -> Iterator[tuple[Server, float]]:
    """Serve a folder with latency and a limited rate; yield the server and the measured rate of a connection."""
    with _started(folder, RATE) as server:
        reached = _measured_rate(server, folder, file)
    # The server sleeps slightly too long between pieces; the cost per byte does not depend on the rate.
    rate = 1 / max(1 / RATE - (1 / reached - 1 / RATE), 0.1 / RATE)
    with _started(folder, rate) as server:
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
    """Measure the bytes per second of one connection."""
    length = min(40_000_000, (folder / file).stat().st_size)
    request = Request(server.url + file, headers={"Range": f"bytes=0-{length - 1}"})
    wait_for_quiet(at_most=5.0)
    started = time.monotonic()
    with build_opener(ProxyHandler({})).open(request) as answer:
        while answer.read(1 << 20):
            pass
    return length / (time.monotonic() - started - LATENCY)
