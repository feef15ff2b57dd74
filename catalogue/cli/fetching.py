"""Commands that fetch the pages themselves."""

import csv
import io
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from catalogue.cli.answering import Leave
from catalogue.cli.app import Common, common
from catalogue.cli.asking import found_by, question, with_patterns
from catalogue.cli.showing import as_json, harvest_bar, parse_size, plural, size, table
from catalogue.errors import IncompleteAnswer, QueryError

_HOSTS = 10
_PARQUET = b"PAR1"


@click.command()
@question
@click.option(
    "--captures", "file", type=click.File("rb"), help="Instead of a pattern: JSON lines, CSV or Parquet; - for stdin."
)
@click.option("-o", "--output", help="The file to write, such as found.warc.gz or s3://bucket/prefix/found.warc.gz.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["warc", "text", "metadata", "parquet", "payload"]),
    default="warc",
    show_default=True,
    help="Records as archived; JSON lines of text or metadata; a table with texts; or a folder of payloads.",
)
@click.option("--main-content", is_flag=True, help="Of texts, leave out navigation, footers and the like.")
@click.option(
    "--max-size", metavar="SIZE", help="Begin another file after so much, such as 1GB, which is usual for URLs."
)
@click.option("--dry-run", is_flag=True, help="Only say what it would take.")
@click.option("--yes", is_flag=True, help="Do not ask, however much it is.")
@click.option("--max-requests", type=int, default=500, show_default=True, help="Ask before making more.")
@click.option("--max-bytes", type=int, default=1_000_000_000, show_default=True, help="Ask before reading more.")
@click.option("--json", "json_", is_flag=True, help="One JSON object.")
@common
def fetch(  # noqa: PLR0913 - an option each
    options: Common,
    *,
    file: BinaryIO | None,
    output: str | None,
    form: str,
    main_content: bool,
    max_size: str | None,
    dry_run: bool,
    yes: bool,
    max_requests: int,
    max_bytes: int,
    json_: bool,
    **asked: Any,  # noqa: ANN401
) -> None:
    """The archived records of captures, as WARC, or their text, metadata or payloads.

    Every record is checked against the index. It can be stopped at any time; the same again goes on from there, and
    fetches only what is missing.

    \b
    catalogue fetch '*.example.com' --crawl latest --dry-run
    catalogue fetch '*.example.com' --crawl latest --status 200 -o example.warc.gz
    catalogue fetch 'example.com/blog/*' --crawl latest --format text --main-content -o blog.jsonl
    catalogue fetch 'example.com/*.pdf' --crawl latest --format payload -o documents
    catalogue query '*.is' --where "content_languages = 'isl'" | catalogue fetch --captures - -o isl.warc.gz
    """  # noqa: D301
    from catalogue.harvest import Progress  # noqa: PLC0415 - --help needs none of what this imports

    _check(asked, file, output, form, max_size, dry_run=dry_run)
    leave, asked = Leave(yes, max_requests, max_bytes), with_patterns(asked)
    most = parse_size(max_size) if max_size else None
    with options.opened() as catalogue, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteAnswer)  # said below, and by the exit status
        missing: tuple[str, ...] = ()
        if file:
            rows = list(_rows_in(file))
        else:
            found = leave.given(found_by(catalogue, options, asked | {"columns": _columns()}))
            missing = found.plan.missing
            rows = [row for batch in found.batches() for row in batch.to_pylist()]
        needed = catalogue.fetch_estimate(rows)
        cost = f"{plural(needed.requests, 'request')}, {size(needed.bytes)}, about {needed.seconds:.0f} s"
        if output is None or dry_run:
            _show_estimate(needed, json_=json_)
            return
        if not yes and (needed.requests > max_requests or needed.bytes > max_bytes):
            leave.confirm(cost)
        about = " ".join([*asked["patterns"], *asked["crawls"]]) or (file.name if file else "")
        with harvest_bar(options, "records") as bar:

            def report(at: Any) -> None:  # noqa: ANN401 - importing its type is slow
                bar(Progress("fetch", needed.captures, at.records, failed=len(at.failed), bytes=at.bytes))

            done = catalogue.fetch(
                rows,
                output,
                form=form,
                main_content=main_content,
                most=most,
                about=f"captures of {about}",
                report=report,
            )
    _show_done(options, done, json_=json_)
    for lack in missing:
        click.echo(f"catalogue: the captures may be incomplete: {lack}", err=True)
    if done.failed or done.unusable or missing:
        sys.exit(1)


def _check(
    asked: dict[str, Any], file: BinaryIO | None, output: str | None, form: str, max_size: str | None, *, dry_run: bool
) -> None:
    """Refuse what does not go together."""
    if bool(asked["patterns"] or asked["urls_file"]) is bool(file):
        message = "what is to be fetched? give either patterns or --captures"
        raise QueryError(message)
    if output is None and not dry_run:
        message = "where are the records to go? say it with -o, such as -o found.warc.gz"
        raise QueryError(message)
    if output is None:
        return
    if form == "payload" and max_size:
        message = "payloads are a file each; leave out --max-size"
        raise QueryError(message)
    from catalogue.outputs import SUFFIXES, split_output  # noqa: PLC0415 - --help needs none of what this imports

    split_output(output)
    taken = [suffix for suffix in SUFFIXES.values() if suffix and output.endswith(suffix)]
    if form == "payload" and taken:
        message = f"payloads go to a folder, and {output} looks like a file; choose another name, or another --format"
        raise QueryError(message)
    if not output.endswith(SUFFIXES[form]):
        message = f"{output} would hold {form}; let its name end in {SUFFIXES[form]}, or choose another --format"
        raise QueryError(message)


def _columns() -> str:
    from catalogue.capture import RECORD_COLUMNS  # noqa: PLC0415 - --help needs none of what this imports

    return ",".join(RECORD_COLUMNS)


def _show_estimate(needed: Any, *, json_: bool) -> None:  # noqa: ANN401 - importing its type is slow
    if json_:
        as_json(
            {
                "captures": needed.captures,
                "requests": needed.requests,
                "bytes": needed.bytes,
                "seconds": round(needed.seconds, 1),
                "hosts": needed.hosts,
            }
        )
        return
    table(
        ["captures", "requests", "bytes", "seconds"],
        [[needed.captures, needed.requests, size(needed.bytes), f"{needed.seconds:.1f}"]],
    )
    if needed.hosts:
        click.echo()
        hosts = list(needed.hosts.items())
        table(["host", "captures"], hosts[:_HOSTS])
        if len(hosts) > _HOSTS:
            click.echo(f"and {len(hosts) - _HOSTS:,} more")


def _show_done(options: Common, done: Any, *, json_: bool) -> None:  # noqa: ANN401 - likewise
    if json_:
        failures = [{"filename": f, "offset": o, "reason": r} for (f, o), r in done.failed.items()]
        as_json(
            {
                "records": done.records,
                "bytes": done.bytes,
                "files": done.files,
                "failed": failures,
                "unusable": done.unusable,
            }
        )
        return
    options.say(f"{plural(done.records, 'record')} in {', '.join(done.files) or 'no file'}")
    for reason in [*done.failed.values(), *done.unusable]:
        click.echo(f"catalogue: not fetched: {reason}", err=True)


def _rows_in(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """The rows of a file of captures, whatever of the three it is."""
    data = file.read()
    try:
        if data.startswith(_PARQUET):
            import pyarrow.parquet as pq  # noqa: PLC0415 - --help needs none of what this imports

            yield from pq.read_table(io.BytesIO(data)).to_pylist()
            return
        text = data.decode("utf-8-sig")
        if text.lstrip().startswith("{"):
            for line in text.splitlines():
                if line.strip():
                    row = json.loads(line)
                    yield row if isinstance(row, dict) else {}
            return
        yield from csv.DictReader(io.StringIO(text))
    except (ValueError, csv.Error) as error:
        message = f"{file.name} holds no captures as JSON lines, CSV or Parquet: {error}"
        raise QueryError(message) from error
