"""``catalogue serve``, ``catalogue demo`` and ``catalogue mcp``."""

import ipaddress
import os
import shutil
import sys
import tempfile
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from catalogue.cli.app import Common, command, entry
from catalogue.cli.options import Number
from catalogue.errors import QueryError

_CRAWL = "CC-MAIN-2022-05"
_COMMANDS = [
    ("Print a page from the newest crawl. This needs no preparation.", ["get", "shop.example.com", "--text"]),
    ("List the crawls.", ["crawls"]),
    (
        "Harvest a crawl: store the footer (a table of contents) of each index file, by one request per file.",
        ["harvest", "--crawl", _CRAWL, "--subset", "all"],
    ),
    ("Harvest an older crawl, whose files have another layout.", ["harvest", "--crawl", "CC-MAIN-2018-05"]),
    ("Print what is stored.", ["status"]),
    (
        "Query the footers with SQL.",
        ["sql", "select row_group, num_rows, min_url_surtkey, max_url_surtkey from row_groups limit 4"],
    ),
    (
        "Print the cost to find all captures of a site. This makes no request.",
        ["plan", "*.example.com", "--crawl", _CRAWL],
    ),
    (
        "Find the captures, with exactly the planned requests.",
        ["query", "*.example.com", "--crawl", _CRAWL, "--status", "200", "--limit", "6", "--format", "table"],
    ),
    (
        "Find the captures of one page in all stored crawls.",
        ["query", "https://shop.example.com/dir/", "--limit", "2", "--format", "cdxj"],
    ),
]


def _check_dataset(options: Common) -> None:
    if options.table is not None:
        raise QueryError("only Common Crawl's index is served; leave out --table")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in {"localhost", "ip6-localhost"}


def _cores() -> int:
    """Return the number of usable cores, up to 8; 1 where processes cannot share a port."""
    return min(len(os.sched_getaffinity(0)), 8) if sys.platform == "linux" else 1


@command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; 0.0.0.0 for all.")
@click.option("--port", type=Number(0, 65535), default=8000, show_default=True, help="Port; 0 for any free one.")
@click.option(
    "--harvest-on-demand", "on_demand", is_flag=True, help="Harvest all subsets of a crawl when a client requests it."
)
@click.option(
    "--values",
    multiple=True,
    metavar="COLUMN",
    help="With --harvest-on-demand, also store the values of these columns; see: catalogue harvest -h",
)
@click.option("--strict", is_flag=True, help="Refuse queries (422) whose answer may be incomplete.")
@click.option(
    "--at-once",
    type=Number(1, 64),
    default=2,
    show_default=True,
    help="Queries that each process answers in parallel.",
)
@click.option(
    "--workers",
    type=Number(1, 64),
    default=_cores,
    show_default="a process a core, at most 8",
    help="Number of processes; each has its own memory.",
)
@click.option(
    "--memory",
    type=Number(0, 1 << 20),
    default=512,
    show_default=True,
    help="MB of index data that each process keeps in memory for the CDX API.",
)
@click.option(
    "--access-log", metavar="FILE", help="Append a JSON object for each request to this file; - for standard error."
)
@click.option("--proxied", is_flag=True, help="Use the headers X-Forwarded-For, -Host and -Proto, which a proxy sets.")
def serve(
    options: Common,
    *,
    host: str,
    port: int,
    workers: int,
    memory: int,
    access_log: str | None,
    proxied: bool,
    **of_service: Any,
) -> None:
    """Serve the CDX API, a JSON API and web pages.

    The CDX API is that of index.commoncrawl.org, so clients of that server need only the new address. The header
    Catalogue-Incomplete says what is missing from an answer. (cdxt refuses lists of fewer than 60 crawls, such as that
    of the demo.)

    \b
    catalogue serve
    catalogue serve --port 8080 --harvest-on-demand --contact you@example.org
    curl 'http://127.0.0.1:8000/CC-MAIN-2022-05-index?url=*.example.com&output=json'
    cdxt --cc-mirror http://127.0.0.1:8000/ --crawl CC-MAIN-2022-05 iter 'example.com/*'
    """
    from catalogue.settings import needing

    with needing("serve", "serving"):
        from catalogue.server.application import open_server
        from catalogue.server.monitoring import AccessLog
        from catalogue.server.processes import run
        from catalogue.server.service import Service
    _check_dataset(options)
    if of_service["values"] and not of_service["on_demand"]:
        raise QueryError("--values needs --harvest-on-demand")
    settings = options.settings()

    def ready(address: str) -> None:
        options.say(f"serving {settings.data.resolve()} at {address}/ until Ctrl-C")
        if not _is_loopback(host):
            options.say("all clients that reach this machine can send queries, which may cost requests to the source")

    more = of_service | {"memory": memory << 20, "proxied": proxied, "notify": options.say}
    open_service = partial(Service, settings.data, settings, **more)
    open_log = partial(AccessLog, access_log, proxied=proxied, notify=options.say) if access_log else None
    opened = partial(open_server, open_service, open_log, log=options.verbose)
    run(opened, host, port, workers, say=options.say, ready=ready)


@command()
@click.option("--keep", is_flag=True, help="Keep the folder with the miniature crawl and its harvested metadata.")
@click.option("--serve", is_flag=True, help="Keep serving the miniature crawl until Ctrl-C, to try commands on it.")
def demo(options: Common, *, keep: bool, serve: bool) -> None:
    """Run the main commands on a miniature crawl, offline.

    The demo takes a minute.

    \b
    catalogue demo
    catalogue demo --serve      then try other commands on it
    """
    from catalogue.demo import LoopbackServer, write_miniature

    folder = Path(tempfile.mkdtemp(prefix="catalogue-demo-"))
    try:
        miniature = write_miniature(folder / "mirror")
        options.say(
            f"A miniature of data.commoncrawl.org with made-up content: "
            f"{len(miniature.files)} files, {miniature.rows:,} captures."
        )
        with LoopbackServer(folder / "mirror") as server:
            os.environ["CATALOGUE_DATA"] = str(folder / "data")
            # The address of the server ends with it, so commands could not go on with the kept data folder.
            os.environ["CATALOGUE_SOURCE"] = source = str(folder / "mirror") if keep else server.url
            os.environ["CATALOGUE_CACHE"] = str(folder / "cache")  # the cache of the user has pages of real crawls
            for why, command in _COMMANDS:
                _run(why, command)
            _show_python(folder / "data", source)
            received = sum(exchange.sent_bytes for exchange in server.log)
            if not keep:
                click.echo(f"\nIn total, {len(server.log)} requests were made, for {received:,} bytes.")
            if serve:
                _serve(server.url)
    finally:
        if keep:
            click.echo(f"\nKept in {folder}; as a source: --source {folder / 'mirror'} --data {folder / 'data'}")
        else:
            shutil.rmtree(folder)


def _run(why: str, command: list[str]) -> None:
    shown = " ".join(f"'{word}'" if set(word) & set(" *?&") else word for word in command)
    click.echo(f"\n# {why}\n$ catalogue {shown}")
    # Commands exit with status 1 by SystemExit.
    with suppress(SystemExit):
        entry.main(command, standalone_mode=False)


def _show_python(data: Path, source: str) -> None:
    import catalogue

    click.echo(
        "\n# Read the captures of the site in Python, as a DataFrame.\n"
        ">>> import catalogue\n"
        f'>>> cat = catalogue.open("{data}", source="{source}")\n'
        f'>>> found = cat.captures("*.example.com", crawls="{_CRAWL}", columns=["url", "fetch_time", "fetch_status"])\n'
        ">>> found"
    )
    with catalogue.open(data, source=source) as cat:
        found = cat.captures("*.example.com", crawls=_CRAWL, columns=["url", "fetch_time", "fetch_status"])
        click.echo(repr(found))
        click.echo(">>> found.to_pandas().head()")
        click.echo(found.to_pandas().head().to_string(max_colwidth=40))


def _serve(url: str) -> None:
    click.echo(
        f"\nServing {url} until Ctrl-C. In another terminal:\n"
        f"  export CATALOGUE_SOURCE={url} CATALOGUE_DATA=data\n"
        "  catalogue query '*.example.com' --crawl latest"
    )
    threading.Event().wait()


@command()
@click.option(
    "--max-requests",
    type=Number(min=0),
    default=200,
    show_default=True,
    help="Requests to the source that this process may make, for all calls and clients together.",
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of the standard streams.")
@click.option("--host", help="With --http: address to listen at.  [default: 127.0.0.1]")
@click.option("--port", type=Number(0, 65535), help="With --http: port; 0 for any free one.  [default: 8001]")
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="With --http: a host name that clients use, such as mcp.example.org; repeatable.  [default: this machine's]",
)
def mcp(
    options: Common, *, max_requests: int, http: bool, host: str | None, port: int | None, names: tuple[str, ...]
) -> None:
    """Serve assistants by the Model Context Protocol.

    The server uses the standard streams, or HTTP. Its tools list crawls, price queries, find captures, read
    archived pages, draw samples and run SQL over the metadata. The tools only read, and the process makes at most
    --max-requests requests. Clients start the server themselves; see docs/how-to/assistants.md.

    \b
    catalogue mcp
    catalogue mcp --max-requests 50 --data ~/data
    catalogue mcp --http --port 8001
    """
    from catalogue.settings import needing

    with needing("mcp", "the server"):
        from catalogue.mcp_server.calls import Calls
        from catalogue.mcp_server.serve import serve_http, serve_stdio
    _check_dataset(options)
    given = {"--host": host, "--port": port, "--allow-host": names or None}
    if useless := [option for option, value in given.items() if value is not None and not http]:
        raise QueryError(f"{useless[0]} needs --http")
    host, port = host or "127.0.0.1", 8001 if port is None else port
    if http and not names and not _is_loopback(host):
        raise QueryError(f"--host {host} needs --allow-host NAME, the host name in the URL that clients use")
    calls = Calls(options.settings(), max_requests, notify=options.say, observer=options.observer())
    if not http:
        if sys.stdin.isatty():
            options.say("waiting for a client on the standard input; Ctrl-C ends it; see docs/how-to/assistants.md")
        serve_stdio(calls)
        return

    def ready(url: str) -> None:
        options.say(f"serving {url} until Ctrl-C")
        if not _is_loopback(host):
            options.say("all clients that reach this machine share its requests, and see what is stored here")

    serve_http(calls, host, port, names, ready=ready)
