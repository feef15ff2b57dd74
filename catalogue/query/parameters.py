"""The parameters of a query, of which the command line, the JSON API, the search form and assistants make their own."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from catalogue.commoncrawl.indexes import AUTO, INDEXES
from catalogue.errors import QueryError
from catalogue.formatting import comma_separated
from catalogue.query.filters import languages, media_types, statuses
from catalogue.query.times import Moment, time_bounds
from catalogue.surt import Match


class Interface(Enum):
    """Where queries are asked."""

    COMMAND_LINE = "command line"
    PYTHON = "Python"
    JSON = "JSON API"
    FORM = "search form"
    ASSISTANT = "tools for assistants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a query. All interfaces have it, except those in ``absent``."""

    name: str
    """The argument of ``Catalogue.captures``."""
    field: str
    """The name in the JSON API, the form and the tools; the option is ``--field``."""
    help: str
    """The help text of the option."""
    label: str = ""
    example: object = True
    kind: type[str | int | bool] = str
    several: bool = False
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Valid values with what the form shows; an empty one is the default."""
    parse: Callable[[Any], object] = lambda value: value
    """Return the value for ``Query``; raises QueryError if it is invalid."""
    absent: Mapping[Interface, str] = dataclasses.field(default_factory=dict)
    """Interfaces without it, with reasons."""

    @property
    def option(self) -> str:
        return f"--{self.field.replace('_', '-')}"

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(filter(None, self.choices))

    @property
    def description(self) -> str:
        """The help text for interfaces without options."""
        return " ".join(self.help.replace("--", "").split())


def one_of(name: str, choices: Iterable[str]) -> Callable[[str], str]:
    """Return a function that checks that a text is one of several."""
    *others, last = choices

    def check(text: str) -> str:
        if text not in {*others, last}:
            raise QueryError(f"invalid {name} {text[:100]!r}; use {', '.join(others)} or {last}")
        return text

    return check


def _texts(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _patterns(given: str | Iterable[str]) -> tuple[str, ...]:
    if not (patterns := _texts(given)):
        raise QueryError("a query needs a pattern, such as '*.example.com'")
    return patterns


def _crawls(given: str | Iterable[str]) -> tuple[str, ...]:
    if not (crawls := _texts(given)):
        raise QueryError("of which crawls? name some, such as CC-MAIN-2022-05, latest or all")
    return crawls


def _match(given: Match | str) -> Match:
    return given if isinstance(given, Match) else Match(one_of("match", (each.value for each in Match))(given))


def _limit(given: int) -> int:
    if given < 0:
        raise QueryError(f"invalid limit {given}; use 0 or more")
    return given


def _first_time(given: Moment) -> Moment:
    time_bounds(given, None)
    return given


def _last_time(given: Moment) -> Moment:
    time_bounds(None, given)
    return given


_NO_SQL = "clients send no SQL"
_FIXED_PAGE = "the page has fixed columns"
_PAGE_ORDER = "the form sorts the captures of a page"

PARAMETERS = (
    Parameter(
        name="patterns",
        field="url",
        help="A URL, host or pattern: example.com/page, example.com/*, *.example.com, *.is; repeatable.",
        example="*.example.com",
        several=True,
        parse=_patterns,
    ),
    Parameter(
        name="crawls",
        field="crawl",
        help="2022-05, a year, A..B, latest or all, of all crawls; or stored; comma-separated or repeated.  "
        "[default: stored]",
        example="latest",
        several=True,
        parse=_crawls,
    ),
    Parameter(
        name="subsets",
        field="subset",
        help="warc (pages), crawldiagnostics (redirects, errors), robotstxt or all; repeatable.  [default: warc; with "
        "--status, those that can have it]",
        label="Captures",
        example="all",
        several=True,
        choices={
            "": "pages",
            "warc": "pages, with any status",
            "crawldiagnostics": "redirects and errors",
            "robotstxt": "robots.txt",
            "all": "all",
        },
        parse=_texts,
    ),
    Parameter(
        name="match",
        field="match",
        help="How to match, instead of wildcards.",
        label="Match",
        example="domain",
        choices={
            "": "by wildcards",
            "exact": "this URL",
            "prefix": "URLs that begin so",
            "host": "the host",
            "domain": "the host and its subdomains",
        },
        parse=_match,
    ),
    Parameter(
        name="urls_files",
        field="urls_file",
        help="More patterns: one per line, or a CSV file with a column url; may be gzipped; - for stdin; repeatable.",
        several=True,
        absent=dict.fromkeys(set(Interface) - {Interface.COMMAND_LINE}, "clients have no files here; send patterns"),
    ),
    Parameter(
        name="exact_url",
        field="exact_url",
        help="Match the exact URL, with scheme, www, case and slash.",
        label="Exact URL",
        kind=bool,
    ),
    Parameter(
        name="columns",
        field="columns",
        help="Comma-separated; * for all; repeatable.  [default: the fields of the CDX index]",
        example="url,fetch_time,fetch_status",
        several=True,
        parse=_texts,
        absent={Interface.FORM: _FIXED_PAGE},
    ),
    Parameter(
        name="where",
        field="where",
        help="A boolean SQL expression over the columns; repeatable, all must be true.",
        several=True,
        parse=_texts,
        absent=dict.fromkeys([Interface.JSON, Interface.FORM, Interface.ASSISTANT], _NO_SQL),
    ),
    Parameter(
        name="status",
        field="status",
        help="200, 2xx or 40x; alternatives comma-separated or repeated.",
        label="Status",
        example="200",
        several=True,
        parse=statuses,
    ),
    Parameter(
        name="mime",
        field="mime",
        help="Media type, such as text/html or text/*; repeatable.",
        label="MIME type",
        example="text/html",
        several=True,
        parse=media_types,
    ),
    Parameter(
        name="lang",
        field="lang",
        help="Language in ISO 639-3, such as isl; repeatable.",
        label="Language",
        example="isl",
        several=True,
        parse=languages,
    ),
    Parameter(
        name="from_",
        field="from",
        help="First time: 2022, 20220131, 2022-01-31T12:00:00; UTC.",
        label="From",
        example="2022",
        parse=_first_time,
    ),
    Parameter(
        name="to",
        field="to",
        help="Last time, inclusive.",
        label="To",
        example="2022-08",
        parse=_last_time,
    ),
    Parameter(
        name="limit",
        field="limit",
        help="Stop after this many captures.",
        label="On a page",
        example=100,
        kind=int,
        parse=_limit,
    ),
    Parameter(
        name="unique",
        field="unique",
        help="Keep only the first capture of each value.",
        label="Unique",
        example="url",
    ),
    Parameter(
        name="latest",
        field="latest",
        help="Keep only the latest capture of each URL, or of each --unique value.",
        label="Latest",
        kind=bool,
    ),
    Parameter(
        name="ordered",
        field="ordered",
        help="Sort by key, time and crawl; holds all captures in memory.",
        kind=bool,
        absent={Interface.FORM: _PAGE_ORDER},
    ),
    Parameter(
        name="index",
        field="index",
        help="columnar: the Parquet files of harvested crawls. cdx: the CDX index, which needs no harvest and is best "
        "for single URLs and small sites. auto: the cheaper one for each crawl.  [default: auto]",
        label="Index",
        example="cdx",
        choices={name: name for name in (AUTO, *INDEXES)},
        parse=one_of("index", (AUTO, *INDEXES)),
    ),
)


def parameters_of(interface: Interface, *without: str) -> list[Parameter]:
    """Return the parameters of an interface, except some names."""
    return [each for each in PARAMETERS if interface not in each.absent and each.name not in without]


def typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of ``Query.of``: without empty values, and with ``columns`` and ``subsets`` split at commas."""
    found: dict[str, Any] = {name: value for name, value in given.items() if value or type(value) is int}
    return found | {name: comma_separated(found[name]) for name in ("columns", "subsets") if name in found}
