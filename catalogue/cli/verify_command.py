"""``catalogue verify``."""

from pathlib import Path

import click

from catalogue.cli.app import Common, command
from catalogue.cli.messages import show, warn
from catalogue.cli.options import FILE, Budget, budget_options, confirm, json_option
from catalogue.cli.tables import as_json
from catalogue.formatting import plural, printable, size


@command()
@click.argument("receipt", type=FILE)
@click.option(
    "--answer",
    type=FILE,
    help="The file with the answer.  [default: the one that the receipt names, next to it]",
)
@click.option("--read-source", is_flag=True, help="Also read the ranges of the receipt again and compare them.")
@json_option
@budget_options
def verify(
    options: Common, *, receipt: Path, answer: Path | None, read_source: bool, json_: bool, budget: Budget
) -> int:
    """Check an answer against the receipt that --receipt wrote.

    Without --read-source it makes no requests. The exit status is 1 if the answer, the receipt or the source
    was changed.

    \b
    catalogue query '*.example.com' -o found.jsonl --receipt found.receipt
    catalogue verify found.receipt
    catalogue verify found.receipt --read-source
    """
    from catalogue.check.receipt import check_answer, check_source, read_receipt

    read = read_receipt(receipt)
    file = answer or receipt.with_name(read.answer)
    problems = [problem] if (problem := check_answer(read, file)) else []
    if read_source:
        with options.opened() as catalogue:
            if not budget.covers(len(read.reads), read.bytes):
                confirm(f"this takes {plural(len(read.reads), 'request')}, {size(read.bytes)}", "verify fewer ranges")
            problems += check_source(read, catalogue.session)
    if json_:
        as_json(
            {
                "valid": not problems,
                "problems": problems,
                "source_read": read_source,
                "answer": str(file),
                "created": read.created,
                "query": read.query,
                "incomplete": read.incomplete,
                "ranges": len(read.reads),
                "bytes": read.bytes,
            }
        )
    else:
        if not problems:
            show(f"{file} matches its receipt")
        again = "read again" if read_source else "not read again (--read-source reads them)"
        click.echo(f"made from {plural(len(read.reads), 'range')}, {size(read.bytes)}, {again}")
        for note in read.incomplete:
            click.echo(f"the answer was incomplete: {printable(note)}")
        for problem in problems:
            warn(problem)
    return int(bool(problems))
