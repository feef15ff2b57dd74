"""The parameters of a query, for all interfaces."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from catalogue.commoncrawl.crawls import AUTO, INDEXES, NO_CRAWL
from catalogue.query.arguments import column_name, comma_separated, entries, flag, member_of, one_of, row_limit, several
from catalogue.query.filters import languages, media_types, statuses, valid_time
from catalogue.surt.pattern import Match


class Interface(Enum):
    """An interface for queries."""

    COMMAND_LINE = "command line"
    PYTHON = "Python"
    JSON = "JSON API"
    FORM = "search form"
    ASSISTANT = "tools for assistants"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query. All interfaces have it, except those in ``absent``."""

    name: str
    """The argument of ``Catalogue.captures``."""
    help: str
    """The help text of the option."""
    parse: Callable[[Any], object] = lambda value: value
    """Return the value for ``Query``; raises QueryError if it is invalid."""
    kind: type[str | int | bool] = str
    alias: str = ""
    title: str = ""
    example: object = True
    several: bool = False
    empty: str = ""
    """The message for a list without values."""
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Valid values with what the form shows; an empty one is the default."""
    absent: Mapping[Interface, str] = dataclasses.field(default_factory=dict)
    """Interfaces without it, with reasons."""

    @property
    def field(self) -> str:
        """The name in the JSON API, the form and the tools; the option is ``--field``."""
        return self.alias or self.name

    @property
    def option(self) -> str:
        return f"--{self.field.replace('_', '-')}"

    @property
    def label(self) -> str:
        return self.title or self.field.capitalize()

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(filter(None, self.choices))

    @property
    def description(self) -> str:
        """The help text for interfaces without options."""
        return " ".join(self.help.replace("--", "").split())


_crawls = partial(several, name="crawls")
_subsets, _columns = partial(entries, name="subsets"), partial(entries, name="columns")


def _texts(name: str) -> Callable[..., tuple[str, ...]]:
    return partial(several, name=name, numbers=False)


_SUBSETS = {
    "": "pages",
    "warc": "pages, with any status",
    "crawldiagnostics": "redirects and errors",
    "robotstxt": "robots.txt",
    "all": "all",
}
_MATCHES = {
    "": "by wildcards",
    "exact": "this URL",
    "prefix": "URLs that begin so",
    "host": "the host",
    "domain": "the host and its subdomains",
}
_INDEXES = {name: name for name in (AUTO, *INDEXES)}
_NO_FILES = dict.fromkeys({*Interface} - {Interface.COMMAND_LINE}, "clients have no files here; they send patterns")
_NO_SQL = dict.fromkeys([Interface.JSON, Interface.FORM, Interface.ASSISTANT], "clients send no SQL")
_CRAWLS = (
    "Crawls: 2022-05, a year, A..B, latest, 3 (the newest three), all, or stored (in the data folder); comma-separated "
    "or repeated.  [default: stored]"
)
_SUBSET = """Parts of a crawl: warc (pages), crawldiagnostics (redirects, errors), robotstxt or all; repeatable.  \
[default: warc; with --status, the parts that can have this status]"""
_FILES = "File with more patterns: one per line, or CSV with a column url. It may be gzipped; - for stdin; repeatable."
_INDEX = """auto: the cheaper index for each crawl. cdx: the CDX index, which needs no harvest and suits single URLs \
and small sites. columnar: the Parquet files of harvested crawls.  [default: auto]"""
_NO_PATTERN = "a query needs a pattern, such as '*.example.com'"
_PATTERNS = "A URL, host or pattern: example.com/page, example.com/*, *.example.com, *.is; repeatable."
_COLUMNS = "Columns of the result, comma-separated; * for all; repeatable.  [default: the fields of the CDX index]"
_WHERE = "A boolean SQL expression over the columns; repeatable, all must be true."
_STATUS = "HTTP status: 200, 2xx or 40x; comma-separated or repeated."
_MIME = "Media type, such as text/html or text/*; repeatable."
_MATCH = "What a pattern matches. With this option, asterisks are plain characters."
_LANG = "Language as a code of ISO 639-3, such as isl; repeatable."
_FROM = "Only captures since this time, in UTC: 2022, 20220131 or 2022-01-31T12:00:00."
_UNIQUE = "Keep only the first capture of each value of this column, in the order of the result: newest crawl first."
_FIXED = {Interface.FORM: "the page has fixed columns"}
_SORTED = {Interface.FORM: "the page has an order of its own"}

PARAMETERS = (
    Parameter(
        "patterns", _PATTERNS, _texts("patterns"), alias="url", empty=_NO_PATTERN, example="*.example.com", several=True
    ),
    Parameter("crawls", _CRAWLS, _crawls, alias="crawl", empty=NO_CRAWL, example="latest", several=True),
    Parameter("subsets", _SUBSET, _subsets, str, "subset", "Captures", "all", several=True, choices=_SUBSETS),
    Parameter("match", _MATCH, member_of("match", Match), example="domain", choices=_MATCHES),
    Parameter("urls_files", _FILES, alias="urls_file", several=True, absent=_NO_FILES),
    Parameter(
        "exact_url",
        "Match only the exact URL, with scheme, www, letter case and slash.",
        partial(flag, "exact_url"),
        bool,
        title="Exact URL",
    ),
    Parameter("columns", _COLUMNS, _columns, example="url,fetch_time,fetch_status", several=True, absent=_FIXED),
    Parameter("where", _WHERE, _texts("where"), several=True, absent=_NO_SQL),
    Parameter("status", _STATUS, statuses, example="200", several=True),
    Parameter("mime", _MIME, media_types, title="MIME type", example="text/html", several=True),
    Parameter("lang", _LANG, languages, title="Language", example="isl", several=True),
    Parameter("from_", _FROM, valid_time, alias="from", example="2022"),
    Parameter(
        "to", "Only captures until the end of this time; 2022 includes all of 2022.", valid_time, example="2022-08"
    ),
    Parameter("limit", "Stop after this many captures.", row_limit, int, title="On a page", example=100),
    Parameter("unique", _UNIQUE, column_name, example="url"),
    Parameter(
        "latest", "Keep only the latest capture of each URL, or of each --unique value.", partial(flag, "latest"), bool
    ),
    Parameter(
        "ordered",
        "Sort by key, time and crawl, with all captures in memory.",
        partial(flag, "ordered"),
        bool,
        absent=_SORTED,
    ),
    Parameter("index", _INDEX, one_of("index", (AUTO, *INDEXES)), example="cdx", choices=_INDEXES),
)
BY_NAME = {each.name: each for each in PARAMETERS}


def parameters_of(interface: Interface, *without: str) -> list[Parameter]:
    """Return the parameters of an interface, except some names."""
    return [each for each in PARAMETERS if interface not in each.absent and each.name not in without]


def typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of ``Query.of``: without empty values, and with ``columns`` and ``subsets`` split at commas."""
    kept = (name for name, value in given.items() if value or type(value) is int or name == "patterns")
    found: dict[str, Any] = {name: given[name] for name in kept}
    return found | {name: comma_separated(found[name]) for name in ("columns", "subsets") if name in found}


def with_fields(message: str) -> str:
    """Write arguments of Python in a message as fields: ``crawls='latest'`` becomes ``crawl=latest``."""

    def field(match: re.Match[str]) -> str:
        return f"{BY_NAME[match[1]].field}={match[3] or match[2].lower()}"

    return re.sub(rf"\b({'|'.join(BY_NAME)})=(True|False|'([^']*)')", field, message)
