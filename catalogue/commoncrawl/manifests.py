"""Common Crawl's list of crawls (``collinfo.json``) and manifests (``cc-index-table.paths.gz``).

They come from outside: names and paths are accepted only in the form that Common Crawl uses.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote

from catalogue.commoncrawl.crawls import CRAWL_NAME, check_crawl_name, newest_first
from catalogue.commoncrawl.gzip_members import inflate
from catalogue.errors import BadManifest
from catalogue.formatting import in_utc

COLLINFO = "collinfo.json"
MANIFEST_NAME = "cc-index-table.paths.gz"

_INDEX_PATH = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9._+-]*/){{0,8}}crawl=({CRAWL_NAME})/subset=([a-z0-9]+)/"
    r"([A-Za-z0-9][A-Za-z0-9._+-]*\.parquet)"
)
_MANIFEST_PATH = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._+-]*/){1,12}[A-Za-z0-9][A-Za-z0-9._+-]*\.paths\.gz")


FOLDER = re.compile(r"(?:^|/)([^/=]+)=([^/]*)(?=/)")
"""A folder ``name=value``, as Hive and Spark write the values of a column."""
_MARGIN = 31 * 24 * 60 * 60 * 1000
"""Milliseconds by which a crawl may have been fetched outside of its listed times."""
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Crawl:
    """One crawl of ``collinfo.json``; times are UTC and may be missing."""

    id: str
    name: str = ""
    first_fetch: datetime | None = None
    last_fetch: datetime | None = None

    def may_have(self, earliest: int | None, latest: int | None) -> bool:
        """Return whether captures may be between two times, in milliseconds; listed times are trusted to a month."""
        if not self.first_fetch or not self.last_fetch or self.first_fetch > self.last_fetch:
            return True
        first, last = (round(time.timestamp() * 1000) for time in (self.first_fetch, self.last_fetch))
        return (earliest is None or last + _MARGIN >= earliest) and (latest is None or first - _MARGIN < latest)


@dataclass(frozen=True, slots=True, order=True)
class IndexFile:
    """One Parquet file of the index; ``path`` is relative to the source."""

    path: str
    crawl: str
    subset: str

    def folder_value(self, name: str) -> str | None:
        """Return the value of a column in the folders ``name=value`` of the path; None for Hive's name of null."""
        if name in {"crawl", "subset"}:
            return str(getattr(self, name))
        value = unquote(dict(FOLDER.findall(self.path))[name])
        return None if value == _HIVE_NULL else value


def manifest_path(crawl: str) -> str:
    return f"crawl-data/{check_crawl_name(crawl)}/{MANIFEST_NAME}"


def is_manifest_path(text: str) -> bool:
    return bool(_MANIFEST_PATH.fullmatch(text))


def index_file(path: str) -> IndexFile | None:
    """Parse the path of an index file; return None for any other text."""
    matched = _INDEX_PATH.fullmatch(path)
    return IndexFile(path, matched[1], matched[2]) if matched else None


def parse_manifest(crawl: str | None, data: bytes) -> list[IndexFile]:
    """Return the index files of a manifest (gzip text, one path a line), each once, in its order.

    Other lines are skipped: since 2026 manifests contain a directory. A manifest that was named by its path, for which
    ``crawl`` is None, must be of one crawl.

    Raises:
        BadManifest: if the data is not such a text, or has no index file.
    """
    label = f"of {crawl} " if crawl else ""
    try:
        lines = inflate(data).decode("ascii").splitlines()
    except (BadManifest, UnicodeDecodeError) as error:
        raise BadManifest(f"cannot read the manifest {label}({error}); try again, or report it") from error
    files = [file for line in lines if (file := index_file(line.strip())) and crawl in {None, file.crawl}]
    crawls = {file.crawl for file in files}
    if len(crawls) != 1:
        content = f"files of {len(crawls)} crawls" if crawls else "no index file"
        raise BadManifest(f"the manifest {label}lists {content}")
    return list(dict.fromkeys(files))


def parse_collinfo(data: bytes) -> list[Crawl]:
    """Return the crawls of a ``collinfo.json``, newest first; items of another form are skipped."""
    try:
        items = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadManifest(f"the list of crawls is not JSON ({error}); try again") from error
    crawls = {
        item["id"]: Crawl(item["id"], str(item.get("name") or ""), _time(item.get("from")), _time(item.get("to")))
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and isinstance(item.get("id"), str) and re.fullmatch(CRAWL_NAME, item["id"])
    }
    if not crawls:
        raise BadManifest("the list of crawls lists no crawl")
    return [crawls[name] for name in newest_first(crawls)]


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    with suppress(ValueError):
        return in_utc(datetime.fromisoformat(text))
    return None
