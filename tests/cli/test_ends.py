"""Commands that are stopped or cannot write: one sentence; ``tests/slow/ends.py`` has random moments."""

import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.support.commands import Command, wait_until
from tests.support.processes import handles_sigterm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc and /dev/full")
COMMANDS = [
    *("crawls", "doctor", "demo", "mcp", "serve --workers 2 --port 0", "get example.com", "query *.com --crawl latest"),
    *("harvest --crawl latest", "join urls.txt --crawl latest -o found.parquet", "sql 'select 1'"),
]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("command_line", COMMANDS)
def test_ctrl_c_during_imports_prints_one_line(asking: Command, command_line: str) -> None:
    (asking.home / "urls.txt").write_text("https://example.com/\n")
    # An interrupted import leaves its file to a destructor, which may only warn.
    with asking.start_anew(*command_line.split(), PYTHONWARNINGS="ignore") as process:
        wait_until(process, lambda: handles_sigterm(process.pid))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"stopped\n")


def run(asking: Command, script: str) -> tuple[int, str]:
    """Run a script of a shell; return the status, and the last line of its errors."""
    options: dict[str, Any] = {"env": asking.environment(), "cwd": asking.home, "text": True}
    ran = subprocess.run(["bash", "-fc", script], stderr=subprocess.PIPE, check=False, **options)
    return ran.returncode, ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("command_line", ["harvest --crawl latest", "query *.com --crawl latest --yes"])
def test_limit_of_threads_is_reported_with_advice(asking: Command, command_line: str) -> None:
    """Each thread reserves a stack, for which there is no room."""
    limits = "ulimit -s 8000000 -v 8000000 && exec "
    status, last = run(asking, f"{limits}{sys.executable} -m catalogue --data new {command_line}")
    assert status == 75
    assert last.startswith("catalogue: there is not enough memory, or no more threads")


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    "command_line", ["crawls", "status", "plan *.com --crawl latest", "query *.com --crawl latest"]
)
def test_full_disk_is_reported_with_advice(asking: Command, command_line: str) -> None:
    status, last = run(asking, f"exec {sys.executable} -m catalogue {command_line} >/dev/full")
    advice = "No space left on device; make room and run the same command again"
    assert status == 74
    assert last in {f"catalogue: {where}: {advice}" for where in ("standard output", "the output or the disk")}
    unprinted = f"{sys.executable} -m catalogue {command_line} --verbose >/dev/null 2>/dev/full"
    assert run(asking, f"{unprinted}; echo $? >&2") == (0, "74")


def test_closed_input_is_no_list(asking: Command) -> None:
    ran = run(asking, f"exec {sys.executable} -m catalogue join - --crawl latest -o found <&-")
    assert ran == (2, "catalogue: /dev/null is a device, not a list of keys")


def test_writes_utf_8_in_any_locale(asking: Command) -> None:
    """Formats of captures are written as bytes; all others must not differ from them."""
    for words in (["sql", "select 'ł' AS x", "--format", "csv"], ["sql", "select 'ł' AS x"]):
        ran = asking(*words, PYTHONIOENCODING="latin-1")
        assert (ran.status, ran.out.splitlines()[-1], ran.err) == (0, "ł", "")
