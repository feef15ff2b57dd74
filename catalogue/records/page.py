"""Archived pages."""

import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from catalogue.commoncrawl.capture import Capture
from catalogue.errors import warn
from catalogue.formatting import ReprMixin, clock
from catalogue.records.document import Documents
from catalogue.records.head import joined
from catalogue.records.media_type import Syntax, is_xml
from catalogue.records.metadata import absolute_links, omitted_links
from catalogue.records.record import Record
from catalogue.records.text_decoding import decode_text, find_charset


@dataclass(frozen=True, slots=True, repr=False)
class Page(ReprMixin):
    """An archived page; ``Catalogue.get`` finds it. ``text``, ``markdown`` and ``links`` parse it each time."""

    record: Record
    crawl: str
    subset: str
    """``warc``, ``crawldiagnostics`` or ``robotstxt``."""
    redirects: tuple[Capture, ...] = ()
    """Archived redirects that led to it, in order."""
    requests: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()
    """What may be missing from the search."""
    index_files: tuple[str, ...] = ()
    """Parquet files of the plans of the search."""
    substitutions: tuple[str, ...] = ()
    """Sentences about requested URLs without a capture, for which another URL with the same key was used."""

    def _line(self) -> str:
        time = "" if self.time is None else f" of {clock(self.time)}"
        return f"{self.url}: {self.record.status_line or 'no status'}{time}, {self.crawl}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from self.record._rows()  # noqa: SLF001 - the page is shown by its record
        for redirect in self.redirects:
            yield "redirected from", redirect.url or "-"

    def _notes(self) -> Iterator[str]:
        yield from self.notes

    @property
    def exact(self) -> bool:
        """Whether it is a page of the requested URL, or redirects led from there to it."""
        return not self.substitutions

    @property
    def capture(self) -> Capture:
        return self.record.capture

    @property
    def url(self) -> str:
        return self.record.url

    @property
    def time(self) -> datetime | None:
        """Time of the request, UTC."""
        return self.record.time

    @property
    def status(self) -> int | None:
        return self.record.status

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the HTTP response; values of repeated ones are joined by commas."""
        return joined(self.record.http_headers)

    @property
    def content(self) -> builtins.bytes:
        """The body without its content codings; see ``Record.payload``."""
        return self.record.payload

    @property
    def html(self) -> str:
        """The document as text; invalid bytes become U+FFFD. Raises BadRecord like ``content``."""
        content, record = self.content, self.record
        syntax = Syntax.XML if is_xml(record.mime or "") else Syntax.TEXT
        charset = record.charset or find_charset(content, syntax, content_type=record.content_type, url=self.url)
        return decode_text(content, charset)

    @property
    def charset(self) -> str | None:
        """The encoding standard's name of the charset; None if it is no text."""
        return self.record.charset.name if self.record.charset else None

    @property
    def charset_source(self) -> str | None:
        """What determined the charset: see ``catalogue.records.text_decoding``."""
        return self.record.charset.source if self.record.charset else None

    @property
    def text(self) -> str | None:
        """The text of the document; None if it has none.

        Raises:
            BadDocument: if it cannot be parsed.
        """
        return self.to_text()

    @property
    def markdown(self) -> str | None:
        """The document as Markdown; see ``text``."""
        return self.to_markdown()

    @property
    def links(self) -> list[dict[str, str | None]]:
        """Links with ``type`` (the element's name), absolute ``url`` and ``text``. Raises as ``text`` does.

        Of more than 10,000 links, the first ones are returned, with the warning ``IncompleteAnswer``.
        """
        links, omitted = self.find_links()
        if omitted:
            warn(omitted)
        return links

    def find_links(self) -> tuple[list[dict[str, str | None]], str | None]:
        """Return ``links``, and a sentence about those that are left out."""
        with Documents() as documents:
            found = documents.extract(self.record)
        content = found["content"] or {}
        if content.get("type") != "html-doc":
            return [], None
        return list(absolute_links(content, self.url, found["charset"])), omitted_links(content)

    def to_text(self, *, main_content: bool = False) -> str | None:
        """Return the text; ``main_content`` leaves out navigation, footers and the like. Raises as ``text`` does."""
        with Documents(main_content=main_content) as documents:
            found: str | None = documents.extract(self.record)["text"]
        return found

    def to_markdown(self, *, main_content: bool = False) -> str | None:
        """Return Markdown; see ``to_text``."""
        with Documents(main_content=main_content, markdown=True) as documents:
            found: str | None = documents.extract(self.record)["markdown"]
        return found
