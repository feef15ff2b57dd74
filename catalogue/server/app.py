"""The application: which path is answered by what."""

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from catalogue.server import api, records, web
from catalogue.server.answers import on_error
from catalogue.serving import Service


def application(service: Service) -> Starlette:
    """The ASGI application that answers by a service; it does not close it."""
    routes: list[BaseRoute] = [*api.routes(), *records.routes(), *web.routes()]
    app = Starlette(routes=routes, exception_handlers={Exception: on_error})
    app.state.service = service
    return app
