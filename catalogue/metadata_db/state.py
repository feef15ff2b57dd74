"""From which state of the store the metadata database was built; this needs no DuckDB."""

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b

from catalogue.metadata_db.queries import queries_folder
from catalogue.store.database import Store
from catalogue.store.stored_blocks import blocks_folder, crawls_with_blocks
from catalogue.surt import MACROS

_LAYOUT = "14"
"""Version of the tables; a database of another version is rebuilt."""


@cache
def layout() -> str:
    """Return ``_LAYOUT`` with a digest of the statements of tables, views and macros."""
    sql = [path.read_text(encoding="utf-8") for path in sorted((queries_folder() / "views").glob("*.sql"))]
    sql += [macro.statement for macro in MACROS]
    return f"{_LAYOUT} {blake2b(''.join(sql).encode(), digest_size=8).hexdigest()}"


def meta_of(store: Store) -> dict[str, str]:
    """Return what ``derived.meta`` contains after a database was built from the store as it is now."""
    blocks = str(blocks_folder(store).resolve()) if crawls_with_blocks(store) else ""
    return {"layout": layout(), "store": store.state(), "indexes": store.index_state(), "blocks": blocks}


def shows(found: Mapping[str, str], requested: Mapping[str, str], *, indexes: bool) -> bool:
    """Return whether a database was built from this state; ``indexes``: of the page indexes, too."""
    keys = ("layout", "store", "blocks", "indexes") if indexes else ("layout", "store", "blocks")
    return all(found.get(key) == requested[key] for key in keys)
