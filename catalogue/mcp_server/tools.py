"""The functions of the tools."""

import json
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from catalogue.errors import BadDocument, BadRecord, FormatError, NotArchived, OverBudget, SourceError, TooExpensive
from catalogue.formatting import plural, to_json
from catalogue.mcp_server import tool_models as models
from catalogue.mcp_server.untrusted import CUT, MAX_VALUE, marked, visible, visible_values
from catalogue.records.record import missing_body

if TYPE_CHECKING:
    import pyarrow as pa

    from catalogue.get_page import GetEstimate
    from catalogue.mcp_server.calls import Calls
    from catalogue.plan.plan import ReadPlan
    from catalogue.records.page import Page

MAX_CHARACTERS = 40_000
_MAX_CRAWLS = 50
_MAX_PAGES = 8
"""Pages whose texts are kept for calls that continue."""
_MAX_TYPE = 100
"""Characters of a media type, which the web server chose."""
_CURRENT = timedelta(days=1)
_NO_MORE = f"the largest offset is {models.MAX_OFFSET:,}; narrow the patterns, the times or the crawls"
_ONLY_SOME = "with latest and unique it is not known which crawls have no match"
_TOO_LONG = f"texts longer than {MAX_VALUE:,} characters are cut, and end with {CUT}"


def crawls(arguments: models.CrawlsArguments, call: "Calls") -> models.CrawlsAnswer:
    """List crawls; fetch the list if it is older than a day and requests are left."""
    from catalogue.reports import crawl_rows  # noqa: PLC0415
    from catalogue.selection import crawl_list, known_crawls  # noqa: PLC0415 - a call imports what it needs
    from catalogue.store.stored_lists import crawl_list_age  # noqa: PLC0415

    session = call.session
    try:
        with call.within(call.left):
            complete = crawl_list(session).complete
    except (OverBudget, SourceError, FormatError) as error:
        if not known_crawls(session):
            raise
        complete = False
        call.notes.append(f"the list of crawls was not updated: {error}")
    age = crawl_list_age(session.store)
    rows = [
        row
        for row in crawl_rows(session)
        if arguments.contains.casefold() in row["crawl"].casefold()
        and (row["files_harvested"] or row["blocks"] or not arguments.stored_only)
    ]
    end = arguments.offset + arguments.limit
    return models.CrawlsAnswer(
        crawls=[_listed(row) for row in rows[arguments.offset : end]],
        total=len(rows),
        next_offset=end if end < len(rows) else None,
        list_is_current=complete and age is not None and abs(age) < _CURRENT,
        notes=[*call.notes],
        cost=call.cost,
    )


def _listed(row: dict[str, Any]) -> models.ListedCrawl:
    first, last = (time and f"{time:%Y-%m-%d}" for time in (row["first_fetch"], row["last_fetch"]))
    return models.ListedCrawl(
        crawl=row["crawl"],
        first_fetch=first,
        last_fetch=last,
        stored_files=row["files_harvested"],
        listed_files=row["files_listed"],
        stored_subsets=row["subsets"],
        stored_blocks=bool(row["blocks"]),
    )


def plan(arguments: models.PlanArguments, call: "Calls") -> models.PlanAnswer:
    """Price a query by both indexes; only a list of crawls may be fetched."""
    with call.within(call.left):
        planned = call.catalogue.captures(**arguments.query()).explain()
    prices = [
        models.IndexChoice(
            crawl=each.crawl,
            chosen=models.Price(**each.costs()),
            other=models.Price(**each.other.costs()) if each.other else None,
            reason=each.why,
        )
        for each in planned.crawls
    ]
    return models.PlanAnswer(
        requests=planned.requests,
        bytes=planned.bytes,
        seconds=round(planned.seconds, 1),
        kind="estimate" if planned.estimated else "exact" if planned.exact else "maximum",
        affordable=planned.requests <= call.left,
        crawls=prices[:_MAX_CRAWLS],
        crawl_count=len(prices),
        incomplete=_incomplete(planned),
        notes=[*call.notes, *planned.warnings],
        cost=call.cost,
    )


def _incomplete(planned: "ReadPlan") -> list[models.NotRead]:
    of_crawls = [models.NotRead(crawls=[each.crawl], reason=text) for each in planned.crawls for text in each.missing]
    return [*(models.NotRead(crawls=[], reason=text) for text in planned.unlisted), *of_crawls]


def query(arguments: models.QueryArguments, call: "Calls") -> models.CapturesAnswer:
    most = arguments.max_requests
    end = arguments.offset + arguments.limit
    options = arguments.query() | {"limit": end + 1}
    with call.within(most):
        found = call.catalogue.captures(**options).agreed(lambda planned: _check(planned, call, most))
        with closing(found.batches(warn=False)) as batches:
            rows = _rows_of(batches)
    kept = _bounded(rows[arguments.offset : end], call)
    after = arguments.offset + len(kept)
    more = len(rows) > after
    not_read = incomplete = _incomplete(found.plan)
    names = list(found.question.crawls)
    if more:
        again = "call query again with next_offset" if after <= models.MAX_OFFSET else _NO_MORE
        reason = f"reading stopped when the answer had enough captures; {again}"
        not_read = [models.NotRead(crawls=names, reason=reason), *incomplete]
    skipped = {crawl for each in not_read for crawl in each.crawls}
    read = [crawl for crawl in names if crawl not in skipped]
    having = {row["crawl"] for row in rows}
    if (arguments.latest or arguments.unique) and rows:
        having.update(names)  # captures of a crawl may have been left out
        call.notes.append(_ONLY_SOME)
    return models.CapturesAnswer(
        captures=kept,
        next_offset=after if more and after <= models.MAX_OFFSET else None,
        complete=not (more or incomplete),
        crawls_read=read,
        crawls_without_match=[crawl for crawl in read if crawl not in having],
        crawls_not_read=not_read,
        notes=[*call.notes, *found.plan.warnings],
        cost=call.cost,
    )


def _rows_of(batches: "Iterable[pa.RecordBatch]") -> list[dict[str, Any]]:
    from catalogue.parquet.arrow_arrays import rows_of  # noqa: PLC0415 - imports pyarrow

    return [row for batch in batches for row in rows_of(batch)]


def _check(planned: "ReadPlan", call: "Calls", most: int) -> None:
    if planned.query.stops_early and planned.query.keys_decide and not planned.searched:
        least = len(planned.indexes) + (1 if planned.waves else 0)
        received = sum(len(each.range) for each in planned.indexes)
        call.check_cost(least, received, f"this takes {plural(least, 'request')} or more", most)
    else:
        call.check(planned, most)


def _bounded(rows: Iterable[dict[str, Any]], call: "Calls") -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    left = MAX_CHARACTERS
    for row in rows:
        plain = to_json(row)
        shown = visible_values(plain)
        is_cut = any(isinstance(value, str) and len(value) > MAX_VALUE for value in plain.values())
        if is_cut and _TOO_LONG not in call.notes:
            call.notes.append(_TOO_LONG)
        left -= len(json.dumps(shown, ensure_ascii=False))
        if left < 0 and kept:
            break
        kept.append(shown)
    return kept


def get_page(arguments: models.PageArguments, call: "Calls") -> models.PageAnswer:
    key = arguments.model_dump_json(exclude={"offset", "max_chars", "max_requests"})
    text = call.texts.get(key) if arguments.offset else None
    if text is None:
        found = _find_page(arguments, call)
        if isinstance(found, models.PageAnswer):
            return found
        text = _described(found, arguments)
        call.texts.pop(key, None)
        call.texts[key] = text
        while len(call.texts) > _MAX_PAGES:
            del call.texts[next(iter(call.texts))]
    return _part_of(*text, arguments, call)


def _find_page(arguments: models.PageArguments, call: "Calls") -> "Page | models.PageAnswer":
    empty: list[str] = []

    def approve(estimate: "GetEstimate") -> None:
        empty.extend(estimate.empty)
        call.check_cost(estimate.requests - estimate.spent, estimate.bytes, str(estimate), arguments.max_requests)

    try:
        with call.within(arguments.max_requests):
            return call.catalogue.get(
                arguments.url,
                at=arguments.at,
                crawls=None if arguments.crawl == ["all"] else arguments.crawl,
                follow=arguments.follow,
                max_requests=min(arguments.max_requests, call.left),
                approve=approve,
            )
    except NotArchived as error:
        return models.PageAnswer(
            outcome="target_not_archived" if error.target else "not_proven" if error.doubts else "not_archived",
            reason=str(error),
            url=error.target,
            crawls_without_capture=[*error.empty],
            notes=[*call.notes, *error.doubts],
            cost=call.cost,
        )
    except TooExpensive as error:
        if not call.requests:
            raise
        return models.PageAnswer(
            outcome="not_read", reason=str(error), crawls_without_capture=empty, notes=[*call.notes], cost=call.cost
        )


def _described(page: "Page", arguments: models.PageArguments) -> tuple[models.PageAnswer, str]:
    notes = [*page.notes, *page.substitutions]
    if page.record.truncated:
        notes.append(
            f"the archived page is incomplete, because the crawler truncated it: {page.record.truncated[:_MAX_TYPE]}"
        )
    content, missing = "", missing_body(page.record)
    try:
        content = _content_of(page, arguments, notes)
    except (BadDocument, BadRecord) as error:
        notes.append(f"the page cannot be parsed ({error}); the format headers always works")
    else:
        if not (content or missing) and arguments.format in {"text", "markdown"}:
            notes.append(f"the page has no text; its type is {(page.record.mime or 'unknown')[:_MAX_TYPE]}")
    if missing:
        notes.append(f"{missing}; the format headers always works")
    shown, removed = visible(content)
    facts = models.PageAnswer.model_construct(
        outcome="found",
        url=page.url,
        exact=page.exact,
        time=to_json(page.time),
        status=page.status,
        mime=page.record.mime and page.record.mime[:_MAX_TYPE],
        crawl=page.crawl,
        subset=page.subset,
        redirects=[each.url or "-" for each in page.redirects],
        content_length=len(shown),
        removed_characters=removed,
        notes=notes,
    )
    return facts, shown


def _content_of(page: "Page", arguments: models.PageArguments, notes: list[str]) -> str:
    match arguments.format:
        case "text":
            return page.to_text(main_content=arguments.main_content) or ""
        case "markdown":
            return page.to_markdown(main_content=arguments.main_content) or ""
        case "links":
            links, omitted = page.find_links()
            notes += [omitted] if omitted else []
            lines = ((link["url"] or "", " ".join((link["text"] or "").split())) for link in links)
            return "\n".join(f"{url} {text}".rstrip() for url, text in lines if url)
        case "headers":
            fields = "\n".join(f"{name}: {value}" for name, value in page.headers.items())
            return f"{page.record.status_line}\n{fields}"


def _part_of(facts: models.PageAnswer, text: str, arguments: models.PageArguments, call: "Calls") -> models.PageAnswer:
    start, end = arguments.offset, arguments.offset + arguments.max_chars
    content, nonce = marked(text[start:end])
    return facts.model_copy(
        update={
            "content": content,
            "content_nonce": nonce,
            "content_offset": start,
            "next_offset": end if end < len(text) else None,
            "notes": [*call.notes, *facts.notes],
            "cost": call.cost,
        }
    )


def sample(arguments: models.SampleArguments, call: "Calls") -> models.SampleAnswer:
    most = arguments.max_requests
    with call.within(most):
        captures = call.catalogue.captures(**arguments.query() | {"index": "columnar"})
        drawn = call.catalogue.sample(captures, arguments.size, seed=arguments.seed, per=arguments.per)
        batches = drawn.batches(lambda planned: call.check(planned, most))
        rows = _rows_of(batches)
    kept = _bounded(rows, call)
    notes = [*call.notes, *drawn.notes, *drawn.missing]
    if len(kept) < len(rows):
        notes.append(f"only the first {len(kept)} captures fit into the answer; draw fewer, or fewer columns")
    elif len(rows) < arguments.size:
        notes.append(f"only {len(rows)} captures were found among all rows")
    return models.SampleAnswer(
        captures=kept,
        complete=drawn.complete and len(kept) == len(rows),
        rows_drawn=drawn.drawn,
        rows_total=drawn.rows,
        notes=notes,
        cost=call.cost,
    )


def sql_metadata(arguments: models.SqlArguments, call: "Calls") -> models.SqlAnswer:
    from catalogue.metadata_db.isolated_sql import run_isolated  # noqa: PLC0415 - imports DuckDB

    found = run_isolated(
        call.session.updated_database(),
        arguments.sql,
        rows=arguments.limit,
        characters=MAX_CHARACTERS,
        started=call.on_abort,
    )
    found["notes"][:0] = call.notes
    return models.SqlAnswer(**found, cost=call.cost)
