"""The store: what was taken from the source, raw, and kept."""

from catalogue.store.database import Store, locked
from catalogue.store.held import Held, decode, encode, version_of
from catalogue.store.layout import APPLICATION_ID, TABLES, VERSION
from catalogue.store.mounts import remote_kind
from catalogue.store.pieces import Frozen, Row, frozen, read_piece, write_piece

__all__ = [
    "APPLICATION_ID",
    "TABLES",
    "VERSION",
    "Frozen",
    "Held",
    "Row",
    "Store",
    "decode",
    "encode",
    "frozen",
    "locked",
    "read_piece",
    "remote_kind",
    "version_of",
    "write_piece",
]
