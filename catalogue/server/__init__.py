"""The CDX API, a JSON API and web pages over HTTP."""

from catalogue.server.app import application
from catalogue.server.running import run

__all__ = ["application", "run"]
