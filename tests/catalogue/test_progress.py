"""Bars: where somebody sees them, for what takes long, and nowhere else."""

import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from catalogue.catalogue import Catalogue
from catalogue.errors import IncompleteAnswer
from catalogue.formatting import size
from catalogue.progress import Progress, bars
from catalogue.selection import stored_crawls
from catalogue.session import Session
from catalogue.settings import Settings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What is written to standard error, which is a terminal; to be called in the test, for pytest sets it before."""
    there = Terminal()
    monkeypatch.setattr(sys, "stderr", there)
    monkeypatch.setenv("TERM", "xterm")
    return there


def slowly() -> Callable[[], float]:
    """A clock of which a second has gone by whenever somebody looks."""
    times = iter(range(1000))
    return lambda: float(next(times))


def test_what_takes_long_is_seen_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with bars(None, clock=slowly())("files") as bar:
        bar(Progress("CC-MAIN-2022-05", 300, 20, failed=2, bytes=5000))
    assert "CC-MAIN-2022-05" in terminal.getvalue()
    assert "22/300" in terminal.getvalue()
    assert "files/s" in terminal.getvalue()
    assert size(5000) in terminal.getvalue()
    assert "2 failed" in terminal.getvalue()


def test_what_is_done_at_once_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with bars(None, clock=lambda: 5.0)("files") as bar:
        bar(Progress("CC-MAIN-2022-05", 300, 20))
    assert terminal.getvalue() == ""


def test_of_several_at_once_one_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    shown = bars(None, clock=slowly())
    with shown("files") as one, shown("files") as other:
        one(Progress("first", 3, 1))
        other(Progress("second", 3, 1))
    assert "second" not in terminal.getvalue()
    with shown("files") as third:
        third(Progress("third", 3, 1))
    assert "third" in terminal.getvalue()


def test_who_is_late_starts_none_that_nobody_would_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    shown = bars(None, clock=slowly())
    with shown("files") as late:
        pass
    late(Progress("late", 3, 1))
    with shown("files") as other:
        other(Progress("other\x1b[2J", 3, 1))
    assert "late" not in terminal.getvalue()
    assert "other\N{REPLACEMENT CHARACTER}" in terminal.getvalue()


def test_how_many_there_are_need_not_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with bars(None, clock=slowly())("records") as bar:
        bar(Progress("fetch", 0, 20))
    assert "20/?" in terminal.getvalue()


def test_bars_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with bars(wanted=False, clock=slowly())("files") as bar:
        bar(Progress("CC-MAIN-2022-05", 300, 20))
    assert terminal.getvalue() == ""


def test_where_no_terminal_is_there_are_none_unless_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in (None, True):
        pipe = io.StringIO()
        monkeypatch.setattr(sys, "stderr", pipe)
        with bars(wanted, clock=slowly())("files") as bar:
            bar(Progress("CC-MAIN-2022-05", 300, 20))
        assert bool(pipe.getvalue()) == bool(wanted)


def test_a_program_without_standard_error_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with bars(None, clock=slowly())("files") as bar:
        bar(Progress("CC-MAIN-2022-05", 300, 20))


def test_all_that_takes_long_has_one(
    untaught_data: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = at_terminal(monkeypatch)
    data = Path(copytree(untaught_data, tmp_path / "data"))
    with Catalogue(Session(data, settings, bars=bars(None, clock=slowly()))) as cat, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteAnswer)  # of records that are not there
        newest = stored_crawls(cat.session)[0]
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
        told: list[Progress] = []
        cat.harvest(newest, report=told.append)
        assert told
        assert terminal.getvalue() == ""
        assert list(found.batches())
        assert terminal.getvalue() == ""


def test_reading_tells_of_each_row_group(harvested: Catalogue) -> None:
    found = harvested.captures("*.example.com")
    told: list[tuple[int, int]] = []
    rows = sum(batch.num_rows for batch in found.batches(report=lambda at: told.append((at.done, at.listed))))
    assert rows
    reading = [done for done, listed in told if listed == found.plan.row_groups]
    assert reading[-1] == found.plan.row_groups


NOTEBOOK = """
from catalogue.progress import Progress
from catalogue.progress import bars
times = iter(range(1000))
with bars(None, clock=lambda: float(next(times)))("files") as bar:
    bar(Progress("<b>crawl", 300, 20, failed=1, bytes=5000))
"""


# jupyter_client leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_in_a_notebook_it_is_html_and_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
