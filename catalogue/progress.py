"""How far something is, while it lasts: a bar on a terminal or in a notebook, and nothing elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from threading import Lock
from typing import Any, TypeAlias

from catalogue.formatting import printable, size

_AT_ONCE = 0.5
"""Seconds; of what is done by then nobody has to be told how far it is."""
_ONE = Lock()
"""Held by who shows a bar: of what several threads do at once, the others would write over it."""
_EVERY = 0.25
"""Seconds between two sights of a bar in a notebook, each of which is a message."""


@dataclass(slots=True)
class Progress:
    """How far something is."""

    name: str
    """The crawl of which files are taken, or what else is done, such as ``fetch``."""
    listed: int
    """How many there are: files that the manifest of a crawl names, of the subsets asked for; 0 if nobody knows."""
    done: int
    """How many of them are done; of a crawl's files, those held from before included."""
    failed: int = 0
    """How many could not be."""
    bytes: int = 0
    """Received for it so far."""
    requests: int = 0
    seconds: float = 0.0


Report: TypeAlias = Callable[[Progress], None]
"""Is told of a ``Progress``, often."""
Bars: TypeAlias = Callable[[str], AbstractContextManager[Report]]
"""Makes bars, given what it is that is counted."""


@contextmanager
def nowhere(_: str) -> Iterator[Report]:
    """No bar."""
    yield lambda _: None


@contextmanager
def on_terminal(what: str = "", *, stays: bool = True) -> Iterator[Report]:
    """A bar on the terminal for each ``name`` that it is told of.

    Args:
        what: is counted.
        stays: whether it can still be seen when all is done.
    """
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only terminals need it
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415

    bar = RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn(
            "{task.fields[rate]:.1f} " + f"{what}/s".strip() + "  {task.fields[received]}  {task.fields[failed]}"
        ),
        TimeRemainingColumn(),
        console=Console(stderr=True, force_terminal=True, force_jupyter=False),
        transient=not stays,
        redirect_stdout=sys.stdout.isatty(),  # else results in a pipe would go to the terminal
    )
    tasks: dict[str, Any] = {}

    def show(progress: Progress) -> None:
        if progress.name not in tasks:
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
def in_notebook(what: str = "", *, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """A bar below the cell, which is gone when all is done. It needs nothing but IPython: no widgets.

    Args:
        what: is counted.
        clock: says in seconds when it is.
    """
    from IPython.display import display  # noqa: PLC0415 - there, since this is a notebook

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
    last = -_EVERY

    def show(progress: Progress) -> None:
        nonlocal last
        if clock() - last >= _EVERY:
            last = clock()
            handle.update(_as_shown(progress, what), raw=True)

    try:
        yield show
    finally:
        handle.update({"text/plain": "", "text/html": ""}, raw=True)


def _as_shown(progress: Progress, what: str) -> dict[str, str]:
    done = progress.done + progress.failed
    of = f" of {progress.listed:,}" if progress.listed else ""
    received = f"; {size(progress.bytes)}" if progress.bytes else ""
    failed = f"; {progress.failed:,} failed" if progress.failed else ""
    text = printable(f"{progress.name}: {done:,}{of} {what}".rstrip() + received + failed)
    bar = f'<progress value="{done}" max="{progress.listed}"></progress> ' if progress.listed else ""
    return {"text/plain": text, "text/html": f"<div>{bar}{escape(text)}</div>"}


def bars(wanted: bool | None, *, clock: Callable[[], float] = time.monotonic) -> Bars:  # noqa: FBT001 - as open has it
    """Bars for what takes more than half a second, where somebody can see them.

    Args:
        wanted: whether there are to be some; None for where a terminal or a notebook is.
        clock: says in seconds when it is.
    """

    @contextmanager
    def bar(what: str) -> Iterator[Report]:
        started, opened, ended = clock(), False, False
        show: Report = lambda _: None  # noqa: E731 - until then
        with ExitStack() as stack:

            def report(progress: Progress) -> None:
                nonlocal opened, show
                if ended:  # by a thread that was not waited for
                    return
                if not opened and clock() - started >= _AT_ONCE and _ONE.acquire(blocking=False):
                    opened = True
                    stack.callback(_ONE.release)
                    chosen = in_notebook(what) if is_notebook() else on_terminal(what, stays=False)
                    show = stack.enter_context(chosen)
                show(progress)

            try:
                yield report
            finally:
                ended = True

    def seen(what: str) -> AbstractContextManager[Report]:
        there = wanted if wanted is not None else is_notebook() or is_terminal()
        return bar(what) if there else nowhere(what)

    return seen


def is_terminal() -> bool:
    """Whether somebody looks at what is written to standard error."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_notebook() -> bool:
    """Whether this runs in the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
