"""The store: what was taken from the source, raw, and kept."""

from catalogue.store.database import Store
from catalogue.store.held import Held, Label, decode, encode, version_of
from catalogue.store.inspecting import Inspection, Seen, inspected
from catalogue.store.layout import APPLICATION_ID, TABLES, VERSION, row_group_of
from catalogue.store.locks import alone, locked
from catalogue.store.mounts import remote_kind
from catalogue.store.pieces import Frozen, Row, frozen, read_piece, write_piece
from catalogue.store.salvaging import Salvaged, salvage

__all__ = [
    "APPLICATION_ID",
    "TABLES",
    "VERSION",
    "Frozen",
    "Held",
    "Inspection",
    "Label",
    "Row",
    "Salvaged",
    "Seen",
    "Store",
    "alone",
    "decode",
    "encode",
    "frozen",
    "inspected",
    "locked",
    "read_piece",
    "remote_kind",
    "row_group_of",
    "salvage",
    "version_of",
    "write_piece",
]
