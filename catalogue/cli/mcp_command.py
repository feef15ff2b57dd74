"""``catalogue mcp``."""

import sys

import click

from catalogue.cli.app import Command, Common, common
from catalogue.cli.options import is_loopback
from catalogue.errors import QueryError

_MAX_REQUESTS = 200


@click.command(cls=Command)
@click.option(
    "--max-requests",
    type=click.IntRange(min=0),
    default=_MAX_REQUESTS,
    show_default=True,
    help="Requests to the source that this process may make, for all calls and clients together.",
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of the standard streams.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8001, show_default=True, help="With --http; 0 for any free one."
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="With --http: a host name that clients use, such as mcp.example.org; repeatable.  [default: this machine's]",
)
@common
def mcp(options: Common, *, max_requests: int, http: bool, host: str, port: int, names: tuple[str, ...]) -> None:
    """Serve assistants by the Model Context Protocol.

    It uses the standard streams, or HTTP. Its tools list crawls, price queries, find captures, read archived pages,
    draw samples and run SQL over the metadata. They only read, and the whole process makes at most --max-requests
    requests. Clients start it themselves; see docs/how-to/assistants.md.

    \b
    catalogue mcp
    catalogue mcp --max-requests 50 --data ~/data
    catalogue mcp --http --port 8001
    """
    try:
        from catalogue.mcp_server.calls import Calls
        from catalogue.mcp_server.serve import serve_http, serve_stdio
    except ModuleNotFoundError as error:
        from catalogue.settings import install_command

        raise QueryError(f"the server needs {error.name}; run: {install_command('mcp')}") from error
    if options.table is not None:
        raise QueryError("only Common Crawl's index is served; leave out --table")
    if names and not http:
        raise QueryError("--allow-host needs --http")
    if http and not names and not is_loopback(host):
        raise QueryError(f"--host {host} needs --allow-host NAME, the host name in the URL that clients use")
    calls = Calls(options.settings(), max_requests, notify=options.say, observer=options.observer())
    if not http:
        if sys.stdin.isatty():
            options.say("waiting for a client on the standard input; Ctrl-C ends it; see docs/how-to/assistants.md")
        serve_stdio(calls)
        return

    def ready(url: str) -> None:
        options.say(f"serving {url} until Ctrl-C")
        if not is_loopback(host):
            options.say("all clients that reach this machine share its requests, and see what is stored here")

    serve_http(calls, host, port, names, ready=ready)
