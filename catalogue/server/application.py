"""The application, and a server of it."""

import re
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from catalogue.errors import CatalogueError
from catalogue.server import archived_pages, cdx_api, json_api, monitoring, web_pages
from catalogue.server.connections import Connection, Connections, StoppingServer
from catalogue.server.monitoring import AccessLog, Figures
from catalogue.server.responses import on_error
from catalogue.server.service import Service
from catalogue.settings import package_version

_MAX_CONNECTIONS = 4096
"""A connection that has sent half a head takes up to 64 KiB."""
_HEAD_SECONDS = 20
_REFUSES_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)


_ROUTES = [*monitoring.ROUTES, *cdx_api.ROUTES, *web_pages.ROUTES, *archived_pages.ROUTES]
"""The last ones take any path."""


class _GZip(GZipMiddleware):
    """Compress answers for clients that accept gzip; Starlette ignores ``q=0``."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _REFUSES_GZIP.search(Headers(scope=scope).get("Accept-Encoding", "")):
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"accept-encoding"]
        await super().__call__(scope, receive, send)


def application(service: Service | None = None) -> FastAPI:
    """Return the ASGI application; without a service, only its OpenAPI document works. The caller closes it."""
    app = FastAPI(
        title="Catalogue of Common Crawl",
        version=package_version(),
        description="Captures, and the cost of finding them. Names are those of the index's columns; times are UTC.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        openapi_url=json_api.OPENAPI_PATH,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
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
        exception_handlers={
            RequestValidationError: json_api.on_invalid_parameters,
            CatalogueError: on_error,
            HTTPException: on_error,
            Exception: on_error,
        },
    )
    app.include_router(json_api.ROUTER)
    app.add_route(json_api.OTHER_PATHS, json_api.no_such_path, include_in_schema=False)
    app.router.routes += _ROUTES
    app.state.service = service
    return app


@contextmanager
def open_server(
    open_service: Callable[..., Service], open_log: Callable[[], AccessLog] | None, figures: Figures, *, log: bool
) -> Iterator[uvicorn.Server]:
    """Open the server of a process, which counts in ``figures``; with ``log``, requests are printed."""
    access_log = open_log and open_log()
    with closing(open_service(figures=figures)) as service:
        yield server_of(service, log=log, access_log=access_log)


def server_of(
    service: Service, *, log: bool = False, access_log: AccessLog | None = None, head_seconds: int = _HEAD_SECONDS
) -> uvicorn.Server:
    """Return a server whose connections each have ``head_seconds`` to send the head of a request."""
    monitor = monitoring.Monitor(application(service), _names_of_routes(), service.figures, access_log)
    most = _raise_file_limit() // 2
    connections = Connections(most, head_seconds, monitor.refuse)

    async def every_second() -> None:
        connections.close_late()
        service.publish()

    config = uvicorn.Config(
        monitor,
        log_level="info" if log else "error",
        access_log=log,
        lifespan="off",
        ws="none",
        http=Connection,
        proxy_headers=False,  # any client could send them
        backlog=max(1, most // 4),  # as many are accepted before the first can replace another
        server_header=False,
        timeout_keep_alive=head_seconds,
        callback_notify=every_second,
        timeout_notify=0,
    )
    return StoppingServer(config, state=connections)


def _names_of_routes() -> dict[object, str]:
    names: dict[object, str] = {path: path for path in monitoring.COUNTED}
    names[json_api.no_such_path] = json_api.OTHER_PATHS
    for route in _ROUTES:
        names.setdefault(route.app if isinstance(route, Mount) else route.endpoint, route.path)
    return names


def _raise_file_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * _MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * _MAX_CONNECTIONS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    return min(needed, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
