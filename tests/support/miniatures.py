"""The default miniature (see the fixture ``miniature``), read back with pyarrow."""

import os
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow.parquet as pq

from catalogue.demo import Miniature
from catalogue.demo.miniature import stored_miniature

OLD, MODERN, NEWEST = "CC-MAIN-2018-05", "CC-MAIN-2022-05", "CC-MAIN-2026-30"
SUBSETS = ("warc", "crawldiagnostics", "robotstxt")
Row = dict[str, Any]


def written_once(cache: Path) -> Miniature:
    """Write it below a cache as the first use of ``--source demo`` does."""
    folder = stored_miniature(cache)
    crawls = sorted((path.name for path in (folder / "crawl-data").iterdir()), reverse=True)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return Miniature(folder, tuple(crawls), tuple(files), 0)


def keep_in(cache: Path, miniature: Miniature) -> Path:
    """Put it into another cache, where ``--source demo`` finds it; return its folder there."""
    return Path(copytree(miniature.folder, cache / miniature.folder.name, copy_function=os.link))


@cache
def parts(miniature: Miniature, crawl: str, subset: str = "warc") -> tuple[Path, ...]:
    """The index files of a subset in order of their least key."""
    folder = miniature.folder / f"cc-index/table/cc-main/warc/crawl={crawl}/subset={subset}"
    return tuple(sorted(folder.iterdir(), key=lambda path: min(keys(path))))


@cache
def keys(path: Path) -> list[str]:
    found: list[str] = pq.ParquetFile(path).read(["url_surtkey"])["url_surtkey"].to_pylist()
    return found


@cache
def rows(miniature: Miniature, crawl: str, subset: str = "warc") -> list[Row]:
    return [row for path in parts(miniature, crawl, subset) for row in pq.ParquetFile(path).read().to_pylist()]


def subsets(crawl: str) -> tuple[str, ...]:
    return SUBSETS[:1] if crawl == OLD else SUBSETS


def every_row(miniature: Miniature, crawl: str) -> list[Row]:
    return [row for subset in subsets(crawl) for row in rows(miniature, crawl, subset)]


def every_file(miniature: Miniature, crawl: str) -> list[Path]:
    return [path for subset in subsets(crawl) for path in parts(miniature, crawl, subset)]
