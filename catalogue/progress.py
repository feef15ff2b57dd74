"""Progress bars on a terminal or in a notebook; elsewhere nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from html import escape
from threading import Lock, RLock, Timer
from typing import Any, TypeAlias

from catalogue.formatting import duration, printable, size

_DELAY = 0.5
"""Seconds; shorter work has no bar."""
_UNMEASURED, _MEASURED = 1.0, 1.0
"""Seconds in which no rate is measured, because the first requests may be made at once, and seconds until it is shown.
"""
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


_EMPTY: dict[str, Any] = dict.fromkeys(("rate", "received", "failed", "left"), "")


@dataclass(slots=True)
class _Speed:
    """The speed of one kind of work, which what was done before does not count in."""

    started: float
    since: float | None = None
    done: int = 0

    def measure(self, done: int, now: float) -> float | None:
        """Return items a second; None if it is not known yet."""
        if self.since is None and now - self.started >= _UNMEASURED:
            self.since, self.done = now, done
        if self.since is None or now - self.since < _MEASURED:
            return None
        return (done - self.done) / (now - self.since)


@contextmanager
def terminal_bar(unit: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """Show a bar for each name, and before the first report one without end."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only terminals need it
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415

    bar = RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[received]}  {task.fields[failed]}"),
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True, force_terminal=True, force_jupyter=False),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # rich would print piped results on the terminal
        get_time=clock,
    )
    waiting = bar.add_task("waiting for the source", total=None, **_EMPTY)
    tasks: dict[str, Any] = {}
    speeds: dict[str, _Speed] = {}

    def show(progress: Progress) -> None:
        bar.update(waiting, visible=False)
        done = progress.done + progress.failed
        if progress.name not in tasks:
            tasks[progress.name] = bar.add_task(printable(progress.name), total=None, **_EMPTY)
            speeds[progress.name] = _Speed(clock())
        rate = speeds[progress.name].measure(done, clock())
        bar.update(
            tasks[progress.name],
            total=progress.listed or None,
            completed=done,
            rate=f"{rate:.1f} {unit}/s" if rate else "",
            received=size(progress.bytes) if progress.bytes else "",
            failed=f"{progress.failed} failed" if progress.failed else "",
            left=f"{duration((progress.listed - done) / rate)} left" if rate and progress.listed > done else "",
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
    if not (is_notebook() or is_terminal() if enabled is None else enabled):
        return lambda _: nullcontext(lambda _: None)

    @contextmanager
    def bar(unit: str) -> Iterator[Report]:
        started, show, ended, changing = clock(), None, False, RLock()
        with ExitStack() as stack:

            def open_bar() -> None:
                nonlocal show
                with changing:
                    if ended or show or not _VISIBLE.acquire(blocking=False):
                        return
                    stack.callback(_VISIBLE.release)
                    show = stack.enter_context(notebook_bar(unit) if is_notebook() else terminal_bar(unit, clock=clock))

            def report(progress: Progress) -> None:
                if ended:  # called by a thread that is still at work
                    return
                if show is None and clock() - started >= _DELAY:
                    open_bar()
                if show:
                    show(progress)

            timer = Timer(_DELAY, open_bar)  # a slow source reports nothing
            timer.daemon = True
            if not is_notebook():  # where only the thread of a cell can show something below it
                timer.start()
            try:
                yield report
            finally:
                timer.cancel()
                with changing:
                    ended = True

    return bar


def is_terminal() -> bool:
    with suppress(AttributeError, ValueError):  # it is None, an object of another program, or closed
        return sys.stderr.isatty()
    return False


def is_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
