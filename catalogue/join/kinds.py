"""The kinds of joins, as SQL.

A slice collects what it found in a table ``found`` and writes ``part`` of it: a row for each pattern, which is known by
its ``number``. The result is made of the ``parts`` of all slices, the rows of the input, ``inputs``, and the patterns
for which not everything was read, ``unread``. An inner join has no SQL: its parts are its result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from catalogue.errors import QueryError
from catalogue.join.keys import ROW
from catalogue.join.lookups import NUMBER

CHUNK, FOUND, PARTS, INPUTS, UNREAD = "chunk", "found", "parts", "inputs", "unread"
"""Names of tables."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of join."""

    name: str
    columns: tuple[str, ...] | None = None
    """Of captures that are read; None for those that the user chooses."""
    found: str = ""
    """Selects what is collected of some captures, which are in ``chunk`` with the number of a pattern."""
    part: str = ""
    result: str = ""
    newest: bool = False
    """Whether ``found`` selects places of captures, of which the newest of each pattern are kept."""


PLACE = "place"
"""Column of ``chunk`` with the number of each row, where only the newest capture of a pattern is collected."""
_NEWEST_FIRST = """{
    'time': fetch_time, 'crawl': crawl, 'file': warc_filename, 'offset': warc_record_offset, 'subset': subset
}"""
_NEWEST_PLACES = f"SELECT arg_max({PLACE}, {_NEWEST_FIRST}) AS {PLACE} FROM {CHUNK} GROUP BY {NUMBER}"
_NEWEST_CRAWLS = f"SELECT {NUMBER}, max({_NEWEST_FIRST}) AS newest FROM {PARTS} GROUP BY {NUMBER}"

_INPUT = f"{INPUTS}.* EXCLUDE ({NUMBER})"
_ORDER = f"ORDER BY {NUMBER}, {ROW}"
_PRESENT = f"{NUMBER} IN (SELECT {NUMBER} FROM {PARTS})"
_READ = f"{NUMBER} NOT IN (SELECT {NUMBER} FROM {UNREAD})"

_CRAWLS_PART = f"""
SELECT {NUMBER}, any_value(crawl) AS crawl, count(*) AS captures, min(fetch_time) AS first, max(fetch_time) AS last,
       list(DISTINCT fetch_status ORDER BY fetch_status) AS statuses
FROM {FOUND} GROUP BY {NUMBER} ORDER BY {NUMBER}"""

_CRAWLS = f"""
SELECT {_INPUT}, coalesce(captures, 0) AS captures, coalesce(crawls, []) AS crawls, first, last,
       coalesce(statuses, []) AS statuses, {_READ} AS complete
FROM {INPUTS} LEFT JOIN (
    SELECT {NUMBER}, sum(captures)::BIGINT AS captures, list(DISTINCT crawl ORDER BY crawl DESC) AS crawls,
           min(first) AS first, max(last) AS last, list_sort(list_distinct(flatten(list(statuses)))) AS statuses
    FROM {PARTS} GROUP BY {NUMBER}
) USING ({NUMBER}) {_ORDER}"""

_LATEST = f"""
SELECT {_INPUT}, {PARTS}.* EXCLUDE ({NUMBER})
FROM {PARTS} JOIN ({_NEWEST_CRAWLS}) AS best
    ON best.{NUMBER} = {PARTS}.{NUMBER} AND newest.crawl = crawl AND newest.subset = subset
    AND newest.file = warc_filename AND newest.offset = warc_record_offset
JOIN {INPUTS} ON {INPUTS}.{NUMBER} = {PARTS}.{NUMBER} ORDER BY {PARTS}.{NUMBER}, {ROW}"""

_NUMBERS = f"SELECT DISTINCT {NUMBER} FROM {{}} ORDER BY {NUMBER}"
_KINDS = (
    Kind("inner"),
    Kind(
        "semi",
        (),
        _NUMBERS.format(CHUNK),
        _NUMBERS.format(FOUND),
        f"SELECT {_INPUT} FROM {INPUTS} WHERE {_PRESENT} {_ORDER}",
    ),
    Kind(
        "anti",
        (),
        _NUMBERS.format(CHUNK),
        _NUMBERS.format(FOUND),
        f"SELECT {_INPUT} FROM {INPUTS} WHERE NOT {_PRESENT} AND {_READ} {_ORDER}",
    ),
    Kind(
        "crawls",
        ("fetch_time", "fetch_status"),
        f"SELECT {NUMBER}, crawl, fetch_time, fetch_status FROM {CHUNK}",
        _CRAWLS_PART,
        _CRAWLS,
    ),
    Kind("latest", None, _NEWEST_PLACES, f"FROM {FOUND} ORDER BY {NUMBER}", _LATEST, newest=True),
)
KINDS = {kind.name: kind for kind in _KINDS}


def kind_of(name: str) -> Kind:
    if name not in KINDS:
        raise QueryError(f"there is no join {name!r}; use {', '.join(KINDS)}")
    return KINDS[name]


def latest_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return columns with those that decide which capture is the newest."""
    return tuple(dict.fromkeys([*columns, "fetch_time", "warc_filename", "warc_record_offset"]))
