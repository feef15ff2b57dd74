"""A server of the Model Context Protocol, with which assistants use the catalogue."""

from catalogue.mcp_server.serve import serve_http, serve_stdio

__all__ = ["serve_http", "serve_stdio"]
