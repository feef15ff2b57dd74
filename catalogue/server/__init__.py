"""The CDX API, a JSON API and web pages over HTTP."""

from catalogue.server.app import application
from catalogue.server.running import run, server_of

__all__ = ["application", "run", "server_of"]
