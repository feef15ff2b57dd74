"""Datasets: sets of Parquet files sorted by one text column, such as Common Crawl's index; and lists of these files.

Lists come from outside: names and paths are accepted only in known forms.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from catalogue.commoncrawl.crawls import (
    CDX,
    COLUMNAR,
    CRAWL_NAME,
    SUBSETS,
    check_crawl_name,
    parse_crawl_words,
    plain_names,
    select_crawls,
)
from catalogue.commoncrawl.gzip_members import inflate_list
from catalogue.errors import BadManifest, FormatError, NotHarvested, QueryError, UnknownCrawl
from catalogue.formatting import without_secrets
from catalogue.surt.pattern import Keys

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST_NAME = "cc-index-table.paths.gz"
DATASET_DOCUMENT = "table.json"
PATHS_DOCUMENT = "table.paths"
"""Name of the stored document with the paths of its files, if they were given one by one."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_COLUMN = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_STEP = r"(?!\.{1,2}(?:/|$))[^/]+"
_PATH = re.compile(rf"{_STEP}(?:/{_STEP}){{0,60}}")
_LONGEST_PATH = 1024
"""Bytes of a key of S3."""
_PART = re.compile(r"(?:^|/)(crawl|subset)=([A-Za-z0-9][A-Za-z0-9._-]*)(?=/)")
_GZIP = b"\x1f\x8b"
_MOST_NAMED = 10
"""Crawls in the command of a message."""
_INDEX_PATH = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9._+-]*/){{0,8}}crawl=({CRAWL_NAME})/subset=([a-z0-9]+)/"
    r"([A-Za-z0-9][A-Za-z0-9._+-]*\.parquet)"
)
_MANIFEST_PATH = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._+-]*/){1,12}[A-Za-z0-9][A-Za-z0-9._+-]*\.paths\.gz")
_FOLDER = re.compile(r"(?:^|/)([^/=]+)=([^/]*)(?=/)")
"""A folder ``name=value``, as Hive and Spark write the values of a column."""
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, order=True)
class IndexFile:
    """One Parquet file of the index; ``path`` is relative to the source."""

    path: str
    crawl: str
    subset: str

    def folder_value(self, name: str) -> str | None:
        """Return the value of a column in a folder ``name=value`` of the path; None for Hive's name of null."""
        value = unquote(dict(_FOLDER.findall(self.path))[name])
        return None if value == _HIVE_NULL else value


@dataclass(frozen=True)
class Dataset:
    """A set of Parquet files with one sorted key column."""

    name: str
    key: str
    """The text column that the files are sorted by."""
    keys: Keys
    """The kind of its values, which decides how patterns become intervals."""
    path_columns: tuple[str, ...] = ()
    """Columns whose values are in the paths of the files, ``name=value``; ``crawl`` and ``subset`` first."""
    manifest: str | None = None
    """Path of the list of its files; None if they were given one by one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, tuple(getattr(self, each.name) for each in fields(self))  # without cached properties

    @cached_property
    def schema(self) -> "pa.Schema":
        """Types of the known columns; others keep the type of the files."""
        import pyarrow as pa

        from catalogue.commoncrawl.schema import SCHEMA

        if self == COMMON_CRAWL:
            return SCHEMA
        known = SCHEMA.names if self.keys is Keys.URL else []
        texts = [name for name in dict.fromkeys([self.key, *self.path_columns]) if name not in known]
        return pa.schema([*(SCHEMA if known else []), *((name, pa.string()) for name in texts)])

    @cached_property
    def time(self) -> str | None:
        return "fetch_time" if self.keys is Keys.URL else None

    def file(self, path: str) -> IndexFile | None:
        """Return the file at a path; None for a path of another dataset."""
        if self == COMMON_CRAWL:
            return index_file(path)
        if not is_path(path):
            return None
        parts = dict(_PART.findall(path))
        return IndexFile(path, parts.get("crawl", self.name), parts.get("subset", "all"))

    def harvest_command(self, crawl: str, subsets: Collection[str] = ()) -> str:
        options = "" if self == COMMON_CRAWL else f" --table {self.name}"
        words = [] if tuple(subsets) == SUBSETS[:1] else ["all"] if {*subsets} == {*SUBSETS} else subsets
        chosen = "".join(f" --subset {word}" for word in words) if self == COMMON_CRAWL else ""
        return f"catalogue harvest{options}" + ("" if crawl == self.name else f" --crawl {crawl}") + chosen

    def refresh_command(self, file: IndexFile) -> str:
        """Return the command that fetches the footer of a changed file again."""
        return f"{self.harvest_command(file.crawl, [file.subset])} --refresh"

    def not_harvested(
        self, problem: str, crawls: Sequence[str], subsets: Sequence[str] = (), *, index: str = COLUMNAR
    ) -> NotHarvested:
        """Return the error that a harvest of crawls is needed, with its command and its call in Python."""
        named = ",".join(crawls[:_MOST_NAMED])
        command, chosen = self.harvest_command(named, subsets), ""
        if index == CDX:
            command, chosen = f"{command} --index cdx", ", index='cdx'"
        elif subsets and tuple(subsets) != SUBSETS[:1]:
            chosen = f", subsets={list(subsets)}"
        call = "harvest()" if named == self.name else f"harvest({named!r}{chosen})"
        return NotHarvested(f"{problem}; run: {command}", crawl=crawls[0], call=call)

    def select(self, words: Iterable[str], known: Sequence[str]) -> list[str]:
        """Return what words select of another dataset than Common Crawl's index."""
        words = parse_crawl_words(words, known)
        if unknown := self.unknown_name(words, known):
            raise UnknownCrawl(f"{self.name} has no {unknown!r}; it has {', '.join(known[:10])}")
        return select_crawls(words, known, every=True)

    def unknown_name(self, words: Iterable[str], known: Collection[str]) -> str | None:
        """Return a name that does not exist."""
        return next((word for word in plain_names(words) if word not in known), None)

    def to_json(self) -> bytes:
        values = {"name": self.name, "key": self.key, "keys": self.keys.value, "manifest": self.manifest}
        return json.dumps({**values, "path_columns": self.path_columns}).encode()


COMMON_CRAWL = Dataset("index", "url_surtkey", Keys.URL, ("crawl", "subset"))


def is_path(text: str) -> bool:
    """Return whether a text is a path below a source: any key of a store of objects that can be printed."""
    is_short = len(text.encode(errors="replace")) <= _LONGEST_PATH
    return is_short and text.isprintable() and "://" not in text and _PATH.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return a valid name of a dataset, and so of its folder; otherwise raise QueryError."""
    if not _NAME.fullmatch(name) or name == COMMON_CRAWL.name:
        raise QueryError(
            f"{name[:100]!r} is not a valid name of a dataset; use lower-case letters, digits, - and _, such as hosts"
        )
    return name


def define_dataset(name: str, key: str, *, keys: Keys | None = None, manifest: str | None = None) -> Dataset:
    """Define a dataset; the name of the key column decides ``keys`` by default."""
    check_name(name)
    if not _COLUMN.fullmatch(key):
        raise QueryError(f"{key[:100]!r} is not a valid name of a column")
    if manifest is not None and not is_path(manifest):
        raise QueryError(
            f"{without_secrets(manifest)[:200]!r} is not a path below the source, such as projects/hosts.paths.gz"
        )
    known = {"url_surtkey": Keys.URL, "surt_host_name": Keys.HOST}
    return Dataset(name, key, keys or known.get(key, Keys.TEXT), manifest=manifest)


def dataset_from_json(data: bytes) -> Dataset:
    try:
        values = json.loads(data)
        table = define_dataset(values["name"], values["key"], keys=Keys(values["keys"]), manifest=values["manifest"])
        columns = tuple(name for name in values["path_columns"] if _COLUMN.fullmatch(name))
    except (ValueError, KeyError, TypeError, RecursionError, QueryError) as error:
        raise FormatError(f"the stored definition of the dataset is invalid ({str(error)[:300]})") from error
    return replace(table, path_columns=columns)


def parse_path_list(data: bytes, *, source: str = "") -> tuple[str, ...]:
    """Return the paths of a list of files (text, one a line, also gzip), each once, in order.

    Lines may begin with the address of the ``source``; after an address of HTTP, they are percent-encoded.

    Raises:
        BadManifest: if it is not such a list, is empty, or has a path that is not below the source.
    """
    try:
        text = (inflate_list(data) if data.startswith(_GZIP) else data).decode("utf-8-sig", "surrogateescape")
    except BadManifest as error:
        raise BadManifest(f"cannot read the list of files ({error})") from error
    paths: dict[str, None] = {}
    for line in text.split("\n"):
        path = line.removesuffix("\r")
        if source and path.startswith(source):
            path = path.removeprefix(source)
            path = unquote(path) if source.startswith("http") else path
        path = path.lstrip("/")
        if not path.strip() or path.startswith("#") or path.endswith("/"):
            continue
        if not is_path(path):
            raise BadManifest(
                f"{without_secrets(path)[:200]!r} is not a path below the source, such as hosts/part-00000.parquet"
            )
        paths[path] = None
    if not paths:
        raise BadManifest("the list of files is empty")
    return tuple(paths)


def path_columns(paths: Iterable[str]) -> tuple[str, ...]:
    each = [dict.fromkeys([*_columns_of(path)]) for path in paths]
    names = [name for name in (each[0] if each else ()) if all(name in others for others in each)]
    first = COMMON_CRAWL.path_columns
    return tuple(sorted(names, key=lambda name: first.index(name) if name in first else len(first)))


def _columns_of(path: str) -> Iterator[str]:
    yield from (name for name, _ in _PART.findall(path))
    yield from (
        name for name, _ in _FOLDER.findall(path) if name not in COMMON_CRAWL.path_columns and _COLUMN.fullmatch(name)
    )


def group_by_crawl(files: Iterable[IndexFile]) -> dict[str, list[IndexFile]]:
    found: dict[str, list[IndexFile]] = {}
    for file in files:
        found.setdefault(file.crawl, []).append(file)
    return found


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
        BadManifest: if the data is not such a text, has no index file, or has Parquet files with other paths.
    """
    label = f"of {crawl} " if crawl else ""
    try:
        lines = [line.strip() for line in inflate_list(data).decode("ascii").splitlines()]
    except (BadManifest, UnicodeDecodeError) as error:
        raise BadManifest(f"cannot read the manifest {label}({error}); try again, or report it") from error
    files = [file for line in lines if (file := index_file(line)) and crawl in {None, file.crawl}]
    crawls = {file.crawl for file in files}
    if len(crawls) != 1:
        content = f"files of {len(crawls)} crawls" if crawls else "no index file"
        raise BadManifest(f"the manifest {label}lists {content}")
    if others := {line for line in lines if line.endswith(".parquet")}.difference(file.path for file in files):
        raise BadManifest(f"the manifest {label}lists {min(others)[:200]!r}, which is not one of its files; report it")
    return list(dict.fromkeys(files))
