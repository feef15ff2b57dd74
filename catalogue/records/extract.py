"""Extract text, links and metadata from a document, or the items of a feed; runs in the processes of ``document``.

It is a module of its own so that these processes import nothing else.
"""

import json
import os
import re
import signal
import sys
from collections import Counter
from hashlib import blake2b
from html import escape
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from catalogue.isolated_process import limit_resources
from catalogue.records.media_type import Syntax
from catalogue.records.text_decoding import decode_text, find_charset

LIBRARIES = ("feedparser", "resiliparse.extract.html2text", "resiliparse.parse.html")
"""Imported before memory is limited."""

_HEADER = 4
_MAX_MESSAGE = 256 << 20
_MAX_MEMORY = 1 << 30
"""Bytes beyond those after the start."""
_MAX_DEPTH = 10_000
"""Calls; Markdown takes three for each nested element, and elements that are not closed are nested."""
_LINKS = (
    "a[href],area[href],link[href],img[src],script[src],iframe[src],frame[src],embed[src],source[src],audio[src],"
    "video[src],track[src],input[src],form[action],meta[http-equiv=refresh i]"
)
_REFRESH = re.compile(
    r"\s*[\d.]+(?>\s*[;,]\s*|\s+)(?:url\s*=\s*)?+(?:'([^']+)|\"([^\"]+)|([^'\"].*))",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
"""The content of ``meta http-equiv=refresh``, as browsers read it."""
_EMPTY_ELEMENT = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)([A-Za-z][\w:.-]*+)"
    r"(/|[^<>]*+(?<=[\"'\s]/))>"
)
"""An empty element of XHTML; a parser of HTML would read the text after it as its content."""
_SECTION = re.compile(r"<!--.*?(?:-->|\Z)|<!\[CDATA\[(?:(.*?)\]\]>|.*)", re.DOTALL)
"""A comment or a CDATA section of XHTML; a parser of HTML would read that as a comment, too."""
_INVISIBLE = "script,style,noscript,template,svg,iframe,object,head,title"
_AROUND_CONTENT = "nav,header,footer,aside,form,[role=navigation],[role=banner],[role=contentinfo]"
_BLANK_LINES = re.compile(r"\s*\n\s*\n")
_TARGETS = ("href", "src", "action", "xlink:href")
_DECLARATION = re.compile(r"\s*<\?xml\s[^>]*>")
_UTF_8 = "application/xml; charset=utf-8"
_WORD = re.compile(r"\w+")
MAX_ITEMS = 10_000
"""Items of a feed and links of a page."""
_SHINGLE = 3
_HASH = 8


def serve() -> None:
    """Answer requests of ``document.Documents`` until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    answers = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("wb") as null:  # for what libraries print
        os.dup2(null.fileno(), 1)
    for name in LIBRARIES:
        import_module(name)
    limit_resources(memory=_MAX_MEMORY, open_files=16)
    sys.setrecursionlimit(_MAX_DEPTH)
    send(answers, b"")
    while (request := receive(sys.stdin.buffer)) is not None:
        send(answers, _answer(request))


def send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_HEADER, "little") + message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """Return a message; None if the other end is closed, or sends something else."""
    header = pipe.read(_HEADER)
    length = int.from_bytes(header, "little")
    if len(header) < _HEADER or length > _MAX_MESSAGE:
        return None
    message = pipe.read(length)
    return message if len(message) == length else None


def _answer(request: bytes) -> bytes:
    header, _, data = request.partition(b"\n")
    syntax, content_type, url, main_content, markdown = json.loads(header)
    try:
        charset = find_charset(data, Syntax(syntax), content_type=content_type, url=url)
        document = decode_text(data, charset)
        if syntax == Syntax.XHTML.value:
            document = _SECTION.sub(lambda found: found[0] if found[1] is None else escape(found[1]), document)
            document = _EMPTY_ELEMENT.sub(r"<\1\2></\1>", document)
        found = _extract(document, Syntax(syntax).parsed_as, main_content=main_content, markdown=markdown)
        found |= {"charset": charset.name, "charset_detector": charset.source}
    except Exception as error:  # noqa: BLE001 - two parsers of hostile bytes may raise anything
        found = {"failure": f"{type(error).__name__}: {error}"[:500]}
    return json.dumps(found).encode(errors="replace")


def _extract(document: str, parsed_as: str, *, main_content: bool, markdown: bool) -> dict[str, Any]:
    content, converted = None, None
    if parsed_as == "html":
        from resiliparse.extract.html2text import extract_plain_text  # noqa: PLC0415 - what a page needs
        from resiliparse.parse.html import HTMLTree  # noqa: PLC0415

        tree = HTMLTree.parse(document)
        text = extract_plain_text(tree, main_content=main_content, preserve_formatting=True)
        content = _page(tree)
        converted = _markdown(tree, main_content=main_content) if markdown else None
    elif parsed_as == "text":
        text = document
    else:
        text, content = _feed(document, parsed_as)
    found = {"parsed_as": parsed_as, "text": text, "simhash": simhash(text), "content": content}
    return found | ({"markdown": text if converted is None else converted} if markdown else {})


def _markdown(tree: Any, *, main_content: bool) -> str:  # noqa: ANN401 - of resiliparse or feedparser, which have no types
    from bs4 import BeautifulSoup, ProcessingInstruction  # noqa: PLC0415 - what Markdown needs
    from markdownify import MarkdownConverter  # noqa: PLC0415

    if not tree.body:
        return ""
    left_out = f"{_INVISIBLE},{_AROUND_CONTENT}" if main_content else _INVISIBLE
    for element in tree.body.query_selector_all(left_out)[:]:
        element.decompose()
    soup = BeautifulSoup(str(tree.body), "html.parser")
    for instruction in soup.find_all(string=lambda text: isinstance(text, ProcessingInstruction)):
        instruction.extract()  # such as those of PHP and Word, which would be converted as text
    converted: str = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(soup)
    return _BLANK_LINES.sub("\n\n", converted).strip()


def _page(tree: Any) -> dict[str, Any]:  # noqa: ANN401 - of resiliparse or feedparser, which have no types
    metas = tree.document.query_selector_all("meta")[:MAX_ITEMS]  # without a slice, each element takes linear time
    links = tree.document.query_selector_all(_LINKS)
    base = tree.document.query_selector("base[href]")
    return {
        "type": "html-doc",
        "title": tree.title,
        **({"base": base.getattr("href")} if base else {}),
        "meta_tags": [_attributes(meta) for meta in metas],
        "links": [found for link in links[:MAX_ITEMS] if (found := _link(link))],
        **({"links_omitted": len(links) - MAX_ITEMS} if len(links) > MAX_ITEMS else {}),
    }


def _attributes(element: Any) -> dict[str, str]:  # noqa: ANN401 - of resiliparse or feedparser, which have no types
    return {name: element.getattr(name) or "" for name in element.attrs}


def _link(element: Any) -> dict[str, str] | None:  # noqa: ANN401 - of resiliparse or feedparser, which have no types
    attributes = _attributes(element)
    if element.tag == "meta" and (refresh := _REFRESH.match(attributes.get("content", ""))):
        attributes["href"] = refresh[refresh.lastindex or 0]
    target = next((attributes.pop(name) for name in _TARGETS if name in attributes), None)
    if target is None:  # the parser finds those of other prefixes too
        return None
    text = {"text": words} if (words := " ".join(element.text.split())[:1000]) else {}
    return attributes | {"type": element.tag, "href": target} | text


def _feed(document: str, kind: str) -> tuple[str, dict[str, Any]]:
    import feedparser  # noqa: PLC0415 - what a feed needs

    data = _DECLARATION.sub("", document, count=1).encode(errors="replace")
    parsed = feedparser.parse(
        BytesIO(data), resolve_relative_uris=False, sanitize_html=True, response_headers={"content-type": _UTF_8}
    )
    items = [_without_nothing(_item(entry)) for entry in parsed.entries[:MAX_ITEMS]]
    feed = parsed.feed
    content = {
        "type": f"{kind}-feed",
        "title": feed.get("title"),
        "link": feed.get("link"),
        "description": feed.get("subtitle") or feed.get("description"),
        "updated": feed.get("updated"),
        "categories": [tag.get("term") for tag in feed.get("tags", ()) if tag.get("term")],
        "generator": feed.get("generator"),
        "ttl": feed.get("ttl"),
        "authors": [dict(author) for author in feed.get("authors", ()) if author],
        "items": items,
        "items_omitted": max(len(parsed.entries) - MAX_ITEMS, 0) or None,
    }
    words = [
        content["title"],
        content["description"],
        *(item.get(n) for item in items for n in ("title", "description")),
    ]
    return "\n".join(word for word in words if word), _without_nothing(content)


def _item(entry: Any) -> dict[str, Any]:  # noqa: ANN401 - of resiliparse or feedparser, which have no types
    return {
        "title": entry.get("title"),
        "description": entry.get("summary"),
        "link": entry.get("link"),
        "author": entry.get("author"),
        "published": entry.get("published"),
        "updated": dict.get(entry, "updated"),  # its own get would give what was published
        "guid": entry.get("id"),
        "comments": entry.get("comments"),
        "categories": [tag.get("term") for tag in entry.get("tags", ()) if tag.get("term")],
        "content": [part.get("value") for part in entry.get("content", ()) if part.get("value")],
    }


def _without_nothing(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", [])}


def simhash(text: str) -> int:
    """Return 64 bits that are similar for similar texts (Charikar, 2002).

    BLAKE2b hashes each run of three lower-case words to 64 bits; each bit of the result is that of the majority.
    """
    words = _WORD.findall(text.lower())
    count = max(1, len(words) - _SHINGLE + 1)
    hashes = bytearray()
    for start in range(count):
        shingle = " ".join(words[start : start + _SHINGLE]).encode(errors="replace")
        hashes += blake2b(shingle, digest_size=_HASH).digest()
    result = 0
    for place in range(_HASH):  # counting values of bytes takes a quarter of the time of counting bits
        values = Counter(hashes[place::_HASH])
        for bit in range(7, -1, -1):
            votes = sum(number for value, number in values.items() if value >> bit & 1)
            result = result << 1 | (2 * votes > count)
    return result
