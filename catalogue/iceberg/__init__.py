"""The index as an Iceberg table over the published files; pyiceberg is imported here alone."""

from catalogue.iceberg.exporting import MISSING, export
from catalogue.iceberg.files import FooterIO, HeldFiles
from catalogue.iceberg.folder import check_address
from catalogue.iceberg.reading import IcebergTable, IndexScan

__all__ = ["MISSING", "FooterIO", "HeldFiles", "IcebergTable", "IndexScan", "check_address", "export"]
