"""Runs a plan: fetches what it announced and nothing else, decodes, and lets the residual decide about each row."""

from catalogue.reader.running import Told, in_order, read

__all__ = ["Told", "in_order", "read"]
