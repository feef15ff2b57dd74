"""``catalogue serve``."""

import ipaddress
from contextlib import closing

import click

from catalogue.cli.app import Command, Common, common
from catalogue.errors import QueryError
from catalogue.settings import install_command

_LOOPBACK = {"localhost", "ip6-localhost"}


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; 0.0.0.0 for all.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 for any free one.")
@click.option("--harvest-on-demand", is_flag=True, help="Harvest a crawl, all subsets, when it is requested.")
@click.option("--strict", is_flag=True, help="Refuse queries (422) that harvested files may not answer completely.")
@click.option(
    "--at-once", type=click.IntRange(1, 64), default=4, show_default=True, help="Queries answered in parallel."
)
@common
def serve(options: Common, *, host: str, port: int, harvest_on_demand: bool, strict: bool, at_once: int) -> None:
    """Serve the CDX API of index.commoncrawl.org, a JSON API and web pages.

    Clients of that server need only the new address. They find all crawls, and the captures of harvested ones. The
    header Catalogue-Incomplete says what is missing from an answer. (cdxt refuses lists of fewer than 60 crawls, such
    as the demo's.)

    \b
    catalogue serve
    catalogue serve --port 8080 --harvest-on-demand --contact you@example.org
    curl 'http://127.0.0.1:8000/CC-MAIN-2022-05-index?url=*.example.com&output=json'
    cdxt --cc-mirror http://127.0.0.1:8000/ --crawl CC-MAIN-2022-05 iter 'example.com/*'
    """
    try:
        from catalogue.server import run
    except ModuleNotFoundError as error:
        raise QueryError(f"serving needs {error.name}; run: {install_command('serve')}") from error
    from catalogue.server.service import Service

    if options.table is not None:
        raise QueryError("only Common Crawl's index is served; leave out --table")
    settings = options.settings()

    def ready(address: str) -> None:
        options.say(f"serving {settings.data.resolve()} at {address}/ until Ctrl-C")
        if not _is_loopback(host):
            options.say("all clients that reach this machine can send queries, which may cost requests to the source")

    service = Service(
        settings.data, settings, at_once=at_once, on_demand=harvest_on_demand, strict=strict, notify=options.say
    )
    with closing(service):
        run(service, host, port, ready=ready, log=options.verbose)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK
