"""From the options of a command to captures."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from catalogue.cli.app import Common, resumable
from catalogue.cli.options import Budget, can_ask, confirmed
from catalogue.cli.tables import options_of_command
from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.commoncrawl.indexes import AUTO, COLUMNAR
from catalogue.errors import CatalogueError, NotHarvested, QueryError, SourceError
from catalogue.formatting import comma_separated, format_cost, join_first, plural

if TYPE_CHECKING:
    from catalogue.captures import Captures
    from catalogue.catalogue import Catalogue

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
    return parameters | {
        "patterns": [*parameters["patterns"], *(text for _, text in listed)],
        "places": listed,
        "columns": comma_separated(parameters["columns"]),
        "subsets": comma_separated(parameters["subsets"]),
    }


def select_captures(
    catalogue: "Catalogue", options: Common, parameters: dict[str, Any], budget: Budget | None = None
) -> "Captures":
    """Return the captures that the options select, without reading them. On a terminal, print hints.

    Crawls that are not stored are harvested with ``--harvest``, and on a terminal if the user agrees.
    """
    names = [each for each in parameters["patterns"] if each.startswith("@")]
    if names and options.table is None:  # keys of other datasets may start so
        raise QueryError(f"{names[0]!r} is not a pattern; to read patterns from a file use --urls-file {names[0][1:]}")
    if budget and parameters["harvest"]:
        if not parameters["crawls"]:
            raise QueryError("--harvest needs --crawl")
        budget.check(catalogue.harvest_estimate(**_harvest_arguments(parameters)))
        _harvest(catalogue, parameters)
    try:
        captures = captures_for(catalogue, parameters)
        if budget and captures.plan.searches:
            budget.check(captures.plan)
            if len(captures.plan.searches) > 1 and sys.stderr.isatty():
                options.say(f"{plural(len(captures.plan.searches), 'crawl')}: {format_cost(captures.plan)}")
            captures.fetch_indexes()
            captures = _harvested_if_cheaper(catalogue, parameters, captures)
    except NotHarvested as error:
        if options.table is not None or error.call is None:
            raise
        _offer_harvest(catalogue, parameters, error)
        _harvest(catalogue, parameters)
        captures = captures_for(catalogue, parameters)
    if sys.stderr.isatty():
        for hint in _hints(options, catalogue, parameters):
            options.say(hint)
    return captures


def _harvest_arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    crawls = [word for word in parameters["crawls"] if word != "all" or parameters.get("harvest")]
    return {"crawls": crawls or ["latest"], "subsets": parameters["subsets"] or ["warc"]}


def _harvest(catalogue: "Catalogue", parameters: dict[str, Any]) -> None:
    with resumable():
        catalogue.harvest(**_harvest_arguments(parameters))


def _offer_harvest(catalogue: "Catalogue", parameters: dict[str, Any], error: NotHarvested) -> None:
    """Ask the user on a terminal whether to harvest the missing crawls, with the cost.

    Raises:
        NotHarvested: if the user declines, or if there is no terminal.
    """
    problem, run, command = str(error).partition("; run: ")
    known = options_of_command()
    if not parameters["crawls"] and "--index" in known:
        run = "; add --crawl latest, or run: "
    elif parameters["crawls"] and "--harvest" in known:
        run = "; add --harvest, or run: "
    refused = NotHarvested(f"{problem}{run}{command}", crawl=error.crawl, call=error.call)
    if not can_ask():
        raise refused from error
    try:
        needed = catalogue.harvest_estimate(**_harvest_arguments(parameters))
    except SourceError:
        raise refused from error
    crawls = " ".join(_harvest_arguments(parameters)["crawls"])
    if not confirmed(f"{problem}. Harvesting {crawls} takes {format_cost(needed)}. Harvest now?"):
        raise refused from error


def _harvested_if_cheaper(catalogue: "Catalogue", parameters: dict[str, Any], captures: "Captures") -> "Captures":
    """Offer on a terminal to harvest crawls whose blocks take more than a harvest."""
    crawls = [each.crawl for each in captures.plan.ways if each.suggests_harvest]
    if not (crawls and can_ask()):
        return captures
    arguments = _harvest_arguments(parameters) | {"crawls": crawls}
    needed = catalogue.harvest_estimate(**arguments)
    takes = f"The blocks of {join_first(crawls)} take {format_cost(captures.plan)}"
    if not confirmed(f"{takes}. Harvesting takes {format_cost(needed)}, and makes queries cheaper. Harvest now?"):
        return captures
    with resumable():
        catalogue.harvest(**arguments)
    return captures_for(catalogue, parameters)


def captures_for(catalogue: "Catalogue", parameters: dict[str, Any]) -> "Captures":
    given = {name: value for name, value in parameters.items() if name not in {"urls_files", "places", "harvest"}}
    given |= {"crawls": parameters["crawls"] or None, "columns": parameters["columns"] or None}
    given |= {"index": _index(parameters)}
    try:
        return catalogue.captures(**given)
    except QueryError:
        _check_lists(catalogue, parameters)
        raise


def _check_lists(catalogue: "Catalogue", parameters: dict[str, Any]) -> None:
    """Raise a QueryError with file and line of the first invalid pattern of --urls-file."""
    from catalogue.surt import Match, parse_key_patterns

    match = Match(parameters["match"]) if parameters["match"] else None
    for place, text in parameters["places"]:
        try:
            parse_key_patterns([text], catalogue.session.dataset.keys, match, exact_url=parameters["exact_url"])
        except QueryError as error:
            raise QueryError(f"{place}: {error}") from None


def explain_empty_result(options: Common, catalogue: "Catalogue", parameters: dict[str, Any]) -> None:
    """Print which crawls contain no match, and hints."""
    from catalogue.reports import crawl_names

    session = catalogue.session
    newest, *others = _partitions(catalogue, parameters)
    crawls = f"{plural(1 + len(others), 'crawl')}, {others[-1]} to {newest}" if others else newest
    if "latest" in parameters["crawls"]:
        crawls += ", the newest" + (" stored" if newest in {*crawl_names(session), *session.block_lists.stored} else "")
    subsets = f" ({', '.join(parameters['subsets'])})" if parameters["subsets"] else ""
    options.say(f"nothing in {crawls}{subsets}")
    if not sys.stderr.isatty():  # select_captures printed them on terminals
        for hint in _hints(options, catalogue, parameters):
            options.say(hint)


def _index(parameters: dict[str, Any]) -> str:
    return parameters.get("index", COLUMNAR) or AUTO


def _partitions(catalogue: "Catalogue", parameters: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the crawls that are read, newest first, and the subsets of each."""
    from catalogue.find_captures import select_partitions
    from catalogue.query.query import Query

    crawls = parameters["crawls"] or None
    query = Query.of("*", crawls=crawls, subsets=parameters["subsets"], index=_index(parameters))
    return select_partitions(catalogue.session, query)


def _hints(options: Common, catalogue: "Catalogue", parameters: dict[str, Any]) -> Iterator[str]:
    pattern, *more = parameters["patterns"]
    words = [each for each in more if not _MARKS.intersection(each)]
    if words and options.table is None and not parameters["match"]:
        yield f"tip: {words[0]} is a pattern of its own; quote a URL that has a blank, or write the blank %20"
    if options.table is None and not parameters["match"] and "/" not in pattern and "*" not in pattern:
        yield f"tip: {pattern} is its home page alone; '{pattern}/*' is the site, '*.{pattern}' subdomains too"
    if narrow := _narrow(options, catalogue, parameters):
        (crawl, subsets), *more = narrow.items()
        and_more = f" and {len(more):,} more" if more else ""
        searched = f"of {crawl}{and_more} only what is stored is searched ({', '.join(subsets)})"
        yield f"tip: {searched}; --subset all adds redirects, errors and robots.txt"


def _narrow(options: Common, catalogue: "Catalogue", parameters: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the subsets of the crawls of which some are not searched, because they are not stored."""
    if options.table is not None or parameters["subsets"] or _index(parameters) != AUTO:
        return {}
    every = _partitions(catalogue, parameters).items()
    return {crawl: subsets for crawl, subsets in every if len(subsets) < len(SUBSETS)}


def note_of_subsets(options: Common, catalogue: "Catalogue", parameters: dict[str, Any]) -> str:
    """Return what to add to a number of captures where other subsets are not searched; it may be empty.

    This must be known before the captures are selected: a search stores something.
    """
    with suppress(CatalogueError):
        narrow = _narrow(options, catalogue, parameters)
        found = {*narrow.values()}
        if len(found) > 1 or (found and len(narrow) < len(_partitions(catalogue, parameters))):
            return " (not all subsets stored)"
        return "".join(f" (only {', '.join(subsets)} stored)" for subsets in found)
    return ""
