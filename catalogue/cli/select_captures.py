"""Captures selected by the options of a command."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalogue.cli.messages import is_new_tip, options_of_command, warn
from catalogue.cli.options import Budget, can_ask, confirmed
from catalogue.cli.process import resumable
from catalogue.commoncrawl.crawls import COLUMNAR, SUBSETS
from catalogue.errors import NotHarvested, NothingStored, QueryError, SourceError
from catalogue.formatting import format_cost, join_first, plural
from catalogue.query.parameters import typed

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.catalogue import Catalogue
    from catalogue.cli.app import Common

_NOUNS = {
    "warc": ("page", "pages"),
    "crawldiagnostics": ("redirect or error", "redirects and errors"),
    "robotstxt": ("robots.txt file", "robots.txt files"),
}
"""What a subset has: the singular and the plural."""
NOT_OF_QUERY = {"urls_files", "places", "harvest"}
"""Parameters of commands that are not of ``Query``."""
_CRAWL = re.compile(r"(?:CC-MAIN-)?[0-9]{4}-[0-9]{2}|latest")
"""Words that select crawls, which users give as patterns by mistake."""
_MARKS = frozenset("./:,*)")
"""Nearly every pattern has one of these characters."""


def read_patterns(parameters: dict[str, Any]) -> dict[str, Any]:
    """Read the files of --urls-file, which can be read only once, and split lists at commas."""
    if "-" in parameters["patterns"]:
        raise QueryError("'-' is not a pattern; to read patterns from stdin use --urls-file -")
    listed: list[tuple[str, str]] = []
    if parameters["urls_files"]:
        from catalogue.cli.input_files import patterns_in

        listed = [pattern for file in parameters["urls_files"] for pattern in patterns_in(file)]
    patterns = [*parameters["patterns"], *(text for _, text in listed)]
    return parameters | typed(parameters) | {"patterns": patterns, "places": listed}


def select_captures(
    catalogue: "Catalogue", options: "Common", parameters: dict[str, Any], budget: Budget | None = None
) -> "Captures":
    """Return the captures that the options select, without reading them. On a terminal, print tips, once a session.

    Missing crawls are harvested with ``--harvest``, and on a terminal if the user agrees.
    """
    if options.table is None:  # keys of other datasets may look like files and crawls
        _check_patterns(parameters["patterns"])
    if budget and parameters["harvest"]:
        if not parameters["crawls"]:
            raise QueryError("--harvest needs --crawl")
        arguments = _harvest_arguments(catalogue, parameters, parameters["crawls"])
        budget.check(catalogue.harvest_estimate(**arguments))
        _harvest(catalogue, arguments)
    try:
        captures = captures_for(catalogue, parameters)
        may_search = parameters["index"] != COLUMNAR and not captures.reads_in_turn  # a sample plans its own rows
        if budget and may_search and captures.plan.searched:
            budget.check_plan(captures.plan)
            if len(captures.plan.searched) > 1 and sys.stderr.isatty():
                options.say(f"{plural(len(captures.plan.searched), 'crawl')}: {format_cost(captures.plan)}")
            captures.fetch_indexes()
            captures = _harvested_if_cheaper(catalogue, parameters, captures)
    except NotHarvested as error:
        if options.table is not None or error.call is None:
            raise
        named = () if isinstance(error, NothingStored) else parameters["crawls"]
        arguments = _harvest_arguments(catalogue, parameters, named or [error.crawl or "latest"])
        _offer_harvest(catalogue, parameters, arguments, error)
        _harvest(catalogue, arguments)
        captures = captures_for(catalogue, parameters)
    for name, tip in _tips(options, parameters) if sys.stderr.isatty() else ():
        if is_new_tip(name, catalogue.session.settings.cache):
            options.say(tip)
    return captures


def _check_patterns(patterns: Iterable[str]) -> None:
    for each in patterns:
        if each.startswith("@"):
            raise QueryError(f"{each!r} is not a pattern; to read patterns from a file use --urls-file {each[1:]}")
        if _CRAWL.fullmatch(each):
            raise QueryError(f"{each!r} is not a pattern; to select a crawl use --crawl {each}")
        if each.startswith(("'", "\u2018", "\u201c")):  # some shells do not remove '
            raise QueryError(f"{each!r} is not a pattern; leave out its quotation marks")


def _harvest_arguments(catalogue: "Catalogue", parameters: dict[str, Any], crawls: Iterable[str]) -> dict[str, Any]:
    from catalogue.find_captures import subsets_of
    from catalogue.query.filters import statuses

    if catalogue.session.dataset_name:
        return {"crawls": [*crawls]}
    subsets = subsets_of(parameters["subsets"], statuses(parameters["status"]), parameters["patterns"])
    return {"crawls": [*crawls], "subsets": subsets}


def _harvest(catalogue: "Catalogue", arguments: dict[str, Any]) -> None:
    with resumable():
        outcomes = catalogue.harvest(**arguments)
    for outcome in outcomes:
        if reasons := [*outcome.failures.values()]:
            count = plural(len(reasons), "file")
            warn(f"{count} of {outcome.progress.name} could not be harvested, such as: {reasons[0]}")


def _offer_harvest(
    catalogue: "Catalogue", parameters: dict[str, Any], arguments: dict[str, Any], error: NotHarvested
) -> None:
    problem, run, command = str(error).partition("; run: ")
    known = options_of_command()
    if command and parameters["crawls"] and "--harvest" in known and not parameters["harvest"]:
        run = "; add --harvest, or run: "
    elif not parameters["crawls"] and error.crawl:  # one of the stored crawls, which the user did not name
        run = "; select crawls with --crawl, or run: "
    refused = NotHarvested(f"{problem}{run}{command}", crawl=error.crawl, call=error.call)
    if not can_ask():
        raise refused from error
    try:
        needed = catalogue.harvest_estimate(**arguments)
    except SourceError:
        raise refused from error
    crawls = " ".join(arguments["crawls"])
    if not confirmed(f"{problem}. Harvesting {crawls} takes {format_cost(needed)}. Harvest now?"):
        raise refused from error


def _harvested_if_cheaper(catalogue: "Catalogue", parameters: dict[str, Any], captures: "Captures") -> "Captures":
    crawls = [each.crawl for each in captures.plan.crawls if each.suggests_harvest]
    if not (crawls and can_ask()):
        return captures
    arguments = _harvest_arguments(catalogue, parameters, crawls)
    needed = catalogue.harvest_estimate(**arguments)
    takes = f"Reading {join_first(crawls)} by the CDX index takes {format_cost(captures.plan)}"
    if not confirmed(f"{takes}. Harvesting takes {format_cost(needed)}, and makes queries cheaper. Harvest now?"):
        return captures
    _harvest(catalogue, arguments)
    return captures_for(catalogue, parameters)


def captures_for(catalogue: "Catalogue", parameters: dict[str, Any]) -> "Captures":
    given = {name: value for name, value in parameters.items() if name not in NOT_OF_QUERY}
    try:
        return catalogue.captures(**typed(given))
    except QueryError:
        _check_lists(catalogue, parameters)
        raise


def _check_lists(catalogue: "Catalogue", parameters: dict[str, Any]) -> None:
    from catalogue.surt.pattern import Match, parse_key_patterns

    match = Match(parameters["match"]) if parameters["match"] else None
    for place, text in parameters["places"]:
        try:
            parse_key_patterns([text], catalogue.session.dataset.keys, match, exact_url=parameters["exact_url"])
        except QueryError as error:
            raise QueryError(f"{place}: {error}") from None


def report_rows(options: "Common", parameters: dict[str, Any], rows: int, path: Path | None, found: "Captures") -> None:
    written = f"; written to {path}" if path else ""
    more = "; there may be more, beyond --limit" if found.more else ""
    options.say(f"{_summary(options, rows, found)}{written}{more}")
    if rows or parameters["limit"] == 0:
        return
    if options.table is None and found.question.subsets == SUBSETS[:1]:
        options.say("tip: only pages were searched; --subset all adds redirects, errors and robots.txt")
    if not sys.stderr.isatty():  # select_captures printed them
        for _, tip in _tips(options, parameters):
            options.say(tip)


def _summary(options: "Common", rows: int, found: "Captures") -> str:
    if options.table is not None:
        return plural(rows, "row")
    only, *more = found.question.subsets
    several = f"{plural(rows, 'capture')} ({describe_subsets([only, *more])})"
    return f"{several if more else f'{rows:,} {_NOUNS[only][rows != 1]}'} in {describe_crawls(found.question.crawls)}"


def describe_crawls(crawls: Sequence[str]) -> str:
    """Return the name of a crawl, or number, oldest and newest of several."""
    newest, *others = crawls
    return f"{plural(len(crawls), 'crawl')}, {others[-1]} to {newest}" if others else newest


def describe_subsets(subsets: Sequence[str]) -> str:
    return ", ".join(_NOUNS[subset][1] for subset in subsets)


def _tips(options: "Common", parameters: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if options.table is not None or parameters["match"]:
        return
    pattern, *more = parameters["patterns"]
    if words := [each for each in more if not _MARKS.intersection(each)]:
        tip = f"{words[0]} is a separate pattern; if it belongs to a URL with a space, write %20 for the space"
        yield "words", f"tip: {tip}"
    if pattern.endswith((".txt", ".csv", ".gz")) and "/" not in pattern:
        yield "file", f"tip: to read patterns from a file use --urls-file {pattern}"
    elif "/" not in pattern and "*" not in pattern:
        tip = f"{pattern} is the home page only; '{pattern}/*' is the site, '*.{pattern}' includes subdomains"
        yield "site", f"tip: {tip}"
