"""The CDX API, a JSON API and web pages over HTTP."""

from catalogue.server.application import application, run, server_of

__all__ = ["application", "run", "server_of"]
