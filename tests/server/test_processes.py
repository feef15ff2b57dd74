"""Several processes at one port: all answer, all end with the first one, and one harvests a crawl."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import catalogue
from catalogue.settings import Settings
from tests.support.commands import Command, wait_until
from tests.support.metrics import samples
from tests.support.processes import children
from tests.support.serving import get, serving
from tests.support.warm import Forked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


WORKER = "spawn_main"
"""In the commands of the server's processes beside the first one."""


@contextmanager
def started(
    start: Callable[..., Forked | subprocess.Popen[bytes]], *words: str, workers: int
) -> Iterator[tuple[Forked | subprocess.Popen[bytes], str]]:
    with start("serve", "--port", "0", "--workers", str(workers), *words) as process:
        assert process.stderr
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline().decode())
            assert found
            wait_until(process, lambda: samples(found[0])["catalogue_processes", "running"] == workers, pause=0.05)
            assert process.poll() is None
            yield process, found[0]
        finally:
            process.kill()


def assert_imported_little(number: int) -> None:
    libraries = Path(f"/proc/{number}/maps").read_text()
    assert "numpy" in libraries
    assert "duckdb" not in libraries
    assert "pandas" not in libraries


def test_rows_are_served_without_pandas(asking: Command, crawl: str) -> None:
    paths = [f"/{path}?url=example.com&crawl={crawl}" for path in (f"{crawl}-index", "api/query", "search", "site")]
    with started(asking.start_anew, workers=1) as (process, address):
        assert {get(address, path).status for path in (*paths, f"/{crawl}/2026id_/https://example.com/")} == {200}
        assert "pandas" not in Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.in_soak
def test_interrupt_on_a_terminal_prints_no_traceback(asking: Command) -> None:
    """All processes receive it; the second one is still importing."""
    with asking.start_anew("serve", "--port", "0", "--workers", "2") as process:
        try:
            wait_until(process, lambda: bool(children(process.pid, WORKER)), pause=0.01)
            for number in (*children(process.pid, WORKER), process.pid):
                os.kill(number, signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert err.splitlines()[-1] == b"stopped"


def test_waits_for_the_harvest_of_another_process(settings: Settings, crawl: str, tmp_path: Path) -> None:
    path = f"/{crawl}-index?url=example.com/*"
    with (
        catalogue.open(tmp_path / "data", settings=settings) as cat,
        serving(tmp_path / "data", settings, on_demand=True) as address,
    ):
        with cat.session.create_store().harvesting(crawl):
            answers = [get(address, path) for _ in range(20)]
        assert {answer.status for answer in answers} == {503}
        assert all(int(answer.headers["retry-after"]) <= 10 for answer in answers)
        while get(address, path).status == 503:
            pass
        assert get(address, path).status == 200
