"""Runs of unmodified cdx_toolkit (https://github.com/cocrawler/cdx_toolkit) in processes of its own.

It reads settings when it is imported, caches the list of crawls in the user's home, and sleeps between requests by
default; so each run has its own home and environment. The process of the library is used for several requests, because
importing it takes longer than most of them.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Timer
from typing import Any

_LIBRARY = """
import json, sys
import cdx_toolkit
for line in sys.stdin:
    options, method, given = json.loads(line)
    fetcher = cdx_toolkit.CDXFetcher(source="cc", **options)
    answer = getattr(fetcher, method)(given.pop("url"), **given)
    print(json.dumps(answer if isinstance(answer, int) else [each.data for each in answer]), flush=True)
"""
_TIMEOUT = 60
"""Seconds; some errors are retried for ever."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """cdx_toolkit with its own home; it requests captures from ``base``, and records from ``downloads``."""

    base: str
    home: Path
    downloads: str = ""
    _running: list[Popen[str]] = field(default_factory=list)
    """The process of the library, once started."""

    def close(self) -> None:
        for process in self._running:
            process.communicate()

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CDXT_CACHE_DIR": f"{self.home}/collinfo/",
            "CDXT_DEFAULT_MIN_RETRY_INTERVAL": "0",
            "CDXT_MAX_ERRORS": "0",
        }

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            cwd=self.home,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _library(self, method: str, url: str, crawl: list[str] | None, **given: object) -> Any:
        options = {"cc_mirror": self.base, "crawl": crawl, "warc_download_prefix": self.downloads or None}
        log = self.home / "log"
        if not self._running:
            words, environment = [sys.executable, "-c", _LIBRARY], self._environment()
            with log.open("w") as errors:
                started = Popen(
                    words, cwd=self.home, env=environment, text=True, stdin=PIPE, stdout=PIPE, stderr=errors
                )
            self._running.append(started)
        (process,) = self._running
        assert process.stdin
        assert process.stdout
        timer = Timer(_TIMEOUT, process.kill)
        timer.start()
        try:
            print(json.dumps([options, method, {"url": url, **given}]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
        finally:
            timer.cancel()
        assert answer, log.read_text()
        return json.loads(answer)

    def iter(self, url: str, *, crawl: list[str] | None = None, **given: object) -> list[dict[str, str]]:
        """Run ``CDXFetcher.iter`` to its end."""
        captures: list[dict[str, str]] = self._library("iter", url, crawl, **given)
        return captures

    def get(self, url: str, *, crawl: list[str] | None = None, **given: object) -> list[dict[str, str]]:
        """Run ``CDXFetcher.get``: captures of the first pages, a thousand at most."""
        captures: list[dict[str, str]] = self._library("get", url, crawl, **given)
        return captures

    def size(self, url: str, *, crawl: list[str] | None = None, **given: object) -> int:
        """Run ``CDXFetcher.get_size_estimate``: captures, or pages with ``as_pages``."""
        estimate: int = self._library("get_size_estimate", url, crawl, **given)
        return estimate

    def command(self, *words: str, crawl: str | None = None) -> str:
        """Run ``cdxt``; return what it prints."""
        which = ["--crawl", crawl] if crawl else ["--cc"]
        return self._run("-m", "cdx_toolkit.cli", "--cc-mirror", self.base, *which, *words)

    def warc(self, url: str, *, crawl: str, options: tuple[str, ...] = ()) -> list[Path]:
        """Run ``cdxt warc``; return its files."""
        self.command(*options, "warc", "--prefix", "TEST", "--warc-download-prefix", self.downloads, url, crawl=crawl)
        return sorted(self.home.glob("TEST*.warc.gz"))
