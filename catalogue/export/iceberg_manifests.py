"""Write the manifest of a crawl: Iceberg's entries of its files, from stored footers."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

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
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from catalogue.commoncrawl.columns import KEY_COLUMN
from catalogue.export.iceberg_schema import SORTED
from catalogue.metadata_db.lake_files import LakeFile

FORMAT: Final = 2
"""Version of Iceberg's format that all current engines read."""
CODEC: Final = "deflate"
"""Compression of Avro files."""
_BLOCK = 200
"""Entries of an Avro block, about 50 kB."""


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
    """Snapshot id."""

    def manifest(
        self, crawl: str, files: Sequence[LakeFile], before: Mapping[str, ManifestEntry] | None = None
    ) -> ManifestFile:
        """Write the manifest of a crawl.

        ``before`` has the entries of the previous snapshot by address, for the sequence numbers of unchanged files, and
        to mark removed ones as deleted.
        """
        left = dict(before or {})
        name = f"{self.folder}{manifest_name(crawl, self.digest(files), self.snapshot)}"
        output = self.io.new_output(name)
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

        Bounds are complete: with truncated ones a lookup of one URL opens five times as many files. Files without
        bounds are always opened.
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


def manifest_name(crawl: str, digest: str, snapshot: int) -> str:
    """Return a manifest's file name, from which the next export gets the digest."""
    return f"{crawl}.{digest}.{snapshot}.avro"


def parse_manifest_path(manifest: ManifestFile) -> tuple[str, str]:
    """Return the crawl and the digest of a manifest; see ``Writing.digest``."""
    crawl, digest, *_ = manifest.manifest_path.rpartition("/")[2].split(".")
    return crawl, digest


def has_live_files(manifest: ManifestFile) -> bool:
    """Whether a manifest has files that are not deleted."""
    return bool(manifest.has_added_files() or manifest.has_existing_files())


def entries_of(manifest: ManifestFile, io: FileIO) -> dict[str, ManifestEntry]:
    """Return the entries of files that are not deleted, by address."""
    return {entry.data_file.file_path: entry for entry in manifest.fetch_manifest_entry(io)}
