"""The state of the store that the tables show, and what a plan needs of all crawls, in one small file.

It is written after the tables. A table that was replaced since then, or is damaged, has another checksum.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import copyfile
from zlib import crc32

from catalogue.atomic_files import whole_file
from catalogue.store.database import Store

TABLES_FOLDER, STATE_NAME = "tables", "state.json"

_LAYOUT = 5
"""Tables of another version are made again."""


@dataclass(slots=True)
class CrawlState:
    """The state of one crawl."""

    checksum: int = 0
    """That of the table's directory; 0 without a table."""
    stored_files: str = ""
    """A digest that changes with its stored files."""
    stored_indexes: str = ""
    """The same for page indexes."""
    gaps: int = 0
    """Row groups whose footers have no bounds; page indexes can change their rows."""
    schemas: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    """Files in the table, by subset."""
    row_groups: dict[str, int] = field(default_factory=dict)
    manifest: int = 0
    """The number of the row of its manifest in the store."""
    listed: dict[str, int] = field(default_factory=dict)
    """Files in its manifest, by subset."""
    requested: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    """Files that could not be fetched or decoded, by subset."""
    undecodable: dict[str, str] = field(default_factory=dict)
    """Reasons why stored footers are not in the table, by path."""
    values: int = 0
    """The checksum of the file of column values; 0 without one."""


@dataclass(slots=True)
class TablesState:
    """The state of all tables."""

    dataset: str
    store: str
    indexes: str
    crawls: dict[str, CrawlState]
    schemas: dict[str, str]

    def shows(self, store: Store, *, indexes: bool) -> bool:
        """Return whether the tables show everything that is stored; ``indexes``: page indexes, too."""
        return self.store == store.state() and (not indexes or self.indexes == store.index_state())

    @property
    def store_id(self) -> str:
        """The part of ``store`` that changes when numbers of rows may be used again."""
        return self.store.partition(":")[0]


def copied_folder(data: Path, temporary_folder: Path) -> Path:
    copy = temporary_folder / TABLES_FOLDER
    if not copy.exists():
        copy.mkdir()
        with suppress(OSError):  # they are made again then
            for file in (data / TABLES_FOLDER).iterdir():
                copyfile(file, copy / file.name)  # without its mode, which may be read-only
    return copy


def table_path(folder: Path, crawl: str) -> Path:
    return folder / f"{crawl}.parquet"


def values_path(folder: Path, crawl: str) -> Path:
    return folder / f"{crawl}.values.parquet"


def read_state(folder: Path) -> TablesState | None:
    """Return the state; None if it is missing, damaged or of another version."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        checksum, _, packed = (folder / STATE_NAME).read_bytes().partition(b"\n")
        if int(checksum) == crc32(packed):
            values = json.loads(packed)
            if values.pop("layout") == _LAYOUT:
                crawls = {crawl: CrawlState(**each) for crawl, each in values.pop("crawls").items()}
                return TablesState(**values, crawls=crawls)
    return None


def write_state(folder: Path, state: TablesState) -> None:
    packed = json.dumps(asdict(state) | {"layout": _LAYOUT}, separators=(",", ":")).encode()
    with whole_file(folder / STATE_NAME) as file:
        file.write(b"%d\n%b" % (crc32(packed), packed))


def fresh_state(folder: Path, store: Store, key: str, *, indexes: bool = False) -> TablesState | None:
    """Return the state of tables that are up to date; see ``TablesState.shows``."""
    state = read_state(folder)
    return state if state and state.dataset == key and state.shows(store, indexes=indexes) else None
