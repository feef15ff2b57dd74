"""Progress bars on a terminal or in a notebook; elsewhere nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from threading import Lock
from typing import Any, TypeAlias

from catalogue.formatting import printable, size

_DELAY = 0.5
"""Seconds; shorter work has no bar."""
_NOTEBOOK_INTERVAL = 0.25
"""Seconds between two updates in a notebook, each of which is a message."""
_VISIBLE = Lock()
"""Two bars of two threads would overwrite each other."""


@dataclass(slots=True)
class Progress:
    """The progress of a harvest or of other work."""

    name: str
    """The harvested crawl, or the kind of work, such as ``fetch``."""
    listed: int
    """The total number of items; 0 if unknown."""
    done: int
    """Items done, including files that were stored before."""
    failed: int = 0
    bytes: int = 0
    requests: int = 0
    seconds: float = 0.0


Report: TypeAlias = Callable[[Progress], None]
Bars: TypeAlias = Callable[[str], AbstractContextManager[Report]]
"""It opens a progress bar for a unit, such as ``files``."""


@contextmanager
def no_bar(_: str) -> Iterator[Report]:
    yield lambda _: None


@contextmanager
def terminal_bar(unit: str) -> Iterator[Report]:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only terminals need it
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415

    bar = RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.1f} " + f"{unit}/s"),
        TextColumn("{task.fields[received]}  {task.fields[failed]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True, force_terminal=True, force_jupyter=False),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # rich would print piped results on the terminal
    )
    tasks: dict[str, Any] = {}

    def show(progress: Progress) -> None:
        if progress.name not in tasks:  # the rate must not count what was done before
            tasks[progress.name] = bar.add_task(
                printable(progress.name),
                total=progress.listed or None,
                completed=progress.done,
                rate=0.0,
                received="",
                failed="",
            )
        task = tasks[progress.name]
        bar.update(
            task,
            total=progress.listed or None,
            completed=progress.done + progress.failed,
            rate=bar.tasks[task].speed or 0.0,
            received=size(progress.bytes) if progress.bytes else "",
            failed=f"{progress.failed} failed" if progress.failed else "",
        )

    with bar:
        yield show


@contextmanager
def notebook_bar(unit: str) -> Iterator[Report]:
    """Show a bar below the notebook's cell, without widgets, and remove it at the end."""
    from IPython.display import display  # noqa: PLC0415 - installed with every notebook

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
    last = 0.0

    def show(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _NOTEBOOK_INTERVAL:
            last = time.monotonic()
            handle.update(_html(progress, unit), raw=True)

    try:
        yield show
    finally:
        handle.update({"text/plain": "", "text/html": ""}, raw=True)


def _html(progress: Progress, unit: str) -> dict[str, str]:
    done = progress.done + progress.failed
    of = f" of {progress.listed:,}" if progress.listed else ""
    received = f"; {size(progress.bytes)}" if progress.bytes else ""
    failed = f"; {progress.failed:,} failed" if progress.failed else ""
    text = printable(f"{progress.name}: {done:,}{of} {unit}" + received + failed)
    bar = f'<progress value="{done}" max="{progress.listed}"></progress> ' if progress.listed else ""
    return {"text/plain": text, "text/html": f"<div>{bar}{escape(text)}</div>"}


def bars(enabled: bool | None, *, clock: Callable[[], float] = time.monotonic) -> Bars:  # noqa: FBT001 - as open has it
    """Return a function that opens bars, which appear after half a second; for None on terminals and in notebooks."""

    @contextmanager
    def bar(unit: str) -> Iterator[Report]:
        started, show, ended = clock(), None, False
        visible = (is_notebook() or is_terminal()) if enabled is None else enabled
        with ExitStack() as stack:

            def report(progress: Progress) -> None:
                nonlocal show
                if ended:  # called by a thread that is still at work
                    return
                if show is None and visible and clock() - started >= _DELAY and _VISIBLE.acquire(blocking=False):
                    stack.callback(_VISIBLE.release)
                    opened = notebook_bar(unit) if is_notebook() else terminal_bar(unit)
                    show = stack.enter_context(opened)
                if show:
                    show(progress)

            try:
                yield report
            finally:
                ended = True

    return bar


def is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def is_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
