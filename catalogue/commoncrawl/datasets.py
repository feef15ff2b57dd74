"""Tables: Parquet files, sorted by one column of text, that are asked about by that column.

Common Crawl's columnar index is the one that is meant unless another is named. Nothing below the faces knows which one
it works for but by these values.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from catalogue.commoncrawl.crawls import (
    SCHEMA,
    SUBSETS,
    IndexFile,
    check_crawl_name,
    has_columnar_index,
    incomplete_ranges,
    index_file,
    inflate,
    may_be_unlisted,
    no_columnar_index,
    parse_crawl_words,
    plain_names,
    range_ends,
    select_crawls,
)
from catalogue.errors import BadManifest, FormatError, NotHarvested, QueryError, UnknownCrawl
from catalogue.formatting import open_part
from catalogue.surt import Keys

DATASET_DOCUMENT = "table.json"
"""Under which the store keeps what a table is."""
PATHS_DOCUMENT = "table.paths"
"""The same for the paths of its files, a line each, if they were named one by one."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_COLUMN = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_STEP = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._+=,@~-]+"
_PATH = re.compile(rf"{_STEP}(?:/{_STEP}){{0,30}}")
_PART = re.compile(r"(?:^|/)(crawl|subset)=([A-Za-z0-9][A-Za-z0-9._-]*)(?=/)")
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What must be known of a table to ask about it."""

    name: str
    key: str
    """The column of text that files are sorted by."""
    keys: Keys
    """What its values are, so that patterns can be made to intervals of them."""
    path_columns: tuple[str, ...] = ()
    """Columns that stand in the files' paths, of ``crawl`` and ``subset``, and not in the files."""
    manifest: str | None = None
    """The list of its files, as a path of the source; None where they were named one by one."""

    @property
    def schema(self) -> pa.Schema:
        """The types of columns that are known beforehand; others are taken as the files have them."""
        if self.keys is Keys.URL:
            return SCHEMA
        return pa.schema([(name, pa.string()) for name in dict.fromkeys([self.key, *self.path_columns])])

    @property
    def time(self) -> str | None:
        """The column of times, if there is one."""
        return "fetch_time" if self.keys is Keys.URL else None

    def file(self, path: str) -> IndexFile | None:
        """The file at a path; None if it is no path of a file of this table."""
        if self == COMMON_CRAWL:
            return index_file(path)
        if not _PATH.fullmatch(path):
            return None
        parts = dict(_PART.findall(path))
        return IndexFile(path, parts.get("crawl", self.name), parts.get("subset", "all"))

    def harvest_command(self, crawl: str, subsets: Collection[str] = ()) -> str:
        """The command that takes the footers of a crawl of it, or of some subsets of that; other tables have none."""
        options = "" if self == COMMON_CRAWL else f" --table {self.name}"
        words = ["all"] if {*subsets} == {*SUBSETS} else subsets
        chosen = "".join(f" --subset {word}" for word in words) if self == COMMON_CRAWL else ""
        return f"catalogue harvest{options}" + ("" if crawl == self.name else f" --crawl {crawl}") + chosen

    def harvest_call(self, crawl: str, subsets: Sequence[str] = ()) -> str:
        """The call of ``Catalogue`` that does the same."""
        chosen = f", subsets={list(subsets)}" if subsets else ""
        return "harvest()" if crawl == self.name else f"harvest({crawl!r}{chosen})"

    def select(self, asked: Iterable[str], known: Sequence[str]) -> list[str]:
        """What ``--crawl`` means; see ``select_crawls``.

        Raises:
            UnknownCrawl: for a word that names none.
        """
        asked = parse_crawl_words(asked, known)
        if unknown := self._unknown(asked, known):
            message = f"{self.name} has no {unknown!r}; there are {', '.join(known[:10])}"
            raise UnknownCrawl(message)
        return select_crawls(asked, known, every=self != COMMON_CRAWL)

    def _unknown(self, asked: Iterable[str], known: Collection[str]) -> str | None:
        """A word that names nothing that there is; of Common Crawl's index their form alone tells."""
        return None if self == COMMON_CRAWL else next((word for word in plain_names(asked) if word not in known), None)

    def select_held(
        self,
        held: Collection[str],
        asked: Iterable[str],
        *,
        subsets: Sequence[str] = (),
        listed: Callable[[], Collection[str]] = tuple,
        nothing: str = "nothing is harvested yet",
    ) -> list[str]:
        """What ``--crawl`` means where every crawl must be one that is held; see ``select_crawls``.

        Args:
            held: crawls.
            asked: words.
            subsets: those that are to be harvested of a crawl that is not held.
            listed: the crawls that there are, as far as that is known.
            nothing: the beginning of the message if no crawl is held.

        Raises:
            NotHarvested: if one is not.
            UnknownCrawl: if there is none of that name.
        """
        asked = parse_crawl_words(asked, held)
        if not held:
            for word in plain_names(asked) if self == COMMON_CRAWL else ():
                _check_listed(check_crawl_name(word, listed()), held, listed())
            words = [word for word in asked if word not in {"latest", "all"}]
            raise self._not_held(next(iter(words), None), nothing, subsets, ",".join(words))
        unknown = self._unknown(asked, held)
        chosen = [unknown] if unknown else self._select_stored(asked, held, subsets, listed)
        for crawl in chosen:
            if crawl not in held:
                if self == COMMON_CRAWL:
                    _check_listed(crawl, held, listed())
                raise self._not_held(crawl, f"{crawl} is not harvested yet", subsets)
        return chosen

    def _select_stored(
        self,
        words: Sequence[str],
        held: Collection[str],
        subsets: Sequence[str],
        listed: Callable[[], Collection[str]],
    ) -> list[str]:
        ends = [end for end in range_ends(words) if end not in held]
        if ends:
            return [check_crawl_name(end, held) for end in ends] if self == COMMON_CRAWL else ends
        try:
            return select_crawls(words, sorted(held), every=self != COMMON_CRAWL)
        except UnknownCrawl:
            for word in words:
                with suppress(UnknownCrawl):  # unless crawls of that range or year are listed
                    if not {*held}.intersection(select_crawls([word], sorted({*held, *listed()}))):
                        raise self._not_held(word, f"nothing of {word} is harvested yet", subsets) from None
            raise

    def gaps(
        self,
        held: Collection[str],
        asked: Iterable[str],
        *,
        subsets: Sequence[str] = (),
        listed: Callable[[], Collection[str]] = tuple,
    ) -> tuple[str, ...]:
        """Return a sentence for each range of crawls of which only some are stored; see ``incomplete_ranges``."""
        words = list(asked)
        if self != COMMON_CRAWL or all(word in {"all", *held} for word in words):
            return ()
        return tuple(
            f"{gap}; run: {self.harvest_command(crawls, subsets)}"
            for crawls, gap in incomplete_ranges(words, held, listed())
        )

    def _not_held(self, crawl: str | None, what: str, subsets: Sequence[str], words: str = "") -> NotHarvested:
        """Return the error for a crawl, a range or a year of which nothing is stored."""
        such_as = crawl or ("latest" if self == COMMON_CRAWL else self.name)
        single = next(plain_names([such_as]), None)
        if self == COMMON_CRAWL and single and not has_columnar_index(single):
            return NotHarvested(no_columnar_index(single), crawl=single)
        message = f"{what}; run: {self.harvest_command(words or such_as, subsets)}"
        return NotHarvested(message, crawl=crawl and single, call=self.harvest_call(words or such_as, subsets))

    def packed(self) -> bytes:
        """The table as the store keeps it."""
        kept = {"name": self.name, "key": self.key, "keys": self.keys.value, "manifest": self.manifest}
        return json.dumps({**kept, "path_columns": self.path_columns}).encode()


def _check_listed(crawl: str, held: Collection[str], listed: Collection[str]) -> None:
    """Refuse a crawl that is not in the list of crawls, and would be if there was one."""
    if has_columnar_index(crawl) and crawl not in listed and not may_be_unlisted(crawl, listed):
        message = f"there is no crawl {crawl}; {suggest_crawl(crawl, {*held, *listed})}"
        raise UnknownCrawl(message)


COMMON_CRAWL = Dataset("index", "url_surtkey", Keys.URL, ("crawl", "subset"))
"""Common Crawl's columnar index."""


def check_name(name: str) -> str:
    """``name``, if a table may have it: it is also that of a folder.

    Raises:
        QueryError: if it may not.
    """
    if not _NAME.fullmatch(name) or name == COMMON_CRAWL.name:
        message = (
            f"{name[:100]!r} is no name for a table; one is made of lower-case letters, digits, - and _, such as hosts"
        )
        raise QueryError(message)
    return name


def define_dataset(name: str, key: str, *, keys: Keys | None = None, manifest: str | None = None) -> Dataset:
    """Define a table.

    Args:
        name: lower-case letters, digits, ``-`` and ``_``.
        key: the column that its files are sorted by.
        keys: what that holds; None to go by the column's name.
        manifest: path of the list of its files.

    Raises:
        QueryError: if one of these cannot be.
    """
    check_name(name)
    if not _COLUMN.fullmatch(key):
        message = f"{key[:100]!r} is no name of a column"
        raise QueryError(message)
    if manifest is not None and not _PATH.fullmatch(manifest):
        message = f"{open_part(manifest)[:200]!r} is no path below the source; one looks like projects/hosts.paths.gz"
        raise QueryError(message)
    known = {"url_surtkey": Keys.URL, "surt_host_name": Keys.HOST}
    return Dataset(name, key, keys or known.get(key, Keys.TEXT), manifest=manifest)


def dataset_from_json(data: bytes) -> Dataset:
    """The table of which ``packed`` was kept.

    Raises:
        FormatError: if that is none.
    """
    try:
        kept = json.loads(data)
        table = define_dataset(kept["name"], kept["key"], keys=Keys(kept["keys"]), manifest=kept["manifest"])
        columns = tuple(name for name in COMMON_CRAWL.path_columns if name in kept["path_columns"])
    except (ValueError, KeyError, TypeError, RecursionError, QueryError) as error:
        message = f"what the store keeps as a table's definition is none ({str(error)[:300]})"
        raise FormatError(message) from error
    return replace(table, path_columns=columns)


def parse_path_list(data: bytes, *, source: str = "") -> tuple[str, ...]:
    """The paths that a list names, a line each, gzipped or not; each once, in its order.

    Args:
        data: of the list.
        source: the address of the source, with which lines may begin.

    Raises:
        BadManifest: if it is no such list, names nothing, or names something that is not below the source.
    """
    try:
        lines = (inflate(data) if data.startswith(_GZIP) else data).decode("ascii").splitlines()
    except (BadManifest, UnicodeDecodeError) as error:
        message = f"the list of files cannot be read ({error})"
        raise BadManifest(message) from error
    paths = [line.strip().removeprefix(source).lstrip("/") for line in lines]
    paths = [path for path in paths if path and not path.startswith("#") and not path.endswith("/")]
    for path in paths:
        if not _PATH.fullmatch(path):
            message = f"{open_part(path)[:200]!r} is no path below the source; one looks like hosts/part-00000.parquet"
            raise BadManifest(message)
    if not paths:
        message = "the list of files names none"
        raise BadManifest(message)
    return tuple(dict.fromkeys(paths))


def path_columns(paths: Iterable[str]) -> tuple[str, ...]:
    """Those of ``crawl`` and ``subset`` that stand in every one of the paths."""
    each = [{name for name, _ in _PART.findall(path)} for path in paths]
    return tuple(name for name in COMMON_CRAWL.path_columns if each and all(name in names for names in each))


def group_by_crawl(files: Iterable[IndexFile]) -> Iterator[tuple[str, list[IndexFile]]]:
    """Files in their order, crawl by crawl."""
    found: dict[str, list[IndexFile]] = {}
    for file in files:
        found.setdefault(file.crawl, []).append(file)
    yield from found.items()
