"""The CDX API, a JSON API and web pages over HTTP."""

from catalogue.server.app import application

__all__ = ["application"]
