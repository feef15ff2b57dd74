"""What a page is: as detected, as declared, or by its first bytes."""

import gzip

import pytest

from catalogue.records.document import Documents
from catalogue.records.metadata import text_of
from catalogue.records.page import Page
from catalogue.records.record import read_record
from tests.support.archives import capture, record_of, warc

PAGE = b"<html><head><title>T</title></head><body><p>hello visible words</p></body></html>"
PDF, PNG = b"%PDF-1.4\n%\xe2\xe3\n1 0 obj", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
GZIP = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"

TYPES = {
    "declared": ("text/html; charset=utf-8", PAGE, "text/html", "html"),
    "upper case": ("Text/HTML", PAGE, "text/html", "html"),
    "in quotes": ('"text/html"', PAGE, "text/html", "html"),
    "in single quotes": ("'text/html; charset=utf-8'", PAGE, "text/html", "html"),
    "no semicolon": ("text/html charset=utf-8", b"hello", "text/html", "html"),
    "last of a list": ('application/json; a="b, text/css", text/html', PAGE, "text/html", "html"),
    "last line": ("image/svg+xml\r\nContent-Type: text/html; charset=utf-8", PAGE, "text/html", "html"),
    "last valid one of a list": (", text/html, html", PAGE, "text/html", "html"),
    "first of a copy of Accept": ("text/html, application/xml;q=0.9, */*;q=0.8", PAGE, "text/html", "html"),
    "any bytes": ("application/octet-stream", PAGE, "text/html", "html"),
    "unknown": ("application/x-unknown; a=b", b"\n <!DOCTYPE html><p>x", "text/html", "html"),
    "no type": ("", PAGE, "text/html", "html"),
    "a word": ("html", PAGE, "text/html", "html"),
    "HTML after a warning": ("", b"Warning: x\n<html><body>", "text/html", "html"),
    "UTF-16": ("binary/octet-stream", PAGE.decode().encode("utf-16"), "text/html", "html"),
    "UTF-16 without mark": ("application/octet-stream", "\n <html><p>Ж".encode("utf-16-be"), "text/html", "html"),
    "undeclared text": ("", b"words and words", "text/plain", "text"),
    "undeclared bytes": ("application/octet-stream", b"\0\1\2", "application/octet-stream", None),
    "nothing": ("", b"", None, None),
    "undeclared XHTML": ("", b"<?xml version='1.0'?><!DOCTYPE html><html>", "application/xhtml+xml", "html"),
    "undeclared feed": ("", b"<?xml version='1.0'?>\n<!-- x --><rss><channel/></rss>", "application/rss+xml", "rss"),
    "undeclared XML": ("", b"<?xml version='1.0'?><a/>", "application/xml", None),
    "a feed as HTML": ("text/html", b"<?xml version='1.0'?><feed xmlns='x'></feed>", "text/html", "atom"),
    "a feed as text": ("text/plain", b"<rdf:RDF></rdf:RDF>", "text/plain", "rss"),
    "a feed with a prefix": ("text/xml", b"<a:feed xmlns:a='http://www.w3.org/2005/Atom'/>", "text/xml", "atom"),
    "XHTML with a prefix": ("", b"<?xml version='1.0'?><h:html xmlns:h='x'>", "application/xhtml+xml", "html"),
    "HTML that names rss": ("text/html", b"<html><rss></html>", "text/html", "html"),
    "HTML as XML": ("text/xml", b"<?xml version='1.0'?><html><p>x</p></html>", "text/xml", "html"),
    "XML": ("text/xml", b"<a>x</a>", "text/xml", "text"),
    "JSON": ("application/json", b"{}", "application/json", None),
    "PDF as HTML": ("text/html", PDF, "application/pdf", None),
    "PNG as HTML": ("text/html; charset=utf-8", PNG, "image/png", None),
    "HEIC": ("image/heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "image/heic", None),
    "MP4 as HTML": ("text/html", b"\0\0\0\x18ftypisom\0\0\0\0avc1mp41", "video/mp4", None),
    "PNG as JPEG": ("image/jpeg", PNG, "image/png", None),
    "gzip as XML": ("application/xml", GZIP, "application/gzip", None),
    "bytes as text": ("text/plain", b"a\0\1\2", "application/octet-stream", None),
    "UTF-16 as text": ("text/plain; charset=utf-16", "plain".encode("utf-16-le"), "text/plain", "text"),
    "UTF-16 as text by another label": ("text/plain; charset=UCS-2", "plain".encode("utf-16-le"), "text/plain", "text"),
    "text that begins with a signature": ("text/plain", b"BZh is not a file", "text/plain", "text"),
    "a document in a zip file": ("application/vnd.oasis.opendocument.text", b"PK\x03\x04\0", None, None),
}


@pytest.mark.parametrize("name", TYPES)
def test_determines_the_type(documents: Documents, name: str) -> None:
    declared, body, mime, parsed_as = TYPES[name]
    record = record_of(body, declared)
    assert record.mime == (mime or declared or None)
    assert documents.extract(record)["parsed_as"] == parsed_as


@pytest.mark.parametrize("declared", ["application/pdf", "text/plain", "image/png", "", "application/octet-stream"])
def test_detected_types_have_priority(documents: Documents, declared: str) -> None:
    by_record = record_of(PAGE, declared, WARC_Identified_Payload_Type="text/html", mime="text/plain")
    by_index = record_of(PAGE, declared, mime="text/html")
    unknown = record_of(PAGE, "text/html", WARC_Identified_Payload_Type="application/octet-stream", mime="text/html")
    for record in (by_record, by_index, unknown):
        assert record.mime == "text/html"
        assert documents.extract(record)["text"] == "hello visible words"
    for body, mime in ((PDF, "application/pdf"), (PNG, "image/png")):
        other = record_of(body, "text/html", mime=mime)
        assert (other.mime, other.charset, text_of(other, documents.extract)["text"]) == (mime, None, None)
        page = Page(other, "CC-MAIN-2022-33", "warc")
        assert (page.charset, page.charset_source, page.text) == (None, None, None)


def test_records_without_http_have_the_type_of_their_block() -> None:
    block = {"WARC_Type": "resource", "Content_Type": "text/html; charset=koi8-r"}
    member = gzip.compress(warc("<p>Привет".encode("koi8-r"), head="", **block), mtime=0)
    page = Page(read_record(capture(member, digest=None, status=None), member), "CC-MAIN-2022-33", "warc")
    assert (page.record.mime, page.charset_source, page.html) == ("text/html", "http header", "<p>Привет")


def test_long_prologs_take_linear_time() -> None:
    for body in (100_000 * part for part in (b"<!--", b"<?x ", b"<!doctype [", b"<!-- -->", b" " * 10)):
        assert record_of(b"<?xml " + body, "").mime == "application/xml"
        assert record_of(body, "text/xml").mime == "text/xml"
