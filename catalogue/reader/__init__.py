"""Runs a plan: fetches what it announced and nothing else, decodes, and lets the residual decide about each row."""

from catalogue.reader.decoding import BATCH_ROWS
from catalogue.reader.running import Told, in_order, read

__all__ = ["BATCH_ROWS", "Told", "in_order", "read"]
