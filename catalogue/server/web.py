"""Pages for people: HTML that needs neither scripts nor anything from elsewhere."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route


def routes() -> Sequence[BaseRoute]:
    """The paths of the pages; the last of them takes whatever is left that looks like the name of a crawl."""
    return [Route("/robots.txt", _robots)]


async def _robots(_: Request) -> Response:
    """Crawlers have nothing to find here that Common Crawl does not offer as a whole."""
    return PlainTextResponse("User-agent: *\nDisallow: /\n")
