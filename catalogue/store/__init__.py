"""The store: what was taken from the source, raw, and kept."""

from catalogue.store.database import APPLICATION_ID, TABLES, VERSION, Store
from catalogue.store.held import Held, decode, encode

__all__ = ["APPLICATION_ID", "TABLES", "VERSION", "Held", "Store", "decode", "encode"]
