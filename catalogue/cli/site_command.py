"""``catalogue site``."""

from typing import TYPE_CHECKING

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import report_incomplete
from catalogue.cli.options import Budget, budget_options, crawls_option, json_option
from catalogue.cli.tables import as_json
from catalogue.formatting import clock, printable_lines

if TYPE_CHECKING:
    from catalogue.plan.plan import ReadPlan
    from catalogue.site_report import SiteReport


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
        budget.check(plan)
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
