"""The store: what was taken from the source, raw, and kept."""

from catalogue.store.database import Store, locked
from catalogue.store.held import Held, decode, encode
from catalogue.store.layout import APPLICATION_ID, TABLES, VERSION

__all__ = ["APPLICATION_ID", "TABLES", "VERSION", "Held", "Store", "decode", "encode", "locked"]
