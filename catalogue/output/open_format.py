"""Open a format of records by its name."""

from collections.abc import Iterator
from contextlib import contextmanager

from catalogue.errors import QueryError
from catalogue.output.formats import SUFFIXES, FormatSpec, JsonLinesFormat, PayloadFormat, RecordFormat, WarcFormat
from catalogue.records.document import Documents
from catalogue.records.metadata import metadata_of, row_of, text_of
from catalogue.settings import package_version

_CONFORMS_TO = "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.0/"


@contextmanager
def open_format(spec: FormatSpec) -> Iterator[RecordFormat]:
    """Open a format; it can be used from several threads."""
    if spec.name not in SUFFIXES:
        raise QueryError(f"unknown format of records {spec.name!r}; use one of {', '.join(SUFFIXES)}")
    if spec.name == "warc":
        yield WarcFormat(
            {
                "software": f"commoncrawl-catalogue/{package_version()}",
                "format": "WARC File Format 1.0",
                "conformsTo": _CONFORMS_TO,
                "description": spec.about or "records of captures in Common Crawl",
            }
            | ({"isPartOf": ", ".join(spec.crawls)} if spec.crawls else {})
        )
    elif spec.name == "payload":
        yield PayloadFormat()
    else:
        convert = {"text": text_of, "metadata": metadata_of, "parquet": row_of}[spec.name]
        with Documents(main_content=spec.main_content) as documents:
            look = documents.look
            if spec.name == "parquet":
                from catalogue.output.parquet_format import ROW, ParquetFormat

                yield ParquetFormat(lambda record: convert(record, look), ROW)
            else:
                yield JsonLinesFormat(lambda record: convert(record, look))
