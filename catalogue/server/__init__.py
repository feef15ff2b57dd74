"""The CDX API, a JSON API and web pages over HTTP."""

from catalogue.server.app import application
from catalogue.server.run import run, server_of

__all__ = ["application", "run", "server_of"]
