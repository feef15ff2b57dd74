"""Run a Python module and record where its threads spend CPU time: ``python -m benchmarks.sampler FILE MODULE ...``.

Every millisecond, the CPU time that each thread used since the last sample is added to the function that it runs. Calls
are not slowed down, as by a tracing profiler, and threads that wait do not count, as in samples of wall time. It needs
no permission to read the memory of processes, as profilers in a second process do.

A thread yields to the sampler at the end of a call or of a loop, so the position in its code tells which call took the
time, even if the callee is compiled and has no frame. Two things are imprecise: the time of a compiled function may be
counted for the first Python function that it calls, and, where threads compete for the interpreter, for what its thread
does next. So limit the rate of requests, as for Common Crawl: then threads rarely compete.
"""

import json
import re
import runpy
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from linecache import getline
from pathlib import Path
from types import CodeType, FrameType

INTERVAL = 0.001
"""Seconds between samples."""
SWITCH_INTERVAL = 0.0001
"""Seconds until a running thread yields."""
IMPORTS, START, NATIVE = "imports", "start of Python", "threads without Python"
"""Parts that are no modules; the last one has the threads of pyarrow and DuckDB."""
_PACKAGES = ("catalogue", "duckdb", "numpy", "pandas", "pyarrow", "warcio")
"""Other modules count for the module of these that called them."""
_CALL = re.compile(r"([A-Za-z_]\w*)(?:\.\w+)*(?=\()", re.ASCII)


class Sampler(threading.Thread):
    """Samples the other threads until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds = defaultdict[tuple[str, str], float](float, {(START, START): time.process_time()})
        """CPU seconds by module, or one of the parts above, and function."""
        self._clocks: dict[int, int] = {}
        self._used: dict[int, float] = {}
        self._calls: dict[tuple[CodeType, int], str] = {}
        self._ended = threading.Event()
        self._since_last(threading.get_ident())

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            for thread, frame in sys._current_frames().items():  # noqa: SLF001 - the only way to see all threads
                if thread != self.ident and (seconds := self._since_last(thread)):
                    self.seconds[self._place(frame)] += seconds
        own = time.thread_time()
        self.seconds[NATIVE, NATIVE] = max(0.0, time.process_time() - own - sum(self.seconds.values()))

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _since_last(self, thread: int) -> float:
        """Return the CPU seconds of a thread since the last sample."""
        if thread not in self._clocks:
            self._clocks[thread] = time.pthread_getcpuclockid(thread)
        clock = self._clocks[thread]
        try:
            now = time.clock_gettime(clock)
        except OSError:  # the thread ended, and a new one has its number
            del self._clocks[thread]
            return 0.0
        before, self._used[clock] = self._used.get(clock, 0.0), now
        return now - before

    def _place(self, frame: FrameType) -> tuple[str, str]:
        """Return the module and the function that count for a stack, given its innermost frame."""
        frames = list(_stack(frame))
        modules = [str(each.f_globals.get("__name__")) for each in frames]
        if "importlib._bootstrap" in modules:
            return IMPORTS, IMPORTS
        function = f"{modules[0]}.{frame.f_code.co_qualname}"
        module = next((name for name in modules if name.startswith(_PACKAGES)), modules[0])
        called = self._called(frame)
        if called and (callee := _module_of(frame, called)).startswith(_PACKAGES) and callee != modules[0]:
            return callee, f"{called}() in {function}"
        return module, function

    def _called(self, frame: FrameType) -> str:
        """Return the name in the call that a frame executes, such as ``pa.table``; empty if there is none."""
        key = frame.f_code, frame.f_lasti
        if key not in self._calls:
            line, _, start, _ = list(frame.f_code.co_positions())[frame.f_lasti // 2]
            text = getline(frame.f_code.co_filename, line or 0).encode()[start or 0 :].decode(errors="ignore")
            found = _CALL.match(text)
            self._calls[key] = found[0] if found else ""
        return self._calls[key]


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame:
        yield frame
        frame = frame.f_back


def _module_of(frame: FrameType, called: str) -> str:
    """Return the module of the function, or of the object whose method is called."""
    root = called.partition(".")[0]
    value = frame.f_locals.get(root, frame.f_globals.get(root))
    name = getattr(value, "__module__", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else ""


def main() -> None:
    file, module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    sys.setswitchinterval(SWITCH_INTERVAL)
    sampler = Sampler()
    sampler.start()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sampler.stop()
        found = [[*place, seconds] for place, seconds in sampler.seconds.items()]
        Path(file).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
