"""Names of crawls, of their indexes and columns, the words that select crawls, and the list of crawls."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TypeAlias

from catalogue.errors import BadManifest, QueryError, UnknownCrawl
from catalogue.formatting import closest_name, in_utc, not_among

COLUMNAR, CDX = "columnar", "cdx"
INDEXES = (COLUMNAR, CDX)
INDEX_NAMES = {COLUMNAR: "columnar index", CDX: "CDX index"}
"""How texts name the indexes."""
AUTO = "auto"

KEY_COLUMN = "url_surtkey"
PATH_COLUMNS = ("crawl", "subset")
"""Columns that are in a file's path alone."""

SUBSETS = ("warc", "crawldiagnostics", "robotstxt")
"""Successful fetches; redirects and errors; robots.txt files."""
ROBOTS = SUBSETS[2]
CrawlWords: TypeAlias = str | int | Iterable[str | int]
"""Words that select crawls, such as ``latest``, ``2022-05`` or the year 2022; see ``parse_crawl_words``."""
CRAWL_NAME = r"CC-[A-Z]{2,20}-[0-9]{4}(?:-[0-9]{2,4})?(?:-(?!index)[a-z][a-z0-9]{0,15})?"
"""Matches ``CC-MAIN-2022-05``, ``CC-MAIN-2009-2010``, ``CC-SUPPLEMENTAL-2026-22``, ``CC-MAIN-2026-22-bis``."""

COLLINFO = "collinfo.json"
"""Path of the list of crawls."""
_MARGIN = 31 * 24 * 60 * 60 * 1000
"""Milliseconds by which a crawl may have been fetched outside of its listed times."""
_NAME = re.compile(CRAWL_NAME)
NO_CRAWL = "no crawl is named; name some, such as CC-MAIN-2022-05, latest or all"
_LIST_CALL = "crawls()"
_WEEK = re.compile(r"(?<![0-9])((?:19|20)[0-9]{2})[^0-9]{0,2}([0-9]{1,2})(?![0-9])")
"""Year and week in the name of a crawl, or in a similar text."""
_WEEKS_PER_YEAR = 53
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")
_COUNT = re.compile(r"[1-9][0-9]{0,2}")
"""A number of crawls, the newest ones."""
_SHORT_NAME = re.compile(r"[0-9]{4}-[0-9]{2,4}(?:-[a-z][a-z0-9]*)?")
STORED = "stored"
_WORDS = ("latest", "all", STORED)
_OPEN_END = re.compile(r"\.\.latest$", re.IGNORECASE)
_NEWS = "CC-NEWS"
_NO_NEWS = f"{_NEWS} has no index; crawl-data/{_NEWS}/2024/05/warc.paths.gz lists the WARC files of a month"


def check_crawl_name(text: str, known: Collection[str] = ()) -> str:
    """Return ``text`` if it has the form of a crawl's name.

    Raises:
        UnknownCrawl: if not; the message proposes a similar ``known`` crawl.
    """
    if not _NAME.fullmatch(text):
        similar = closest_crawl(text, known)
        advice = f"did you mean {similar}?" if similar else "one looks like CC-MAIN-2022-05 (see: catalogue crawls)"
        advice = _NO_NEWS if text.upper().startswith(_NEWS) else advice
        raise UnknownCrawl(f"{text!r} is not the name of a crawl; {advice}", call=None if similar else _LIST_CALL)
    return text


def closest_crawl(text: str, known: Collection[str]) -> str | None:
    """Return the crawl that a mistyped text most likely means, or None.

    That is the crawl of its year and week, or the nearest known one within a year; without a week, its year or the most
    similar name.
    """
    matched = _WEEK.search(text)
    if not matched:
        year = _YEAR.search(text)
        if year and year[0] != text and any(crawl.startswith(f"CC-MAIN-{year[0]}-") for crawl in known):
            return year[0]
        return closest_name(text[:100], [name for name in (*newest_first(known), *_WORDS) if name != text])
    meant = f"CC-MAIN-{matched[1]}-{int(matched[2]):02}"
    if meant in known or not known:
        return meant if meant != text else None
    distances = {
        crawl: abs(weeks) for crawl in newest_first(known) if (weeks := weeks_between(text, crawl)) is not None
    }
    nearest = min(distances, key=lambda crawl: distances[crawl], default=None)
    return nearest if nearest and distances[nearest] <= _WEEKS_PER_YEAR else None


def may_exist(crawl: str, listed: Collection[str]) -> bool:
    """Return whether a crawl is listed, or may exist without: at most a year newer, or not a monthly crawl."""
    if not listed or crawl in listed or not crawl.startswith("CC-MAIN-"):
        return True
    weeks = (weeks for each in listed if (weeks := weeks_between(crawl, each)) is not None)
    return bool(_WEEK.search(crawl)) and 0 < min(weeks, default=1) <= _WEEKS_PER_YEAR


def weeks_between(text: str, crawl: str) -> int | None:
    """Return the weeks from a crawl to another one by their names; None if a name has no week."""
    weeks = [int(at[1]) * _WEEKS_PER_YEAR + int(at[2]) for name in (text, crawl) if (at := _WEEK.search(name))]
    return weeks[0] - weeks[1] if len(weeks) == 2 else None  # noqa: PLR2004 - both have one


def suggest_crawl(text: str, known: Collection[str]) -> str:
    if text.startswith(_NEWS):
        return _NO_NEWS
    if text in known:
        return "the list of crawls has it, but its files may not be published yet"
    if similar := closest_crawl(text, known):
        return f"did you mean {similar}?"
    newest = next(iter(newest_first(known)), None)
    return f"the newest is {newest}" if newest else "see: catalogue crawls"


def has_columnar_index(crawl: str) -> bool:
    return _age(crawl)[0] > "2012"


def no_columnar_index(crawl: str) -> str:
    return f"{crawl} has no columnar index; the first crawl that has one is CC-MAIN-2013-20"


def check_columnar(crawl: str) -> None:
    if not has_columnar_index(crawl):
        raise UnknownCrawl(no_columnar_index(crawl))


def parse_crawl_words(words: Iterable[str], known: Collection[str] = ()) -> list[str]:
    """Split words at commas and complete names: ``2022-33`` and ``cc-main-2022-33`` become ``CC-MAIN-2022-33``.

    Words are names, ranges ``A..B`` (``A..latest`` is ``A..``), years, ``latest``, a number of newest crawls, ``all``
    and ``stored``.
    """
    parsed = []
    for word in words:
        for part in word.split(","):
            ends = _OPEN_END.sub("..", part.strip()).split("..")
            parsed.append("..".join(_complete(end, known) for end in ends))
    return parsed


def _complete(name: str, known: Collection[str]) -> str:
    if name in known or any(form.fullmatch(name) for form in (_YEAR, _COUNT, _NAME)):
        return name
    if not _SHORT_NAME.fullmatch(name.lower()):
        full = re.sub(r"^cc-[a-z]+", lambda prefix: prefix[0].upper(), name.lower())
        return full if _NAME.fullmatch(full) else name.lower() if name.lower() in _WORDS else name
    return f"CC-MAIN-{name.lower()}"  # whichever crawls are known: lists are stored, old or missing


def select_crawls(words: Iterable[str], known: Collection[str], *, every: bool = False) -> list[str]:
    """Return the crawls that words select, newest first; ranges include both ends.

    Full names need not be known. Crawls without a columnar index are only selected with ``every``, or by name. Where
    ``known`` are listed crawls, the caller replaces ``stored``.
    """
    candidates = newest_first(crawl for crawl in known if every or has_columnar_index(crawl))
    chosen: list[str] = []
    for word in parse_crawl_words(words, known):
        first, dots, last = word.partition("..")
        if word in _WORDS:
            found = candidates[:1] if word == "latest" else candidates
        elif _COUNT.fullmatch(word):
            found = candidates[: int(word)]
        elif dots or (word not in known and _YEAR.fullmatch(word)):
            low = _end_age(first, known, ("", ""))
            high = _end_age(last if dots else word, known, ("~", "~"))
            if low > high:
                raise QueryError(f"the range {word} ends before it starts; write {last}..{first}")
            found = [crawl for crawl in candidates if low <= _age(crawl) <= high]
        else:
            found = [word if word in known else check_crawl_name(word, known)]
        if not found:
            if every:  # of a dataset
                raise UnknownCrawl(f"{word!r} selects no crawl; there are {', '.join(candidates[:10])}")
            reason = f"{word!r} selects no crawl with a columnar index; see: catalogue crawls"
            raise UnknownCrawl(reason, call=_LIST_CALL)
        chosen += found
    return newest_first(chosen)


def _end_age(end: str, known: Collection[str], year_and_name: tuple[str, str]) -> tuple[str, str]:
    year, name = year_and_name
    if not end or _YEAR.fullmatch(end):
        return (end or year, name)
    return _age(end if end in known else check_crawl_name(end, known))


def plain_names(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of ``parse_crawl_words`` that are names of crawls."""
    for word in words:
        if ".." not in word and word not in _WORDS and not (_YEAR.fullmatch(word) or _COUNT.fullmatch(word)):
            yield word


def newest_first(crawls: Iterable[str]) -> list[str]:
    by_name = sorted(set(crawls), reverse=True)  # for those of one age
    return sorted(by_name, key=_age, reverse=True)


def subset_place(subset: str) -> tuple[int, str]:
    """Return the sort key of a subset: those of ``SUBSETS`` come first."""
    return (SUBSETS.index(subset) if subset in SUBSETS else len(SUBSETS), subset)


def select_subsets(words: Iterable[str], known: Sequence[str] = SUBSETS) -> tuple[str, ...]:
    chosen: list[str] = []
    for word in (part.strip() for text in words for part in text.split(",")):
        if word not in (*known, "all"):
            raise QueryError(not_among("unknown subset", word, (*known, "all")))
        chosen += known if word == "all" else [word]
    return tuple(dict.fromkeys(chosen))


def _age(crawl: str) -> tuple[str, str]:
    if not _NAME.fullmatch(crawl):
        return ("", crawl)
    year, _, rest = crawl.split("-", 2)[2].partition("-")
    return (year, rest)


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


@lru_cache(maxsize=1)  # each query of a session reads the stored list; 120 crawls take over half a millisecond
def parse_collinfo(data: bytes) -> dict[str, Crawl]:
    """Return the crawls of a ``collinfo.json`` by name, newest first; items of another form are skipped."""
    try:
        items = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadManifest(f"the list of crawls is not JSON ({error}); try again") from error
    crawls = {
        item["id"]: Crawl(item["id"], _text(item.get("name") or ""), _time(item.get("from")), _time(item.get("to")))
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and isinstance(item.get("id"), str) and _NAME.fullmatch(item["id"])
    }
    if not crawls:
        raise BadManifest("the list of crawls lists no crawl")
    return {name: crawls[name] for name in newest_first(crawls)}


def _text(value: object) -> str:
    return str(value).encode(errors="replace").decode()  # lone surrogates cannot be stored


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    with suppress(ValueError):
        return in_utc(datetime.fromisoformat(text))
    return None
