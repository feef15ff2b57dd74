"""The part of a condition that a query can apply: fewer keys, times, crawls and subsets, and SQL."""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

import polars as pl
import pyarrow as pa

from catalogue.commoncrawl.datasets import COMMON_CRAWL, Dataset
from catalogue.errors import QueryError
from catalogue.query.literals import literal
from catalogue.scan.predicates import Combination, Comparison, Condition, conjuncts, recognized
from catalogue.surt.interval import END, EVERYTHING, KeyInterval, exact_interval, intersect, merge, prefix_interval
from catalogue.surt.key import url_surtkeys
from catalogue.surt.pattern import Keys

_MAX_VALUES = 1000
"""Values of an ``in`` that is compared by SQL."""
_HOST = re.compile(r"(?!xn--)[a-z0-9_-]+(?:\.(?!xn--)[a-z0-9_-]+)*(?<![0-9])")
"""A host with a single spelling: no address, no international name."""
_WWW = re.compile(r"www[0-9]*\.")
_SEVERAL_WWW = re.compile(rf"(?:{_WWW.pattern}){{2}}")
_ORIGIN = re.compile(r"https?://([^/:]+)(?::[0-9]+)?/")
_NO_PATTERN = re.compile(r"[\w/:=&%@~,;\" -]*", re.ASCII)
"""Characters that mean themselves in a regular expression."""
_ENDS = ("tld", "registry_suffix", "registered_domain", "private_suffix", "private_domain")
"""Columns ``url_host_...`` with an end of the host name."""


@dataclass(frozen=True, slots=True)
class Pushdown:
    """Conditions that are true where a predicate is; polars applies the predicate too."""

    keys: tuple[KeyInterval, ...] | None = None
    """None for all."""
    from_ms: int | None = None
    """First time, inclusive."""
    to_ms: int | None = None
    """End of the times, exclusive."""
    where: tuple[str, ...] = ()
    paths: tuple[pl.Expr, ...] = ()
    """Conditions on crawl and subset alone."""


def push_down(predicate: pl.Expr | None, schema: pa.Schema, dataset: Dataset) -> Pushdown:
    keys: tuple[KeyInterval, ...] | None = None
    times: list[_Times] = []
    where: list[str] = []
    paths: list[pl.Expr] = []
    for expression in () if predicate is None else conjuncts(predicate):
        columns = {*expression.meta.root_names()}
        if columns and columns.issubset(dataset.path_columns):
            paths.append(expression)
            continue
        if (condition := recognized(expression)) is None:
            continue
        found = _keys(condition, dataset)
        keys = found if keys is None else keys if found is None else intersect(keys, found)
        times += _times(condition, dataset)
        if not (found is not None and columns == {dataset.key}):  # which the intervals decide
            where += _sql(condition, schema)
    first = max((first for first, _ in times if first is not None), default=None)
    end = min((end for _, end in times if end is not None), default=None)
    return Pushdown(keys, first, end, tuple(where), tuple(paths))


# ---- keys ----


def _keys(condition: Condition, dataset: Dataset) -> tuple[KeyInterval, ...] | None:
    if isinstance(condition, Combination):
        parts = [_keys(part, dataset) for part in condition.parts]
        known = [part for part in parts if part is not None]
        if condition.operator == "or" and len(known) == len(parts):
            return merge(interval for part in known for interval in part)
        if condition.operator == "and" and known:
            keys, *others = known
            for other in others:
                keys = intersect(keys, other)
            return keys
        return None
    if condition.column == dataset.key:
        # Rows without a key match no query of Common Crawl's index, but every query of all keys of other datasets.
        is_null = condition.operator == "null"
        return (() if dataset == COMMON_CRAWL else None) if is_null else _of_key(condition)
    keys_of = _FROM_URL.get((condition.column, condition.operator)) if dataset.keys is Keys.URL else None
    if keys_of is None or not all(isinstance(value, str) for value in condition.values):
        return None
    found = [[*keys_of(value)] for value in condition.values]
    return merge(chain.from_iterable(found)) if all(found) else None


def _of_key(condition: Comparison) -> tuple[KeyInterval, ...] | None:
    if not all(isinstance(value, str) for value in condition.values):
        return None
    keys = [value.encode() for value in condition.values]
    match condition.operator, keys:
        case "=" | "in", _:
            return merge(map(exact_interval, keys))
        case "prefix", [key]:
            return (prefix_interval(key),)
        case "<", [key]:
            return (KeyInterval(b"", key),) if key else ()
        case "<=", [key]:
            return (KeyInterval(b"", key + b"\0"),)
        case ">", [key]:
            return (KeyInterval(key + b"\0", END),)
        case ">=", [key]:
            return (KeyInterval(key, END),)
        case "valid", _:
            return (EVERYTHING,)
    return None


def _of_url(url: str) -> Iterator[KeyInterval]:
    origin = _ORIGIN.match(url if url.count("/") > len("//") else f"{url}/")
    host = origin[1].lower() if origin else ""
    if _HOST.fullmatch(host) and not _SEVERAL_WWW.match(host):
        with suppress(QueryError):  # it has no key
            yield from [exact_interval(key.encode()) for key in url_surtkeys(url)]


def _of_url_start(start: str) -> Iterator[KeyInterval]:
    if origin := _ORIGIN.match(start):
        yield from _of_host(origin[1].lower())


def _of_host(host: str) -> Iterator[KeyInterval]:
    if _HOST.fullmatch(host):
        for name in _shortened(host):
            for end in ")", ":":  # of a host, and of one with a port
                yield prefix_interval(f"{_reversed(name)}{end}".encode())


def _below(host: str) -> Iterator[KeyInterval]:
    if _HOST.fullmatch(host):
        yield from _of_host(host)
        yield prefix_interval(f"{_reversed(host)},".encode())


def _of_host_end(end: str) -> Iterator[KeyInterval]:
    if end.startswith("."):
        yield from _below(end[1:])


def _shortened(host: str) -> Iterator[str]:
    yield host
    while found := _WWW.match(host):
        host = host[found.end() :]
        yield host


def _reversed(host: str) -> str:
    return ",".join(reversed(host.split(".")))


_FROM_URL: dict[tuple[str, str], Callable[[str], Iterator[KeyInterval]]] = {
    ("url", "="): _of_url,
    ("url", "in"): _of_url,
    ("url", "prefix"): _of_url_start,
    ("url_host_name", "="): _of_host,
    ("url_host_name", "in"): _of_host,
    ("url_host_name", "suffix"): _of_host_end,
    **{(f"url_host_{part}", each): _below for part in _ENDS for each in ("=", "in")},
}
"""Functions that yield the keys of a value, by column and operator; none if they are not certain.

Releases differ in how they shorten ``www.www2.example.com``, so all ways are included.
"""


# ---- times ----

_YEARS = range(1970, 2200)
"""Others are left to polars."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Times = tuple[int | None, int | None]
"""First time and end in milliseconds, the end exclusive."""


def _times(condition: Condition, dataset: Dataset) -> Iterator[_Times]:
    if isinstance(condition, Combination):
        for part in condition.parts if condition.operator == "and" else ():
            yield from _times(part, dataset)
        return
    values = condition.values
    if condition.column != dataset.time or not all(isinstance(value, datetime) and value.tzinfo for value in values):
        return
    times = [value.astimezone(UTC) for value in values]
    if not (times and all(year in _YEARS for year in (min(times).year, max(times).year))):
        return
    if condition.operator in {"=", "in", ">", ">="}:
        yield _milliseconds(min(times)), None
    if condition.operator in {"=", "in", "<", "<="}:
        yield None, _milliseconds(max(times)) + 1000


def _milliseconds(time: datetime) -> int:
    """Return milliseconds since 1970, to the second like the times of a query."""
    return (time - _EPOCH) // timedelta(seconds=1) * 1000


# ---- SQL ----

_SQL: dict[str, Callable[[str, str], str]] = {
    "prefix": lambda column, value: f"starts_with({column}, {value})",
    "suffix": lambda column, value: f"ends_with({column}, {value})",
    "contains": lambda column, value: f"contains({column}, {value})",
    "matches": lambda column, value: f"contains({column}, {value})",
}


def _sql(condition: Condition, schema: pa.Schema) -> Iterator[str]:
    """Yield an equal expression of SQL, if there is one."""
    if isinstance(condition, Comparison):
        yield from _comparison(condition, schema)
        return
    parts = [sql for part in condition.parts for sql in _sql(part, schema)]
    if len(parts) == len(condition.parts):
        joined = f" {condition.operator} ".join(f"({part})" for part in parts)
        yield f"not {joined}" if condition.operator == "not" else joined


def _comparison(condition: Comparison, schema: pa.Schema) -> Iterator[str]:
    if condition.column not in _comparable(schema):
        return
    column = '"' + condition.column.replace('"', '""') + '"'
    kind, values = schema.field(condition.column).type, condition.values
    own = str if pa.types.is_string(kind) else int
    if len(values) > _MAX_VALUES or not all(type(value) is own for value in values):
        return
    texts = [literal(value) for value in values]
    match condition.operator, texts:
        case "null", _:
            yield f"{column} IS NULL"
        case "valid", _:
            yield f"{column} IS NOT NULL"
        case "in", [_, *_]:
            yield f"{column} IN ({', '.join(texts)})"
        case name, [text] if name in _SQL:
            if name != "matches" or _NO_PATTERN.fullmatch(values[0]):
                yield _SQL[name](column, text)
        case name, [text] if name in {"=", "<>", "<", "<=", ">", ">="}:
            yield f"{column} {name} {text}"


def _comparable(schema: pa.Schema) -> Collection[str]:
    lower = [name.casefold() for name in schema.names]
    comparable = (pa.types.is_string, pa.types.is_signed_integer)
    return {
        field.name
        for field in schema
        if lower.count(field.name.casefold()) == 1 and any(is_kind(field.type) for is_kind in comparable)
    }
