"""The application: which path is answered by what."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from catalogue.errors import CatalogueError
from catalogue.server import api, cdx, records, web
from catalogue.server.answers import on_error
from catalogue.serving import Service


def application(service: Service) -> Starlette:
    """The ASGI application that answers by a service; it does not close it."""
    app = Starlette(
        routes=[*api.routes(), *cdx.ROUTES, *records.routes(), *web.routes()],  # the last of which takes any name
        middleware=[
            Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["GET"], expose_headers=["*"]),
            Middleware(GZipMiddleware, compresslevel=5),
        ],
        exception_handlers=dict.fromkeys((CatalogueError, HTTPException, Exception), on_error),
    )
    app.state.service = service
    return app
