"""The CDX API, a JSON API and web pages over HTTP."""

from catalogue.server.application import application, server_of
from catalogue.server.monitoring import AccessLog
from catalogue.server.processes import ServerOptions, run
from catalogue.server.service import Service

__all__ = ["AccessLog", "ServerOptions", "Service", "application", "run", "server_of"]
