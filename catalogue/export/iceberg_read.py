"""An Iceberg table for pyiceberg whose scans request data only."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.table import DataScan, StaticTable
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import EMPTY_DICT, Properties

from catalogue.commoncrawl.columns import PATH_COLUMNS

_EVERY_ROW = AlwaysTrue()


class IcebergTable(StaticTable):
    """pyiceberg's table, with filters on crawl and subset that work if these are not selected."""

    @classmethod
    def at(cls, metadata: Path, io: FileIO) -> "IcebergTable":
        """Return the table of a metadata file; ``io`` reads its files."""
        address = f"file://{metadata.absolute().as_posix()}"
        document = TableMetadataUtil.parse_raw(metadata.read_text(encoding="utf-8"))
        return cls(("catalogue", "index"), document, address, io, NoopCatalog("catalogue"))

    def scan(
        self,
        row_filter: str | BooleanExpression = _EVERY_ROW,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,  # noqa: FBT001, FBT002
        snapshot_id: int | None = None,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
    ) -> "IndexScan":
        """See pyiceberg's ``Table.scan``."""
        return IndexScan(
            table_metadata=self.metadata,
            io=self.io,
            row_filter=row_filter,
            selected_fields=selected_fields,
            case_sensitive=case_sensitive,
            snapshot_id=snapshot_id,
            options=options,
            limit=limit,
            catalog=self.catalog,
            table_identifier=self.name(),
        )


class IndexScan(DataScan):
    """A scan that reads the partition columns of its filter, and drops them if they are not selected.

    pyiceberg 0.12 fills partition columns only if they are selected; else they are null, and a filter on them silently
    finds nothing (apache/iceberg-python, _get_column_projection_values).
    """

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        found = DataScan.to_arrow(self._wider, dictionary_columns)
        return found.select(self._names)

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        found = DataScan.to_arrow_batch_reader(self._wider, dictionary_columns)
        schema = pa.schema([found.schema.field(name) for name in self._names])
        return pa.RecordBatchReader.from_batches(schema, (batch.select(self._names) for batch in found))

    def count(self) -> int:
        return DataScan.count(self._wider)

    @property
    def _names(self) -> list[str]:
        return [field.name for field in self.projection().fields]

    @property
    def _wider(self) -> "IndexScan":
        """This scan, with the partition columns of its filter selected."""
        schema = self.table_metadata.schema()
        named: Any = extract_field_ids(bind(schema, self.row_filter, case_sensitive=self.case_sensitive))
        columns = {schema.find_field(number).name for number in named}
        needed = [name for name in PATH_COLUMNS if name in columns and name not in self._names]
        return self.update(selected_fields=(*self._names, *needed)) if needed else self
