"""Crawls, their index files, and the columns these have had over the years.

Paths are relative to a source, as Common Crawl's manifests write them. Everything read here comes from outside, so each
name is matched against the one form that names of its kind have had (commoncrawl/cc-index-table, README).
"""

import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from catalogue.errors import BadManifest, QueryError, UnknownCrawl
from catalogue.formatting import closest_name, comma_separated, in_utc

COLLINFO = "collinfo.json"
MANIFEST_NAME = "cc-index-table.paths.gz"
SUBSETS = ("warc", "crawldiagnostics", "robotstxt")
"""Successful fetches; redirects, errors and the rest; robots.txt files."""

MAX_DOCUMENT = 16 << 20
"""Bytes, after decompression, that a manifest or crawl list may have; the largest known have 0.2 MB."""

KEY_COLUMN = "url_surtkey"

SCHEMA = pa.schema(
    [
        ("url_surtkey", pa.string()),
        ("url", pa.string()),
        ("url_host_name", pa.string()),
        ("url_host_tld", pa.string()),
        ("url_host_2nd_last_part", pa.string()),
        ("url_host_3rd_last_part", pa.string()),
        ("url_host_4th_last_part", pa.string()),
        ("url_host_5th_last_part", pa.string()),
        ("url_host_registry_suffix", pa.string()),
        ("url_host_registered_domain", pa.string()),
        ("url_host_private_suffix", pa.string()),
        ("url_host_private_domain", pa.string()),
        ("url_host_name_reversed", pa.string()),  # since CC-MAIN-2021-49
        ("url_protocol", pa.string()),
        ("url_port", pa.int32()),
        ("url_path", pa.string()),
        ("url_query", pa.string()),
        ("fetch_time", pa.timestamp("ms", "UTC")),  # INT96, naive or UTC milliseconds in the files, by era
        ("fetch_status", pa.int16()),
        ("fetch_redirect", pa.string()),  # since CC-MAIN-2019-47
        ("content_digest", pa.string()),
        ("content_mime_type", pa.string()),
        ("content_mime_detected", pa.string()),
        ("content_charset", pa.string()),  # since CC-MAIN-2018-39
        ("content_languages", pa.string()),  # since CC-MAIN-2018-39
        ("content_truncated", pa.string()),  # since CC-MAIN-2019-47
        ("warc_record_id", pa.binary()),  # since CC-MAIN-2026-30
        ("warc_filename", pa.string()),
        ("warc_record_offset", pa.int64()),  # int32 in most files
        ("warc_record_length", pa.int64()),  # int32 in most files
        ("warc_segment", pa.string()),
        ("crawl", pa.string()),  # in the path only
        ("subset", pa.string()),  # in the path only
    ]
)
"""The one schema under which the rows of every era are read.

Names and order are those of commoncrawl/cc-index-table's schema; every column may be null, and is where a file lacks
it.
"""

PATH_COLUMNS = ("crawl", "subset")
"""Columns that stand in a file's path and not in the file."""

CRAWL_LIST = "crawl_list()"
"""What ``catalogue crawls`` is from Python."""
_CRAWL = r"(?:CC-MAIN|CC-SUPPLEMENTAL)-[0-9]{4}(?:-[0-9]{2,4})?"
_CRAWL_ID = re.compile(_CRAWL)
_WEEK = re.compile(r"(?<![0-9])((?:19|20)[0-9]{2})[^0-9]{0,2}([0-9]{1,2})(?![0-9])")
"""Of a crawl's name, or of what somebody takes for one."""
_YEAR = 53
"""Weeks of a year at most."""
_YEAR_WORD = re.compile(r"(?:19|20)[0-9]{2}")
_SHORT_NAME = re.compile(r"[0-9]{4}-[0-9]{2,4}")
_WORDS = ("latest", "all")
_OPEN_END = re.compile(r"\.\.latest$", re.IGNORECASE)
_INDEX_PATH = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9._+-]*/){{0,8}}crawl=({_CRAWL})/subset=([a-z0-9]+)/"
    r"([A-Za-z0-9][A-Za-z0-9._+-]*\.parquet)"
)


@dataclass(frozen=True, slots=True)
class Crawl:
    """One monthly crawl, as ``collinfo.json`` lists it."""

    id: str
    """For instance ``CC-MAIN-2022-05``."""
    name: str = ""
    first_fetch: datetime | None = None
    """When its first page was fetched, UTC; some lists do not say."""
    last_fetch: datetime | None = None


@dataclass(frozen=True, slots=True, order=True)
class IndexFile:
    """One Parquet file of the columnar index."""

    path: str
    crawl: str
    subset: str


def check_crawl_name(text: str, known: Collection[str] = ()) -> str:
    """``text`` if it has the form of a crawl's name.

    Args:
        text: as typed.
        known: crawls of which one may be meant, if it has not.

    Raises:
        UnknownCrawl: if it has not.
    """
    if not _CRAWL_ID.fullmatch(text):
        like = closest_crawl(text, known)
        advice = f"did you mean {like}?" if like else "one looks like CC-MAIN-2022-05 (see: catalogue crawls)"
        message = f"{text!r} is not the name of a crawl; {advice}"
        raise UnknownCrawl(message, call=None if like else CRAWL_LIST)
    return text


def closest_crawl(text: str, known: Collection[str]) -> str | None:
    """The crawl that was probably meant by a text that names none that there is; None if nothing is near.

    It is that of the year and week in the text, however these are written, or of those known the nearest to that within
    a year. For a text without a week it is a name that is spelled alike, ``latest`` and ``all`` among them.
    """
    matched = _WEEK.search(text)
    if not matched:
        return closest_name(text[:100], [name for name in (*newest_first(known), *_WORDS) if name != text])
    wanted = f"CC-MAIN-{matched[1]}-{int(matched[2]):02}"
    if wanted in known or not known:
        return wanted if wanted != text else None
    distances = {crawl: abs(away) for crawl in newest_first(known) if (away := _weeks_between(text, crawl)) is not None}
    nearest = min(distances, key=lambda crawl: distances[crawl], default=None)
    return nearest if nearest and distances[nearest] <= _YEAR else None


def may_be_unlisted(crawl: str, listed: Collection[str]) -> bool:
    """Whether there may be a crawl that is not in a list: the list may be older than it, though not by years."""
    if not listed or not crawl.startswith("CC-MAIN-"):  # others were never in that list
        return True
    away = (weeks for each in listed if (weeks := _weeks_between(crawl, each)) is not None)
    return bool(_WEEK.search(crawl)) and 0 < min(away, default=1) <= _YEAR


def _weeks_between(text: str, crawl: str) -> int | None:
    """By how many weeks a crawl that a text names is newer than another; None if one of them names no week."""
    weeks = [int(at[1]) * _YEAR + int(at[2]) for name in (text, crawl) if (at := _WEEK.search(name))]
    return weeks[0] - weeks[1] if len(weeks) == 2 else None  # noqa: PLR2004 - both of them


def manifest_path(crawl: str) -> str:
    """Where a crawl's list of index files is."""
    return f"crawl-data/{check_crawl_name(crawl)}/{MANIFEST_NAME}"


def index_file(path: str) -> IndexFile | None:
    """The index file at a path of a manifest, or None if the line names something else."""
    matched = _INDEX_PATH.fullmatch(path)
    return IndexFile(path, matched[1], matched[2]) if matched else None


def inflate(data: bytes, *, limit: int = MAX_DOCUMENT) -> bytes:
    """Decompress gzip data that may be hostile.

    Raises:
        BadManifest: if it is not gzip, is cut short, has something behind its end, or inflates to over ``limit`` bytes.
    """
    inflater = zlib.decompressobj(wbits=31)
    try:
        text = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        message = f"not gzip: {error}"
        raise BadManifest(message) from error
    if len(text) > limit:
        message = f"inflates to more than {limit:,} bytes"
        raise BadManifest(message)
    if not inflater.eof:
        message = "cut short"
        raise BadManifest(message)
    if inflater.unused_data:
        message = "has something behind its end"
        raise BadManifest(message)
    return text


def parse_manifest(crawl: str, data: bytes) -> list[IndexFile]:
    """The index files a crawl's manifest (gzip text, a path a line) names, each once, in its order.

    Lines that are no path of an index file of this crawl are passed over: since 2026 manifests hold a directory's name.

    Raises:
        BadManifest: if the data is not such a text, or names no index file at all.
    """
    try:
        lines = inflate(data).decode("ascii").splitlines()
    except (BadManifest, UnicodeDecodeError) as error:
        message = f"the manifest of {crawl} cannot be read ({error}); try again, or report it"
        raise BadManifest(message) from error
    files = [file for line in lines if (file := index_file(line.strip())) and file.crawl == crawl]
    if not files:
        message = f"the manifest of {crawl} names no index file"
        raise BadManifest(message)
    return list(dict.fromkeys(files))


def suggest_crawl(text: str, known: Collection[str]) -> str:
    """What to do, at the end of a sentence, when there is no such crawl."""
    if like := closest_crawl(text, known):
        return f"did you mean {like}?"
    newest = next(iter(newest_first(known)), None)
    return f"the newest is {newest}" if newest else "see: catalogue crawls"


def parse_collinfo(data: bytes) -> list[Crawl]:
    """The crawls of a ``collinfo.json``, newest first.

    Raises:
        BadManifest: if it is not such a list. Items of another shape are passed over.
    """
    try:
        items = json.loads(data)
    except (ValueError, RecursionError) as error:
        message = f"the list of crawls is not JSON ({error}); try again"
        raise BadManifest(message) from error
    crawls = [
        Crawl(item["id"], str(item.get("name") or ""), _time(item.get("from")), _time(item.get("to")))
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and isinstance(item.get("id"), str) and _CRAWL_ID.fullmatch(item["id"])
    ]
    if not crawls:
        message = "the list of crawls names no crawl"
        raise BadManifest(message)
    return sorted({crawl.id: crawl for crawl in crawls}.values(), key=lambda crawl: _age(crawl.id), reverse=True)


def has_columnar_index(crawl: str) -> bool:
    """Whether a crawl can have a columnar index: those of 2012 and before, written as ARC files, have none."""
    return _age(crawl)[0] > "2012"


def no_columnar_index(crawl: str) -> str:
    """What to say of a crawl that has none."""
    return f"{crawl} has no columnar index; the first crawl that has one is CC-MAIN-2013-20"


def parse_crawl_words(asked: Iterable[str], known: Collection[str] = ()) -> list[str]:
    """Split lists at their commas, and complete names: ``2022-33`` and ``cc-main-2022-33`` mean ``CC-MAIN-2022-33``.

    Args:
        asked: names, ranges ``A..B`` (``A..latest`` is ``A..``), years, ``latest`` and ``all``; or several of them with
            commas between.
        known: the crawls to choose from.

    Raises:
        UnknownCrawl: if a short name fits several crawls.
    """
    words = (_OPEN_END.sub("..", word.strip()) for text in asked for word in text.split(","))
    return ["..".join(_completed(end, known) for end in word.split("..")) for word in words]


def _completed(name: str, known: Collection[str]) -> str:
    if name in known or _YEAR_WORD.fullmatch(name):
        return name
    if not _SHORT_NAME.fullmatch(name):
        return name.upper() if _CRAWL_ID.fullmatch(name.upper()) else name.lower() if name.lower() in _WORDS else name
    fitting = [crawl for crawl in newest_first(known) if crawl.endswith(f"-{name}")]
    if len(fitting) > 1:
        message = f"{name} may be {' or '.join(fitting)}; write the whole name"
        raise UnknownCrawl(message)
    return fitting[0] if fitting else f"CC-MAIN-{name}"


def select_crawls(asked: Iterable[str], known: Sequence[str], *, every: bool = False) -> list[str]:
    """What ``--crawl`` means: names, ``A..B`` (both ends included), years, ``latest`` and ``all``.

    Args:
        asked: the words, in any number, see ``parse_crawl_words``; None of them means nothing.
        known: the crawls to choose from for everything but plain names.
        every: whether crawls count that have no columnar index, too; of another table than the index all do.

    Returns:
        Names without repetition, newest first.

    Raises:
        UnknownCrawl: for a word that names no crawl, or a range that holds none.
    """
    there_are = newest_first(crawl for crawl in known if every or has_columnar_index(crawl))
    chosen: list[str] = []
    for word in parse_crawl_words(asked, known):
        first, dots, last = word.partition("..")
        if word in _WORDS:
            found = there_are if word == "all" else there_are[:1]
        elif dots or (word not in known and _YEAR_WORD.fullmatch(word)):
            low, high = _earliest(first, known), _latest(last if dots else word, known)
            found = [crawl for crawl in there_are if low <= _age(crawl) <= high]
        else:
            found = [word if word in known else check_crawl_name(word, known)]
        if not found:
            message = f"there is no crawl in {word!r}; see: catalogue crawls"
            raise UnknownCrawl(message, call=CRAWL_LIST)
        chosen += found
    return newest_first(chosen)


def _earliest(end: str, known: Collection[str]) -> tuple[str, str]:
    """The least age in a range that begins with a crawl or a year; of all crawls if ``end`` is empty."""
    return _age(_checked_end(end, known)) if end and not _YEAR_WORD.fullmatch(end) else (end, "")


def _latest(end: str, known: Collection[str]) -> tuple[str, str]:
    """The greatest age in a range that ends with a crawl or a year; of all crawls if ``end`` is empty."""
    return _age(_checked_end(end, known)) if end and not _YEAR_WORD.fullmatch(end) else (end or "~", "~")


def _checked_end(end: str, known: Collection[str]) -> str:
    return end if end in known else check_crawl_name(end, known)


def plain_names(asked: Iterable[str]) -> Iterator[str]:
    """Of the words that ``parse_crawl_words`` returns those that are names."""
    return (word for word in asked if ".." not in word and word not in _WORDS and not _YEAR_WORD.fullmatch(word))


def range_ends(asked: Iterable[str]) -> Iterator[str]:
    """The crawls that are named as an end of a range."""
    return plain_names(end for word in asked if ".." in word for end in word.split("..") if end)


def incomplete_ranges(
    asked: Iterable[str], held: Collection[str], listed: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Name the ranges and years of which only some crawls are stored, with a sentence each.

    An open end means the newest, or oldest, crawl that is stored.

    Args:
        asked: the words, see ``parse_crawl_words``.
        held: crawls that are stored.
        listed: the crawls that there are, as far as that is known.
    """
    stored = newest_first(held)
    for word in parse_crawl_words(asked, stored):
        first, dots, last = word.partition("..")
        if dots or (word not in held and _YEAR_WORD.fullmatch(word)):
            closed = f"{first or stored[-1]}..{last or stored[0]}" if dots else word
            chosen = select_crawls([closed], newest_first([*held, *listed]))
            count = sum(crawl in held for crawl in chosen)
            if count < len(chosen):
                yield closed, f"{count} of the {len(chosen)} crawls in {closed} are harvested"


def newest_first(crawls: Iterable[str]) -> list[str]:
    """Crawls by time, each once."""
    return sorted(set(crawls), key=_age, reverse=True)


def select_subsets(asked: Iterable[str]) -> tuple[str, ...]:
    """What ``--subset`` means: names, or ``all``.

    Raises:
        QueryError: for a word that names no subset.
    """
    chosen: list[str] = []
    for word in comma_separated(asked):
        if word != "all" and word not in SUBSETS:
            like = closest_name(word[:100], SUBSETS)
            advice = f"did you mean {like}?" if like else f"choose among {', '.join(SUBSETS)} and all"
            message = f"{word[:100]!r} is no subset; {advice}"
            raise QueryError(message)
        chosen += SUBSETS if word == "all" else [word]
    return tuple(dict.fromkeys(chosen))


def _age(crawl: str) -> tuple[str, str]:
    """Sorts crawls by time: year and week, whatever the prefix; names of other tables' parts as they are."""
    if not _CRAWL_ID.fullmatch(crawl):
        return ("", crawl)
    year, _, rest = crawl.split("-", 2)[2].partition("-")
    return (year, rest)


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    with suppress(ValueError):
        return in_utc(datetime.fromisoformat(text))
    return None
