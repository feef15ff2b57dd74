"""Schema, partitions, sort order and manifests in Iceberg (https://iceberg.apache.org/spec/, version 2)."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from catalogue.commoncrawl.crawls import KEY_COLUMN, PATH_COLUMNS
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.metadata_db.lake_files import LakeFile, lake_schema

SORTED = 1
"""Sort order of files whose rows are sorted by key."""
_UNMAPPED = 1_000_000_000
_SPARK_BY_BATCH = "read.parquet.vectorization.enabled"
"""Must be false: with it, iceberg-spark-runtime 1.10 cannot read the index's times in milliseconds
(ClassCastException in VectorizedArrowReader)."""
FORMAT: Final = 2
"""Version of Iceberg's format that all current engines read."""
CODEC: Final = "deflate"
_BLOCK = 200
"""Entries of an Avro block, about 50 kB."""


def schema_of(files: Sequence[LakeFile], older: Sequence[Schema] = (), highest: int = 0) -> Schema:
    """Return one schema for all files. No column is required, since none is in files of every year.

    Columns without an Iceberg type, or with several types, are left out: other readers would fail. A column of one of
    the ``older`` schemas, newest first, keeps its field id if its name and type are equal; ``highest`` is the highest
    field id so far.
    """
    kinds: dict[str, set[str]] = {}
    for file in files:
        for name, column_kind in zip(file.column_names, file.column_kinds, strict=True):
            kinds.setdefault(name, set()).add(column_kind)
    there = {(field.name, field.field_type): field.field_id for each in reversed(older) for field in each.fields}
    used = highest
    fields = []
    for field in lake_schema(files):
        kind = _type(field.type)
        if kind is None or (field.name not in SCHEMA.names and len(kinds[field.name]) > 1):
            continue
        number = there.get((field.name, kind), used + 1)
        used = max(used, number)
        fields.append(NestedField(number, field.name, kind, required=False))
    return Schema(*fields)


def _type(kind: pa.DataType) -> IcebergType | None:
    if pa.types.is_timestamp(kind):
        return TimestamptzType() if kind.tz else TimestampType()
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    of: dict[pa.DataType, IcebergType] = {
        pa.string(): StringType(),
        pa.binary(): BinaryType(),
        pa.int16(): IntegerType(),
        pa.int32(): IntegerType(),
        pa.int64(): LongType(),
        pa.float64(): DoubleType(),
        pa.bool_(): BooleanType(),
        pa.date32(): DateType(),
    }
    return of.get(kind)


def partitions_of(schema: Schema) -> PartitionSpec:
    """Partition by crawl and subset, which are in no file, so that readers take them from the partition."""
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, PARTITION_FIELD_ID_START + at, IdentityTransform(), name)
            for at, name in enumerate(PATH_COLUMNS)
        )
    )


def order_of(schema: Schema) -> SortOrder:
    """Return the default sort order, to which the entry of each sorted file refers."""
    key = schema.find_field(KEY_COLUMN).field_id
    return SortOrder(SortField(source_id=key, transform=IdentityTransform()), order_id=SORTED)


def properties_of(
    schema: Schema, files: Iterable[LakeFile], older: Iterable[Schema] = (), mapped: Iterable[str] = ()
) -> dict[str, str]:
    """Return the properties of the table.

    Files without field ids need a name mapping. Names that the schema does not have are mapped to unused ids, since
    some readers look up every column of a file. The mapping is the same for all snapshots, so names stay in it: those
    of the ``older`` schemas, newest first, and ``mapped`` ones.
    """
    numbers: dict[str, int] = {}
    for each in (schema, *older):
        for field in each.fields:
            if field.name not in PATH_COLUMNS:
                numbers.setdefault(field.name, field.field_id)
    there = {name for names in {file.column_names for file in files} for name in names}
    unmapped = sorted(there.union(mapped) - numbers.keys())
    numbers |= {name: _UNMAPPED + at for at, name in enumerate(unmapped)}
    mapping = NameMapping(
        [MappedField.model_validate({"field-id": number, "names": [name]}) for name, number in numbers.items()]
    )
    return {
        TableProperties.DEFAULT_NAME_MAPPING: mapping.model_dump_json(),
        TableProperties.DEFAULT_WRITE_METRICS_MODE: "none",
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{KEY_COLUMN}": "full",
        _SPARK_BY_BATCH: "false",
    }


@dataclass(frozen=True, slots=True)
class Writing:
    """A snapshot that is being written."""

    io: FileIO
    folder: str
    """Address of the metadata folder, with a slash at its end."""
    location: str
    """Address of the data, with a slash at its end."""
    schema: Schema
    spec: PartitionSpec
    snapshot: int

    def manifest(
        self, crawl: str, files: Sequence[LakeFile], before: Mapping[str, ManifestEntry] | None = None
    ) -> ManifestFile:
        """Write the manifest of a crawl.

        ``before`` has the entries of the previous snapshot by address, for the sequence numbers of unchanged files, and
        to mark removed ones as deleted.
        """
        left = dict(before or {})
        name = f"{crawl}.{self.digest(files)}.{self.snapshot}.avro"  # see parse_manifest_path
        output = self.io.new_output(f"{self.folder}{name}")
        writer = _Writer(self.spec, self.schema, output, self.snapshot, CODEC)
        with writer:
            for file in files:
                data = self._data_file(file)
                old = left.get(data.file_path)
                if old and old.data_file.file_size_in_bytes == data.file_size_in_bytes:
                    del left[data.file_path]
                    writer.existing(_entry(data, old))
                else:
                    writer.add(_entry(data))
            for old in left.values():
                writer.delete(old)
        return writer.to_manifest_file()  # reads its length

    def digest(self, files: Iterable[LakeFile]) -> str:
        """Return a digest of a manifest's contents: with an equal one the manifest is used again."""
        digest = hashlib.blake2b(f"{self.location}\n{self._key}\n".encode(), digest_size=16)
        for file in files:
            bounds = (file.min_key, file.max_key, file.ascending, file.row_group_offsets)
            digest.update(repr((file.path, file.subset, file.file_size, file.num_rows, bounds)).encode())
        return digest.hexdigest()

    @property
    def _key(self) -> int:
        return self.schema.find_field(KEY_COLUMN).field_id

    def _data_file(self, file: LakeFile) -> DataFile:
        """Return the entry of a file.

        With truncated bounds a lookup of one URL would open five times as many files.
        """
        return DataFile.from_args(
            FORMAT,
            content=DataFileContent.DATA,
            file_path=self.location + file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(file.crawl, file.subset),
            record_count=file.num_rows,
            file_size_in_bytes=file.file_size,
            lower_bounds=self._bound(file.min_key),
            upper_bounds=self._bound(file.max_key),
            split_offsets=list(file.row_group_offsets) or None,
            sort_order_id=SORTED if file.ascending else None,
        )

    def _bound(self, key: str | None) -> dict[int, bytes] | None:
        return None if key is None else {self._key: to_bytes(StringType(), key)}


class _Writer(ManifestWriterV2):
    """Writes many entries into a block: pyiceberg writes one each, which makes manifests twice as large."""

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        plain = super().new_writer()
        return _Blocks(plain.output_file, plain.file_schema, plain.schema_name, metadata=plain.metadata)


class _Blocks(AvroOutputFile[ManifestEntry]):
    def __enter__(self) -> Self:
        self._pending: list[ManifestEntry] = []
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        super().__exit__(kind, error, trace)

    def write_block(self, objects: list[ManifestEntry]) -> None:
        self._pending += objects
        if len(self._pending) >= _BLOCK:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            super().write_block(self._pending)
        self._pending = []


def _entry(data: DataFile, before: ManifestEntry | None = None) -> ManifestEntry:
    return ManifestEntry.from_args(
        FORMAT,
        status=ManifestEntryStatus.EXISTING if before else ManifestEntryStatus.ADDED,
        snapshot_id=before.snapshot_id if before else None,
        sequence_number=before.sequence_number if before else None,
        file_sequence_number=before.file_sequence_number if before else None,
        data_file=data,
    )


def parse_manifest_path(manifest: ManifestFile) -> tuple[str, str]:
    crawl, digest, *_ = manifest.manifest_path.rpartition("/")[2].split(".")
    return crawl, digest


def has_live_files(manifest: ManifestFile) -> bool:
    return bool(manifest.has_added_files() or manifest.has_existing_files())


def entries_of(manifest: ManifestFile, io: FileIO) -> dict[str, ManifestEntry]:
    """Return the entries of files that are not deleted, by address."""
    return {entry.data_file.file_path: entry for entry in manifest.fetch_manifest_entry(io)}
