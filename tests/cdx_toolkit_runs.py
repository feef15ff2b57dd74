"""cdx_toolkit (https://github.com/cocrawler/cdx_toolkit) unmodified, in processes of its own, asking a CDX server.

It reads its settings when it is imported, keeps the list of crawls for a day in the user's home, and sleeps between
requests unless it is told not to; so each run has a home of its own and environment variables.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIBRARY = """
import json, sys
import cdx_toolkit
made, method, asked = json.load(sys.stdin)
fetcher = cdx_toolkit.CDXFetcher(source="cc", **made)
answer = getattr(fetcher, method)(asked.pop("url"), **asked)
json.dump(answer if isinstance(answer, int) else [each.data for each in answer], sys.stdout)
"""
_PATIENCE = 60
"""Seconds; it asks some servers again for ever."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """cdx_toolkit with a home of its own.

    Its requests are to the mirror of Common Crawl's index server at ``base``, and for records to ``downloads``.
    """

    base: str
    home: Path
    downloads: str = ""

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CDXT_CACHE_DIR": f"{self.home}/collinfo/",
            "CDXT_DEFAULT_MIN_RETRY_INTERVAL": "0",
            "CDXT_MAX_ERRORS": "0",
        }

    def _run(self, *command: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *command],
            input=given,
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
        return json.loads(self._run("-c", _LIBRARY, given=json.dumps([made, method, {"url": url, **asked}])))

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
