"""The CDX API, a JSON API and web pages over HTTP."""

from catalogue.server.application import application, server_of
from catalogue.server.processes import CAN_SHARE_PORT, ServerOptions, run

__all__ = ["CAN_SHARE_PORT", "ServerOptions", "application", "run", "server_of"]
