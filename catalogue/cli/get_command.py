"""``catalogue get`` and ``catalogue site``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import report_incomplete, warn
from catalogue.cli.options import (
    FILE,
    Budget,
    budget_options,
    check_folder,
    combine,
    confirm,
    crawls_option,
    json_option,
    max_requests_option,
    receipt_option,
    recorder_for,
    yes_option,
)
from catalogue.cli.tables import as_json
from catalogue.errors import NotArchived, QueryError
from catalogue.formatting import clock, json_line, plural, printable_lines, size, to_json

if TYPE_CHECKING:
    from catalogue.get_page import GetEstimate
    from catalogue.plan.plan import ReadPlan
    from catalogue.records.page import Page
    from catalogue.site_report import SiteReport

_FORMS = {
    "text": "Print the text of the page.",
    "markdown": "Print the page as Markdown.",
    "links": "Print the absolute URLs of its links, one per line.",
    "headers": "Print the status line and the headers of the HTTP response.",
    "record": "Print the WARC record, gzipped, as it is in the archive.",
}
_TEXTS = ("text/", "application/xhtml", "application/json", "application/xml", "application/javascript")
_MAX_REQUESTS = 20


@command()
@click.argument("url")
@click.option(
    "--at", metavar="TIME", help="The capture nearest to this time: 2022, 2022-08 or 20220815.  [default: newest]"
)
@crawls_option("Crawls to search: 2022-05, a year, A..B or latest; comma-separated or repeated.  [default: all]")
@combine(*(click.option(f"--{name}", is_flag=True, help=text) for name, text in _FORMS.items()))
@click.option(
    "--json",
    "json_",
    is_flag=True,
    help="Print one JSON object; with --text, --markdown or --links, it contains these.",
)
@click.option(
    "--main-content", is_flag=True, help="Leave navigation, page footers and the like out of text and Markdown."
)
@click.option("--save", "path", type=FILE, help="Write to this file instead of standard output.")
@receipt_option
@click.option("--follow/--no-follow", default=True, help="Follow archived redirects.  [default: follow]")
@max_requests_option(_MAX_REQUESTS)
@yes_option
def get(
    options: Common,
    *,
    json_: bool,
    main_content: bool,
    path: Path | None,
    receipt: Path | None,
    yes: bool,
    **parameters: Any,
) -> int:
    """Print an archived page.

    It searches crawls from the newest to the oldest, until one has the page. It needs no harvest. It prints the status
    and time of the page, and its position in the archive, on standard error. If only a similar URL has a capture, such
    as /abc instead of /AbC, it prints that page, with a message.

    \b
    catalogue get https://example.com/ --text
    catalogue get example.com --at 2022-01 --markdown
    catalogue get example.com --crawl 2022-05 --save page.html
    catalogue get example.com --crawl 2022-05 --links
    catalogue get example.com --crawl 2022-05 --record --save page.warc.gz
    """
    form = _form([name for name in _FORMS if parameters.pop(name)], json_=json_, main_content=main_content)

    def approve(estimate: "GetEstimate") -> None:
        if not yes:
            confirm(str(estimate), "raise --max-requests" if parameters["crawls"] else "name a crawl with --crawl")

    query = {name: parameters[name] for name in ("url", "at", "crawls", "follow")}
    query |= {"form": form, "main_content": main_content}
    if path:
        check_folder(path)
    recorder = recorder_for(receipt, path)
    with options.opened(observer=recorder) as catalogue:
        page = catalogue.get(**parameters | {"crawls": parameters["crawls"] or None}, approve=approve)
        if recorder:
            recorder.add_footers(catalogue.session, page.index_files)
    _describe(page, options)
    problems = _problems(page, form, json_=json_)
    if json_:
        content = _json(page, form, problems, main_content=main_content)
    else:
        content = _content(page, form, problems, main_content=main_content)
    if path:
        from catalogue.atomic_files import output_file

        with output_file(path) as file:
            file.write(content)
    elif json_ or not sys.stdout.isatty():
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        _show(content, page, form)
    if recorder and receipt and path:
        recorder.write(receipt, path, query, page.notes)
    status = report_incomplete("the search may be incomplete", page.notes)
    for problem in problems:
        warn(problem)
    return status or int(bool(problems))


def _form(chosen: list[str], *, json_: bool, main_content: bool) -> str:
    if len(chosen) > 1:
        raise QueryError(f"--{chosen[0]} and --{chosen[1]} exclude each other")
    form = chosen[0] if chosen else ""
    if json_ and form in {"headers", "record"}:
        raise QueryError(f"--json and --{form} exclude each other; the JSON object has the headers")
    if main_content and form not in {"text", "markdown"}:
        raise QueryError("--main-content needs --text or --markdown")
    return form


def _problems(page: "Page", form: str, *, json_: bool) -> list[str]:
    from catalogue.records.record import missing_body

    missing = missing_body(page.record) if form not in {"headers", "record"} else None
    if missing and (not json_ or form in {"text", "markdown"}):
        raise NotArchived(f"{missing}; the record itself: --headers or --record")
    undecoded = page.record.coding_error if json_ and form else None
    return [problem for problem in (missing, undecoded) if problem]


def _describe(page: "Page", options: Common) -> None:
    for redirect in page.redirects:
        options.say(f"{redirect.status or 'unknown status'}, a redirect: {redirect.url}")
    mime = page.record.mime or "unknown type"
    length = size(len(page.record.body if page.record.coding_error else page.content))
    options.say(f"{page.record.status_line or 'no status'}, {mime}, {length}: {page.url}")
    time = f"{clock(page.time)} UTC, " if page.time else ""
    options.say(f"{time}{page.crawl}, {page.capture.filename} at {page.capture.offset}")
    options.say(f"{plural(page.requests, 'request')}, {size(page.bytes)}")
    if page.record.truncated:
        options.say(f"the archived page is incomplete, because the crawler truncated it: {page.record.truncated}")
    for substitution in page.substitutions:
        warn(substitution)


def _content(page: "Page", form: str, problems: list[str], *, main_content: bool) -> bytes:
    if form == "record":
        return page.record.member
    if form == "headers":
        return page.record.http_head or b"".join(f"{n}: {v}\r\n".encode() for n, v in page.record.headers)
    if form == "links":
        return "".join(f"{link['url']}\n" for link in _links(page, problems)).encode()
    if form:
        return f"{_extracted(page, form, main_content=main_content)}\n".encode(errors="replace")
    return page.content


def _extracted(page: "Page", form: str, *, main_content: bool) -> str:
    found = (page.to_markdown if form == "markdown" else page.to_text)(main_content=main_content)
    if found is None:
        raise QueryError(f"{page.record.mime or 'a document without a type'} has no text; leave out --{form}")
    return found


def _show(content: bytes, page: "Page", form: str) -> None:
    if form == "record" or not (form or (page.record.mime or "").startswith(_TEXTS)):
        what = "a gzipped record" if form else page.record.mime or "of unknown type"
        raise QueryError(f"this is {what}, which terminals cannot show; add --save FILE")
    click.echo(printable_lines(page.html if not form else content.decode(errors="replace")))


def _links(page: "Page", problems: list[str]) -> list[dict[str, str | None]]:
    links, omitted = page.find_links()
    problems += [omitted] if omitted else []
    return links


def _json(page: "Page", form: str, problems: list[str], *, main_content: bool) -> bytes:
    capture, record = page.capture, page.record
    links = _links(page, problems) if form == "links" and not record.coding_error else None
    described: dict[str, object] = {
        "url": page.url,
        "exact": page.exact,
        "time": record.time,
        "status": page.status,
        "mime": record.mime,
        "charset": page.charset,
        "charset_source": page.charset_source,
        "truncated": record.truncated,
        "coding_error": record.coding_error,
        "crawl": page.crawl,
        "subset": page.subset,
        "headers": page.headers,
        "redirects": [each.url for each in page.redirects],
        "warc_filename": capture.filename,
        "warc_record_offset": capture.offset,
        "warc_record_length": capture.length,
        "content_digest": capture.digest,
        "requests": page.requests,
        "bytes": page.bytes,
        "incomplete": [*page.notes, *problems],
    }
    if form == "links":
        described["links"] = links
    elif form:
        described[form] = None if record.coding_error else _extracted(page, form, main_content=main_content)
    return json_line(to_json(described))


@command()
@click.argument("site")
@crawls_option("One crawl: 2022-05 or latest.  [default: latest]")
@json_option
@budget_options
def site(options: Common, *, site: str, crawls: tuple[str, ...], json_: bool, budget: Budget) -> int:
    """Summarize what a crawl has of a site and its subdomains.

    It prints the numbers of pages, redirects, errors and robots.txt captures, the first and last fetch, content types
    and languages of the pages, and the archived robots.txt. It needs no harvest. It prints the cost on standard
    error before it reads anything.

    \b
    catalogue site example.com
    catalogue site example.com --crawl 2022-05 --json
    """
    shown: list[str] = []

    def approve(plan: "ReadPlan") -> None:
        budget.after(*catalogue.session.spent).check(plan)
        if not shown:
            shown.append(plan.price)
            options.say(f"this takes {plan.price}, and a few requests for robots.txt")

    with options.opened() as catalogue:
        report = catalogue.site(site, crawl=crawls or "latest", approve=approve)
    if json_:
        as_json(report.summary())
    else:
        _print_report(report)
    return report_incomplete("the report may be incomplete", report.missing)


def _print_report(report: "SiteReport") -> None:
    details = dict(report.details())
    width = max(map(len, details))
    click.echo(f"{report.site} in {report.crawl}")
    for name, value in details.items():
        click.echo(f"  {name:{width}}  {printable_lines(value)}")
    if page := report.robots_txt:
        time = f"{clock(page.time)} UTC" if page.time else "unknown time"
        click.echo(f"\n{page.url}, {page.record.status_line or 'no status'}, {time}:\n")
        click.echo(printable_lines((page.text or "").rstrip()))
