"""Schema, partitions, sort order and name mapping in Iceberg (https://iceberg.apache.org/spec/, version 2)."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
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

from catalogue.commoncrawl.columns import KEY_COLUMN, PATH_COLUMNS
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.metadata_db.lake_files import LakeFile, lake_schema

SORTED = 1
"""Sort order of files whose rows are sorted by key."""


def schema_of(files: Sequence[LakeFile], older: Sequence[Schema] = (), highest: int = 0) -> Schema:
    """Return one schema for all files. No column is required, since none is in files of every year.

    Columns without an Iceberg type, or with several types, are left out: other readers would fail.

    A column of one of the ``older`` schemas, newest first, keeps its field id if its name and type are equal;
    ``highest`` is the highest field id so far.
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
    """Partition by crawl and subset: no file has these columns, so readers take them from the partition."""
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, PARTITION_FIELD_ID_START + at, IdentityTransform(), name)
            for at, name in enumerate(PATH_COLUMNS)
        )
    )


def order_of(schema: Schema) -> SortOrder:
    """Return the default sort order, by key; the entry of each sorted file refers to it."""
    key = schema.find_field(KEY_COLUMN).field_id
    return SortOrder(SortField(source_id=key, transform=IdentityTransform()), order_id=SORTED)


def properties_of(
    schema: Schema, files: Iterable[LakeFile], older: Iterable[Schema] = (), mapped: Iterable[str] = ()
) -> dict[str, str]:
    """Return the properties of the table.

    Files without field ids need a name mapping. Names that the schema does not have are mapped to unused ids, since
    some readers look up every column of a file. The mapping is the same for all snapshots, so names stay in it.

    ``older`` are the table's schemas, newest first; ``mapped`` the names in its mapping.
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


_UNMAPPED = 1_000_000_000
"""First field id of columns that only files have."""

_SPARK_BY_BATCH = "read.parquet.vectorization.enabled"
"""Must be false: with it, iceberg-spark-runtime 1.10 cannot read the index's times in milliseconds
(ClassCastException in VectorizedArrowReader)."""
