"""Progress bars on a terminal and in a notebook."""

import io
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from threading import Event
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

from catalogue.catalogue import Catalogue
from catalogue.errors import IncompleteAnswer
from catalogue.formatting import size
from catalogue.progress import Progress, bars, is_terminal
from catalogue.session import Session
from catalogue.settings import Settings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def replace_stderr(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None = None) -> io.StringIO:
    """Replace standard error, by a terminal unless a stream is given. pytest sets it before each test."""
    stream = stream or Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def slow_clock() -> Callable[[], float]:
    """Return a clock that advances by a second whenever it is read."""
    times = iter(range(1000))
    return lambda: float(next(times))


def test_shows_slow_work_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    with bars(None, clock=slow_clock())("files") as bar:
        for done in range(20, 30):
            bar(Progress("CC-MAIN-2022-05", 300, done, failed=2, bytes=5000))
        bar(Progress("unknown total", 0, 20))
    for text in ("CC-MAIN-2022-05", "31/300", "files/s", size(5000), "2 failed", " left", "20/?"):
        assert text in terminal.getvalue()


def test_rate_counts_neither_the_first_second_nor_what_was_done_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host may answer the first ten requests at once, and five a second after them."""
    terminal, now = replace_stderr(monkeypatch), 100.0
    with bars(None, clock=lambda: now)("files") as bar:
        for seconds, done in ((0.6, 200), (0.8, 210), (1.7, 215), (2.2, 217), (3.7, 225)):
            now = 100 + seconds
            bar(Progress("CC-MAIN-2022-05", 300, done))
    assert re.findall(r"[\d.]+ files/s", terminal.getvalue())[-1] == "5.0 files/s"
    assert "15 s left" in terminal.getvalue()


class Watched(Terminal):
    """A terminal on which a text is waited for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text, self.shown = text, Event()

    def write(self, text: str) -> int:
        if self._text in text:
            self.shown.set()
        return super().write(text)


def test_shows_a_bar_before_the_first_answer_of_a_slow_source(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Watched("waiting for the source")
    replace_stderr(monkeypatch, terminal)
    with bars(None)("files"):
        assert terminal.shown.wait(30)


@pytest.mark.parametrize(
    ("enabled", "stream", "clock", "shown"),
    [
        (None, Terminal, slow_clock(), True),
        (None, Terminal, lambda: 5.0, False),
        (False, Terminal, slow_clock(), False),
        (None, io.StringIO, slow_clock(), False),
        (True, io.StringIO, slow_clock(), True),
        (None, None, slow_clock(), False),
    ],
    ids=["terminal", "fast work", "disabled", "file", "enabled for a file", "no standard error"],
)
def test_shows_bars_where_and_when_they_help(
    monkeypatch: pytest.MonkeyPatch, *, enabled: bool | None, stream: Any, clock: Callable[[], float], shown: bool
) -> None:
    written = replace_stderr(monkeypatch, stream() if stream else Terminal())
    if not stream:
        monkeypatch.setattr(sys, "stderr", None)
    with bars(enabled, clock=clock)("files") as bar:
        bar(Progress("CC-MAIN-2022-05", 300, 20))
    end = len(written.getvalue())
    bar(Progress("late", 3, 1))
    assert (end > 0, len(written.getvalue())) == (shown, end)


def test_shows_one_bar_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replace_stderr(monkeypatch)
    shown = bars(None, clock=slow_clock())
    with shown("files") as one, shown("files") as other:
        one(Progress("first", 3, 1))
        other(Progress("second", 3, 1))
    assert "second" not in terminal.getvalue()
    with shown("files") as third:
        third(Progress("third\x1b[2J", 3, 1))
    assert "third\N{REPLACEMENT CHARACTER}" in terminal.getvalue()


def test_every_long_operation_has_a_bar(
    untaught_data: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = replace_stderr(monkeypatch)
    data = Path(copytree(untaught_data, tmp_path / "data"))
    with Catalogue(Session(data, settings, bars=bars(None, clock=slow_clock()))) as cat, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteAnswer)  # some records are missing
        newest = cat.session.stored_crawls()[0]
        found = cat.captures("*.example.com", crawls=newest)
        jobs: dict[str, Callable[[], object]] = {
            newest: lambda: cat.harvest(newest),
            "reading": found.to_arrow,
            "sample": lambda: cat.sample(found, 3).to_arrow(),
            "check": cat.check,
            "fetch": lambda: cat.fetch(found.to_arrow().slice(0, 2), tmp_path / "x.warc.gz"),
            "backfill": lambda: cat.backfill(newest).run(),
        }
        for name, job in jobs.items():
            terminal.truncate(0)
            job()
            assert name in terminal.getvalue()
        terminal.truncate(0)
        reports: list[Progress] = []
        cat.harvest(newest, report=reports.append)
        assert reports
        assert terminal.getvalue() == ""
        assert list(found.batches())
        assert terminal.getvalue() == ""


NOTEBOOK = """
from catalogue.progress import Progress
from catalogue.progress import bars
times = iter(range(1000))
with bars(None, clock=lambda: float(next(times)))("files") as bar:
    bar(Progress("<b>crawl", 300, 20, failed=1, bytes=5000))
"""


# jupyter_client leaves its sockets to the garbage collector.
@pytest.mark.in_soak
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_notebook_bar_is_html_and_removed_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    monkeypatch.setenv("HOME", str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])  # type: ignore[no-untyped-call]
    shown: list[dict[str, str]] = []

    class Client(NotebookClient):
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] in {"display_data", "update_display_data"}:
                shown.append(msg["content"]["data"])
            return super().process_message(msg, cell, cell_index)

    Client(notebook, timeout=60, kernel_name="python3").execute()
    _, during, after = shown
    assert '<progress value="21" max="300">' in during["text/html"]
    assert f"&lt;b&gt;crawl: 21 of 300 files; {size(5000)}; 1 failed" in during["text/html"]
    assert after == {"text/plain": "", "text/html": ""}
    (output,) = notebook.cells[0].outputs
    assert output["data"] == after


def test_streams_of_other_programs_are_no_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, SimpleNamespace(write=print), closed):  # the second is that of a logger
        monkeypatch.setattr(sys, "stderr", stream)
        assert not is_terminal()
