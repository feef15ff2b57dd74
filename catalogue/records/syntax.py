"""Determine how a document is parsed, by its media type and its root element."""

from enum import Enum

from catalogue.records.media_type import HTML, is_html, is_xml, root_element

_FEEDS = {"rss": "rss", "rdf:rdf": "rss", "feed": "atom"}


class Syntax(Enum):
    """Syntax of a document with text."""

    HTML = "html"
    XHTML = "xhtml"
    RSS = "rss"
    ATOM = "atom"
    XML = "xml"
    """Its text is the document."""
    TEXT = "text"


PARSED_AS = {
    Syntax.HTML: "html",
    Syntax.XHTML: "html",
    Syntax.RSS: "rss",
    Syntax.ATOM: "atom",
    Syntax.XML: "text",
    Syntax.TEXT: "text",
}


def syntax_of(mime: str | None, data: bytes, *, declared: str | None = None) -> Syntax | None:
    """Return the syntax of a document; None if it has no text, such as an image.

    A feed is recognized by its root element, since servers and detectors give it many types. XHTML declared as HTML is
    HTML, as in browsers.
    """
    if mime is None or not (mime.startswith("text/") or is_html(mime) or is_xml(mime)):
        return None
    root = root_element(data) or ""
    if root in _FEEDS:
        return Syntax(_FEEDS[root])
    if is_html(mime) or (is_xml(mime) and root == "html"):
        return Syntax.HTML if HTML in {mime, declared} else Syntax.XHTML
    if not mime.startswith("text/"):
        return None
    return Syntax.XML if is_xml(mime) else Syntax.TEXT
