"""Runs a plan: fetches what it announced and nothing else, decodes, and lets the residual decide about each row."""

from catalogue.reader.running import Told, read

__all__ = ["Told", "read"]
