"""The application: which path is answered by what."""

import re

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import Receive, Scope, Send

from catalogue.errors import CatalogueError
from catalogue.server import archived_pages, cdx_api, json_api, web_pages
from catalogue.server.responses import on_error
from catalogue.server.service import Service

_NO_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)


class _GZip(GZipMiddleware):
    """Compress answers for clients that accept gzip; Starlette ignores ``q=0``."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _NO_GZIP.search(Headers(scope=scope).get("Accept-Encoding", "")):
            headers = [header for header in scope["headers"] if header[0] != b"accept-encoding"]
            scope = {**scope, "headers": headers}
        await super().__call__(scope, receive, send)


def application(service: Service) -> Starlette:
    """The ASGI application that answers by a service; it does not close it."""
    app = Starlette(
        routes=[
            *json_api.routes(),
            *cdx_api.ROUTES,
            *archived_pages.routes(),
            *web_pages.routes(),
        ],  # the last of which takes any name
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=["*"],
                allow_methods=["GET", "HEAD"],
                allow_headers=["*"],
                expose_headers=["*"],
            ),
            Middleware(_GZip, compresslevel=5),
        ],
        exception_handlers=dict.fromkeys((CatalogueError, HTTPException, Exception), on_error),
    )
    app.state.service = service
    return app
