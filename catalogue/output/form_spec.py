"""A form of records by its name and options, which can be handed to another process, and how it is opened there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from catalogue.errors import QueryError
from catalogue.output.formats import SUFFIXES, Form, Lines, Payloads, Warc
from catalogue.output.row_formats import Rows
from catalogue.records.document import Documents
from catalogue.records.metadata import ROW, metadata_of, row_of, text_of
from catalogue.settings import package_version

_CONFORMS_TO = "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.0/"


@dataclass(frozen=True, slots=True)
class FormOf:
    """What records are made into."""

    name: str
    """One of ``SUFFIXES``."""
    main_content: bool = False
    """Whether texts are without navigation, footers and the like."""
    about: str = ""
    """What was asked, for a file's first record."""
    crawls: tuple[str, ...] = ()
    """Those that the records are of, likewise."""

    @property
    def kept(self) -> dict[str, object]:
        """What makes an output this one and no other, as JSON has it."""
        return {"form": self.name} | ({"main_content": True} if self.main_content else {})


@contextmanager
def open_form(of: FormOf) -> Iterator[Form]:
    """A form, ready to be used from several threads.

    Raises:
        QueryError: if there is none of that name, or the libraries for it are not installed.
    """
    if of.name not in SUFFIXES:
        message = f"{of.name!r} is no form of records; there are {', '.join(SUFFIXES)}"
        raise QueryError(message)
    if of.name == "warc":
        yield Warc(
            {
                "software": f"commoncrawl-catalogue/{package_version()}",
                "format": "WARC File Format 1.0",
                "conformsTo": _CONFORMS_TO,
                "description": of.about or "records of captures in Common Crawl",
            }
            | ({"isPartOf": ", ".join(of.crawls)} if of.crawls else {})
        )
    elif of.name == "payload":
        yield Payloads()
    else:
        make = {"text": text_of, "metadata": metadata_of, "parquet": row_of}[of.name]
        with Documents(main_content=of.main_content) as documents:
            look = documents.look
            yield (
                Rows(lambda record: make(record, look), ROW)
                if of.name == "parquet"
                else Lines(lambda record: make(record, look))
            )
