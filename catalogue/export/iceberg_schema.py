"""How the index's columns are spelled in Iceberg: schema, partitions, sort order, names.

All of it is from the table's specification (https://iceberg.apache.org/spec/, version 2).
"""

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

from catalogue.commoncrawl.columns import KEY_COLUMN, PATH_COLUMNS, SCHEMA
from catalogue.metadata_db.file_stats import LakeFile, lake_schema

SORTED = 1
"""The sort order of files whose rows are in the order of their keys."""


def schema_of(files: Sequence[LakeFile], older: Sequence[Schema] = (), highest: int = 0) -> Schema:
    """The columns of files under one Iceberg schema; none is required, since none is in files of every year.

    A column of which files disagree what it holds, or for which Iceberg has no type, is left out: other readers would
    fail at it.

    Args:
        files: of which.
        older: schemas of the same table, from the newest on. What is called as there and has its type is the same
            column, and keeps its number.
        highest: number given in that table so far; none is given twice.
    """
    kinds: dict[str, set[str]] = {}
    for file in files:
        for name, held in zip(file.column_names, file.column_kinds, strict=True):
            kinds.setdefault(name, set()).add(held)
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
    """A partition a crawl and subset: readers take these columns from there, since no file has them."""
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, PARTITION_FIELD_ID_START + at, IdentityTransform(), name)
            for at, name in enumerate(PATH_COLUMNS)
        )
    )


def order_of(schema: Schema) -> SortOrder:
    """By key. It is the table's default; which files are so sorted each says for itself."""
    key = schema.find_field(KEY_COLUMN).field_id
    return SortOrder(SortField(source_id=key, transform=IdentityTransform()), order_id=SORTED)


def properties_of(
    schema: Schema, files: Iterable[LakeFile], older: Iterable[Schema] = (), mapped: Iterable[str] = ()
) -> dict[str, str]:
    """What the table says of itself.

    Files without field numbers need names to be mapped. A name that the schema has not is mapped to a number that it
    has not, or readers that look up every column of a file would stumble over it. There is one mapping for all
    snapshots, so what it said stays in it, but for columns whose type has changed since.

    Args:
        schema: of now.
        files: of now.
        older: schemas of the table, from the newest on.
        mapped: names that it has had in its mapping.
    """
    numbers: dict[str, int] = {}
    for each in (schema, *older):
        for field in each.fields:
            if field.name not in PATH_COLUMNS:
                numbers.setdefault(field.name, field.field_id)
    there = {name for names in {file.column_names for file in files} for name in names}
    strange = sorted(there.union(mapped) - numbers.keys())
    numbers |= {name: _STRANGE + at for at, name in enumerate(strange)}
    mapping = NameMapping(
        [MappedField.model_validate({"field-id": number, "names": [name]}) for name, number in numbers.items()]
    )
    return {
        TableProperties.DEFAULT_NAME_MAPPING: mapping.model_dump_json(),
        TableProperties.DEFAULT_WRITE_METRICS_MODE: "none",
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{KEY_COLUMN}": "full",
        _SPARK_BY_BATCH: "false",
    }


_STRANGE = 1_000_000_000
"""Numbers of columns from here on are those of names that stand in files alone."""

_SPARK_BY_BATCH = "read.parquet.vectorization.enabled"
"""Whether Spark reads by batches. iceberg-spark-runtime 1.10 cannot read times in milliseconds so, as they are in files
of all crawls (ClassCastException in VectorizedArrowReader)."""
