"""cdx_toolkit (https://github.com/cocrawler/cdx_toolkit) unmodified, in processes of its own, asking a CDX server.

It reads its settings when it is imported, keeps the list of crawls for a day in the user's home, and sleeps between
requests unless it is told not to; so each run has a home of its own and environment variables. Importing it takes
longer than most of what it is asked, so a run may be asked many things.
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
    made, method, asked = json.loads(line)
    fetcher = cdx_toolkit.CDXFetcher(source="cc", **made)
    answer = getattr(fetcher, method)(asked.pop("url"), **asked)
    print(json.dumps(answer if isinstance(answer, int) else [each.data for each in answer]), flush=True)
"""
_PATIENCE = 60
"""Seconds for an answer; it asks some servers again for ever."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """cdx_toolkit with a home of its own.

    Its requests are to the mirror of Common Crawl's index server at ``base``, and for records to ``downloads``.
    """

    base: str
    home: Path
    downloads: str = ""
    _running: list[Popen[str]] = field(default_factory=list)
    """What answers for the library, once it was asked."""

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
            timeout=_PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _library(self, method: str, url: str, crawl: list[str] | None, **asked: object) -> Any:
        made = {"cc_mirror": self.base, "crawl": crawl, "warc_download_prefix": self.downloads or None}
        said = self.home / "said"
        if not self._running:
            words, environment = [sys.executable, "-c", _LIBRARY], self._environment()
            with said.open("w") as errors:
                made_now = Popen(
                    words, cwd=self.home, env=environment, text=True, stdin=PIPE, stdout=PIPE, stderr=errors
                )
            self._running.append(made_now)
        (process,) = self._running
        assert process.stdin
        assert process.stdout
        impatient = Timer(_PATIENCE, process.kill)
        impatient.start()
        try:
            print(json.dumps([made, method, {"url": url, **asked}]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
        finally:
            impatient.cancel()
        assert answer, said.read_text()
        return json.loads(answer)

    def iter(self, url: str, *, crawl: list[str] | None = None, **asked: object) -> list[dict[str, str]]:
        """``CDXFetcher.iter`` to its end: captures, of all crawls unless named."""
        captures: list[dict[str, str]] = self._library("iter", url, crawl, **asked)
        return captures

    def get(self, url: str, *, crawl: list[str] | None = None, **asked: object) -> list[dict[str, str]]:
        """``CDXFetcher.get``: captures of the first pages, a thousand at most."""
        captures: list[dict[str, str]] = self._library("get", url, crawl, **asked)
        return captures

    def size(self, url: str, *, crawl: list[str] | None = None, **asked: object) -> int:
        """``CDXFetcher.get_size_estimate``: captures, or pages with ``as_pages``."""
        estimate: int = self._library("get_size_estimate", url, crawl, **asked)
        return estimate

    def command(self, *words: str, crawl: str | None = None) -> str:
        """``cdxt`` with these words behind its own options; what it prints."""
        which = ["--crawl", crawl] if crawl else ["--cc"]
        return self._run("-m", "cdx_toolkit.cli", "--cc-mirror", self.base, *which, *words)

    def warc(self, url: str, *, crawl: str, options: tuple[str, ...] = ()) -> list[Path]:
        """``cdxt warc``: the files that it writes, with records that it downloads."""
        self.command(*options, "warc", "--prefix", "TEST", "--warc-download-prefix", self.downloads, url, crawl=crawl)
        return sorted(self.home.glob("TEST*.warc.gz"))
