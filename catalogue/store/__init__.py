"""The store: what was taken from the source, raw, and kept."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from catalogue.store.access import unwritable
    from catalogue.store.database import Store
    from catalogue.store.glance import named_in, names_of, sources_of
    from catalogue.store.held import Held, Label, decode, encode, version_of
    from catalogue.store.inspecting import Inspection, Seen, inspected
    from catalogue.store.layout import APPLICATION_ID, TABLES, VERSION, row_group_of
    from catalogue.store.locks import alone, locked
    from catalogue.store.mounts import remote_kind
    from catalogue.store.pieces import Frozen, Row, frozen, read_piece, write_piece
    from catalogue.store.salvaging import Salvaged, salvage

_HOMES = {
    "APPLICATION_ID": "layout",
    "Frozen": "pieces",
    "Held": "held",
    "Inspection": "inspecting",
    "Label": "held",
    "Row": "pieces",
    "Salvaged": "salvaging",
    "Seen": "inspecting",
    "Store": "database",
    "TABLES": "layout",
    "VERSION": "layout",
    "alone": "locks",
    "decode": "held",
    "encode": "held",
    "frozen": "pieces",
    "inspected": "inspecting",
    "locked": "locks",
    "named_in": "glance",
    "names_of": "glance",
    "read_piece": "pieces",
    "remote_kind": "mounts",
    "row_group_of": "layout",
    "salvage": "salvaging",
    "sources_of": "glance",
    "unwritable": "access",
    "version_of": "held",
    "write_piece": "pieces",
}

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
    "named_in",
    "names_of",
    "read_piece",
    "remote_kind",
    "row_group_of",
    "salvage",
    "sources_of",
    "unwritable",
    "version_of",
    "write_piece",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Import a name when it is first used: a shell that asks for names of crawls cannot wait for all of them."""
    if name not in _HOMES:
        message = f"module 'catalogue.store' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"catalogue.store.{_HOMES[name]}"), name)
