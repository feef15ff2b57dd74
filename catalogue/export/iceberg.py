"""Write a snapshot of an Iceberg table over index files; no file is opened.

The folder has the layout of Iceberg's HadoopTables, so that every engine can read it by its path:
``metadata/vN.metadata.json`` and, for engines that list no folders, ``metadata/version-hint.text`` with N. A version
exists once its JSON is renamed to its name.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)

from catalogue.atomic_files import errors_of, make_folder, named, sync, whole_file
from catalogue.errors import QueryError
from catalogue.export.iceberg_manifests import (
    CODEC,
    FORMAT,
    Writing,
    entries_of,
    has_live_files,
    order_of,
    parse_manifest_path,
    partitions_of,
    properties_of,
    schema_of,
)
from catalogue.metadata_db.lake_files import LakeFile
from catalogue.store.locks import locked

MISSING = "catalogue.missing"
"""Property of the table and of a snapshot's summary: a JSON array of sentences."""

_LOCK = ".export.lock"
_OURS = re.compile(
    r"v[0-9]+\.metadata\.json|version-hint\.text|CC-[A-Z]+-[0-9-]+\.[0-9a-f]{32}\.[0-9]+\.avro|snap-[0-9]+\.avro"
    r"|\..+\.part|\..+\.crc"
)

_CUT = re.compile(r"[#?\t\r\n]")
"""Characters at which pyiceberg and others cut the path of an address, and would write to another file."""


_Manifests: TypeAlias = dict[str, tuple[str, ManifestFile]]
"""Digests and manifests by crawl; see ``Writing.digest``."""


class TableFolder:
    """The folder. One process at a time writes into it, within ``writing``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata = path / "metadata"

    @property
    def address(self) -> str:
        """The address as Hadoop and pyiceberg use it, without a slash at its end and without escapes."""
        return f"file://{self.path.absolute().as_posix()}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.check()
        with errors_of(self.path, self.path.parent):
            make_folder(self.metadata)
        with locked(self.path / _LOCK, self.path), named(self.path):
            yield

    def check(self) -> None:
        """Check that there are only files of a table, and a valid address."""
        check_address(self.address)
        others: Iterable[str] = ()
        if self.path.is_dir():
            others = {file.name for file in self.path.iterdir()} - {_LOCK, self.metadata.name}
            if not others and self.metadata.is_dir():
                others = [file.name for file in self.metadata.iterdir() if not _OURS.fullmatch(file.name)]
        if others or (self.path.exists() and not self.path.is_dir()):
            raise QueryError(
                f"{self.path} has other files than a table of this tool; choose another path, or an empty folder"
            )

    def version(self) -> int:
        """Return the newest version, 0 if there is none; the hint of a killed process is outdated."""
        try:
            number = int((self.metadata / "version-hint.text").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            number = 0
        while self.file(number + 1).exists():
            number += 1
        return number

    def file(self, version: int) -> Path:
        return self.metadata / f"v{version}.metadata.json"

    def hint(self, version: int) -> None:
        """Write the number of the newest version."""
        file = self.metadata / "version-hint.text"
        if not file.exists() or file.read_text(encoding="ascii", errors="replace") != str(version):
            with whole_file(file) as opened:
                opened.write(str(version).encode())


def check_address(address: str) -> None:
    if found := _CUT.search(address):
        raise QueryError(
            f"{address!r} has {found[0]!r}, which addresses in Iceberg tables cannot have; choose another path"
        )


def export(path: Path, files: Sequence[LakeFile], location: str, missing: Sequence[str] = ()) -> Path:
    """Write a table of these files, or a new version of an existing one; return its metadata file.

    Manifests of unchanged crawls are used again. Without changes nothing is written. Files of a crawl are neighbours;
    ``location`` is their address, with a slash at its end; ``missing`` says what was not harvested.

    Raises:
        QueryError: if there are no files, or the folder has other files.
        StoreLocked: if another process writes to it.
    """
    if not files:
        raise QueryError("these crawls have no stored files, and a table needs one; see: catalogue status")
    folder = TableFolder(path)
    with folder.writing():
        io = PyArrowFileIO()
        version = folder.version()
        there, manifests = _read(folder, version, io) if version else (None, {})
        document = _next(folder, version, there, manifests, files, location, missing, io)
        if document is not None:
            for written in folder.metadata.glob(f"*{document.current_snapshot_id}.avro"):
                sync(written)
            version += 1
            with whole_file(folder.file(version)) as opened:
                opened.write(document.model_dump_json(exclude_none=True).encode())
        folder.hint(version)
        return folder.file(version)


def _read(folder: TableFolder, version: int, io: FileIO) -> tuple[TableMetadata, _Manifests]:
    file = folder.file(version)
    try:
        metadata = TableMetadataUtil.parse_raw(file.read_text(encoding="utf-8"))
    except (ValueError, ValidationError) as error:
        raise QueryError(f"{file} is damaged; choose another path, or an empty folder") from error
    snapshot = metadata.current_snapshot()
    if metadata.location != folder.address or snapshot is None:
        raise QueryError(
            f"{folder.path} was written as {metadata.location}, and its addresses are absolute; "
            "choose another path, or an empty folder"
        )
    manifests = (each for each in snapshot.manifests(io) if has_live_files(each))
    return metadata, {crawl: (digest, each) for each in manifests for crawl, digest in [parse_manifest_path(each)]}


def _next(
    folder: TableFolder,
    version: int,
    there: TableMetadata | None,
    before: _Manifests,
    files: Sequence[LakeFile],
    location: str,
    missing: Sequence[str],
    io: FileIO,
) -> TableMetadata | None:
    older = sorted(there.schemas, key=lambda each: -each.schema_id) if there else []
    schema = schema_of(files, older, there.last_column_id if there else 0)
    mapped = [name for field in names.root for name in field.names] if there and (names := there.name_mapping()) else []
    properties = properties_of(schema, files, older, mapped) | ({MISSING: json.dumps(list(missing))} if missing else {})
    format_version = {TableProperties.FORMAT_VERSION: str(FORMAT)}
    parts, order = partitions_of(schema), order_of(schema)
    metadata = there or new_table_metadata(schema, parts, order, folder.address, format_version)
    updates: list[TableUpdate] = []
    if schema.fields != metadata.schema().fields:
        schema = Schema(*schema.fields, schema_id=max(each.schema_id for each in metadata.schemas) + 1)
        updates += [AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate()]
    else:
        schema = metadata.schema()
    if any(metadata.properties.get(name) != text for name, text in properties.items()):
        updates.append(SetPropertiesUpdate(updates=properties))
    if MISSING in metadata.properties and not missing:
        updates.append(RemovePropertiesUpdate(removals=[MISSING]))
    writing = Writing(io, f"{folder.address}/metadata/", location, schema, metadata.spec(), metadata.new_snapshot_id())
    manifests, operation = _manifests(writing, before, files)
    if operation is None and not updates:
        return None
    snapshot = _snapshot(writing, metadata, manifests, operation or Operation.APPEND, files, missing)
    updates += [
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate.model_validate(
            {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot.snapshot_id}
        ),
    ]
    address = f"{folder.address}/metadata/{folder.file(version).name}" if version else None
    return update_table_metadata(metadata, tuple(updates), metadata_location=address)


def _manifests(
    writing: Writing, before: _Manifests, files: Sequence[LakeFile]
) -> tuple[list[ManifestFile], Operation | None]:
    left = dict(before)
    manifests, added, changed = [], False, False
    for crawl, group in groupby(files, key=lambda file: file.crawl):
        mine = list(group)
        digest, manifest = left.pop(crawl, (None, None))
        if manifest is None:
            manifest, added = writing.manifest(crawl, mine), True
        elif digest != writing.digest(mine):
            manifest, changed = writing.manifest(crawl, mine, entries_of(manifest, writing.io)), True
        manifests.append(manifest)
    for crawl, (_, manifest) in left.items():  # crawls that were removed
        manifests.append(writing.manifest(crawl, (), entries_of(manifest, writing.io)))
        changed = True
    return manifests, Operation.OVERWRITE if changed else Operation.APPEND if added else None


def _snapshot(
    writing: Writing,
    metadata: TableMetadata,
    manifests: list[ManifestFile],
    operation: Operation,
    files: Sequence[LakeFile],
    missing: Sequence[str],
) -> Snapshot:
    parent = metadata.current_snapshot()
    number = 1 + ((parent.sequence_number or 0) if parent else 0)
    address = f"{writing.folder}snap-{writing.snapshot}.avro"
    output, before = writing.io.new_output(address), metadata.current_snapshot_id
    with write_manifest_list(FORMAT, output, writing.snapshot, before, number, CODEC) as listing:
        listing.add_manifests(manifests)
    new = [each for each in manifests if each.added_snapshot_id == writing.snapshot]
    summary = {
        "added-data-files": str(sum(each.added_files_count or 0 for each in new)),
        "deleted-data-files": str(sum(each.deleted_files_count or 0 for each in new)),
        "added-records": str(sum(each.added_rows_count or 0 for each in new)),
        "deleted-records": str(sum(each.deleted_rows_count or 0 for each in new)),
        "total-data-files": str(len(files)),
        "total-records": str(sum(file.num_rows for file in files)),
        "total-files-size": str(sum(file.file_size for file in files)),
    }
    if missing:
        summary[MISSING] = json.dumps(list(missing))
    return Snapshot.model_validate(
        {
            "snapshot-id": writing.snapshot,
            "parent-snapshot-id": metadata.current_snapshot_id,
            "sequence-number": number,
            "timestamp-ms": max(time.time_ns() // 1_000_000, metadata.last_updated_ms),
            "manifest-list": address,
            "summary": Summary(operation, **summary),
            "schema-id": writing.schema.schema_id,
        }
    )
