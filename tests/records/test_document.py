"""Extraction from documents: pages, feeds, texts, and hostile ones."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import zlib
from dataclasses import replace

import pytest

from catalogue.errors import BadDocument, IncompleteAnswer
from catalogue.formatting import json_line
from catalogue.records.document import Documents
from catalogue.records.extract import simhash
from catalogue.records.metadata import absolute_links, metadata_of, row_of
from catalogue.records.page import Page
from tests.support.archives import record_of
from tests.support.processes import children

PAGE = """<!doctype html><html lang=is><head><title>  Góðan
daginn </title><meta name=description content="Um &amp; allt"><meta property="og:title" content=x>
<link rel=canonical href=https://example.is/></head><body><nav><a href=/menu>Valmynd</a></nav>
<main><h1>Halló</h1><p>Þetta er <a href="/síða" rel=nofollow title=t>síða</a> um allt.</p>
<img src=mynd.png alt=mynd><script>var x = "ekki texti";</script></main></body></html>"""

RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title><link>https://example.com/</link>
<description>All of it</description><generator>hand</generator><ttl>60</ttl><category>a</category>
<item><title>One</title><link>https://example.com/1</link><guid>1</guid><author>a@example.com (A)</author>
<pubDate>Mon, 15 Aug 2022 01:02:03 GMT</pubDate><description>First &lt;b&gt;item&lt;/b&gt;</description>
<comments>https://example.com/1#c</comments></item><item><title>Two</title></item></channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Atoms</title><updated>2022-08-15T01:02:03Z</updated>
<author><name>Nobody</name></author><link href="https://example.com/"/><entry><title>E</title><id>urn:1</id>
<updated>2022-08-15T01:02:03Z</updated><content type="html">&lt;p&gt;text&lt;/p&gt;</content></entry></feed>"""


def test_extracts_a_page(documents: Documents) -> None:
    found = documents.extract(record_of(PAGE.encode(), "text/html; charset=utf-8"))
    assert (found["charset"], found["charset_detector"], found["parsed_as"]) == ("utf-8", "http header", "html")
    content = found["content"]
    assert (content["type"], content["title"]) == ("html-doc", "Góðan daginn")
    assert content["meta_tags"] == [
        {"name": "description", "content": "Um & allt"},
        {"property": "og:title", "content": "x"},
    ]
    assert content["links"] == [
        {"type": "link", "href": "https://example.is/", "rel": "canonical"},
        {"type": "a", "href": "/menu", "text": "Valmynd"},
        {"type": "a", "href": "/síða", "rel": "nofollow", "title": "t", "text": "síða"},
        {"type": "img", "href": "mynd.png", "alt": "mynd"},
    ]
    assert "Þetta er síða um allt." in found["text"]
    assert "Valmynd" in found["text"]
    assert "ekki texti" not in found["text"]
    assert found["simhash"] == simhash(found["text"])


def test_extracts_links_of_images(documents: Documents) -> None:
    page = "<a href=/1>1</a><svg><a xlink:href=/2>2</a><a xml:href=/3>3</a></svg><video src=/4></video><a href=/5>5</a>"
    links = documents.extract(record_of(page.encode()))["content"]["links"]
    assert [link["href"] for link in links] == ["/1", "/2", "/4", "/5"]
    assert links[1] == {"type": "a", "href": "/2", "text": "2"}


def test_empty_elements_of_xhtml_have_no_content(documents: Documents) -> None:
    page = "<html xmlns='x'><head><script src='/1'/><title>T</title></head><body><object/><br/><a href='/2'/>x</html>"
    found = documents.extract(record_of(page.encode(), "application/xhtml+xml"))
    assert (found["text"], found["content"]["title"]) == ("x", "T")
    assert [link.get("text") for link in found["content"]["links"]] == [None, None]
    assert documents.extract(record_of(page.encode(), "text/html"))["text"] == ""  # as in browsers


def test_sections_of_xhtml_are_text(documents: Documents) -> None:
    page = "<html xmlns='x'><body>a<!-- <![CDATA[b]]> --><p><![CDATA[1 < 2 > 1 &amp; <p/>]]></p>c<![CDATA[d"
    found = documents.extract(record_of(page.encode(), "application/xhtml+xml"))
    assert found["text"] == "a\n\n1 < 2 > 1 &amp; <p/>\n\nc"
    assert documents.extract(record_of(page.encode(), "text/html"))["text"] != found["text"]


@pytest.mark.parametrize(
    ("content", "target"),
    [
        *(("0; URL='/x y'", "/x y"), ("5,url=/a;b", "/a;b"), ("3 /to?url=1", "/to?url=1"), ("5", None), ("; /x", None)),
        *(("0;URL=", None), ("0; url=''", None), ("1;;/x", ";/x"), ("1;url=/a\nb", "/a\nb"), ("1;\xa0/x", "\xa0/x")),
    ],
)
def test_refreshes_are_links(documents: Documents, content: str, target: str | None) -> None:
    page = f'<meta http-equiv=Refresh content="{content}"><a href=/1>1</a>'
    links = documents.extract(record_of(page.encode()))["content"]["links"]
    assert [link["href"] for link in links] == [*filter(None, [target]), "/1"]


@pytest.mark.parametrize(
    ("base", "first", "empty"),
    [
        ("", "https://example.com/1#a", "https://example.com/dir/page"),
        ("<base target=_top><base href='//cdn.example.org/x/y/'>", "https://cdn.example.org/x/1#a", None),
        ("<base href='http://[x'>", "https://example.com/1#a", "https://example.com/dir/page"),
        ("<base href=' JavaScript:go()'>", "https://example.com/1#a", "https://example.com/dir/page"),
        ("<base href='data:,x'>", "https://example.com/1#a", "https://example.com/dir/page"),
    ],
)
def test_resolves_links_like_a_browser(base: str, first: str, empty: str | None, documents: Documents) -> None:
    page = f"""{base}<a href=' ../1#a '>one</a><img src=//p.test/p.png><a href=HTTP://other.test>o</a><a href=''></a>
    <a href='http://[x'>no URL</a><a href=mailto:a@example.com>mail</a><a href='javascript:go()'>go</a>"""
    record = replace(record_of(page.encode()), headers=(("WARC-Target-URI", "https://example.com/dir/page"),))
    row = row_of(record, documents.extract)
    assert [tuple(link.values()) for link in row["links"]] == [
        ("a", first, "one"),
        ("img", "https://p.test/p.png", None),
        ("a", "HTTP://other.test", "o"),
        ("a", empty or "https://cdn.example.org/x/y/", None),
    ]
    text = row_of(record_of(b"no page", "text/plain"), documents.extract)
    assert (text["title"], text["links"]) == (None, None)


REFERENCES = {
    "#": "https://example.com/dir/page?x=1#",
    "/é?é=ü": "https://example.com/%C3%A9?%C3%A9=%C3%BC",
    "\xa0a\u2028": "https://example.com/dir/%C2%A0a%E2%80%A8",
    "/a\x01b": "https://example.com/a%01b",
    "/a/%2e%2E/.%2e/b": "https://example.com/b",
    "https:a": "https://example.com/dir/a",
    "https:/a": "https://example.com/a",
    "https:mailto:a": "https://example.com/dir/mailto:a",
    "http:a.example/": "http://a.example/",
    "https:///a.example/b": "https://a.example/b",
    "h\nttp:\\\\a.example\\b": "http://a.example/b",
    "///a.example/": "https://a.example/",
    "http://[::1]:80/": "http://[::1]:80/",
    "http://user:pw@a.example": "http://user:pw@a.example",
    **dict.fromkeys(["//", "https://", "http://?", "http://a b.example/", "http://a.example:x/", "ftp://a.example/"]),
}
"""URLs of references, as a browser resolves them; test_references.py has more, of redirects."""


@pytest.mark.parametrize("reference", REFERENCES)
def test_resolves_references_like_a_browser(reference: str) -> None:
    content = {"links": [{"type": "a", "href": reference}]}
    expected = REFERENCES[reference]
    for page in ("https://example.com/dir/page?x=1", "https:////example.com/dir/page?x=1"):
        assert [link["url"] for link in absolute_links(content, page)] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("charset", "query"),
    [
        ("windows-1251", "%E6%26%2326085%3B%26%2365374%3B"),
        ("shift_jis", "%84w%93%FA%81`"),
        ("euc-jp", "%A7%D8%C6%FC%A1%C1"),
        ("iso-2022-jp", "%1B$B%27XF|!A%1B(B"),
        ("gbk", "%A7%D8%C8%D5%A1%AB"),
        ("gb18030", "%A7%D8%C8%D5%A1%AB"),
        ("utf-16le", "%D0%B6%E6%97%A5%EF%BD%9E"),
    ],
)
def test_escapes_queries_in_the_charset_of_the_page(charset: str, query: str) -> None:
    record = record_of(
        "<a href=/ж?q=&#1078;&#26085;&#65374;#ж>".encode(charset, "replace"), f"text/html; charset={charset}"
    )
    (link,) = Page(record, "CC-MAIN-2022-33", "warc").links
    assert link["url"] == f"https://example.com/%D0%B6?q={query}#%D0%B6"


def test_reports_links_that_are_left_out(documents: Documents) -> None:
    record = record_of(b"<a href=/x>" * 10_001)
    assert documents.extract(record)["content"]["links_omitted"] == 1
    row = row_of(record, documents.extract)
    assert (len(row["links"]), row["failure"]) == (10_000, "links after the first 10,000 are left out: 1")
    with pytest.warns(IncompleteAnswer, match="links after the first 10,000 are left out: 1"):
        assert len(Page(record, "CC-MAIN-2022-33", "warc").links) == 10_000
    feed = documents.extract(record_of(b"<rss><channel>" + b"<item><title>x</title></item>" * 10_001, "text/xml"))
    assert feed["content"]["items_omitted"] == 1


def test_converts_odd_pages_to_markdown() -> None:
    with Documents(markdown=True) as documents:
        assert documents.extract(record_of(b"<div>x" * 1000))["markdown"].count("x") == 1000
        instructions = b"<p>a<?php echo 1 ?>b<?xml:namespace prefix = o /><o:p>c</o:p><!x>"
        assert documents.extract(record_of(instructions))["markdown"] == "abc"


def test_rejects_documents_that_are_too_large(documents: Documents) -> None:
    with pytest.raises(BadDocument, match="it has 16,777,217 bytes; at most 16,777,216 are parsed"):
        documents.extract(record_of(b" " * ((16 << 20) + 1), "text/plain"))


@pytest.mark.parametrize("of_page", [False, True])
def test_bounds_memory_of_long_base_addresses(documents: Documents, *, of_page: bool) -> None:
    """Ten thousand links of a page of one megabyte would be ten gigabytes."""
    long = f"https://example.com/{'x' * 20_000}/"
    page = f"{'' if of_page else f'<base href={long}>'}<a href=1>one</a><a href=https://other.test/>two</a>"
    record = record_of(page.encode())
    record = replace(record, headers=(("WARC-Target-URI", long if of_page else "https://example.com/"),))
    assert [link["url"] for link in row_of(record, documents.extract)["links"]] == ["https://other.test/"]


def test_reports_only_declared_values(documents: Documents) -> None:
    with Documents(main_content=True) as main:
        page = record_of(PAGE.encode(), "text/html; charset=utf-8")
        assert "Valmynd" not in main.extract(page)["text"]
        assert "Þetta er síða um allt." in main.extract(page)["text"]
        assert "Valmynd" in documents.extract(page)["text"]


def test_extracts_an_rss_feed(documents: Documents) -> None:
    found = documents.extract(record_of(RSS.encode(), "application/rss+xml"))
    assert found["parsed_as"] == "rss"
    content = found["content"]
    items = content.pop("items")
    assert content == {
        "type": "rss-feed",
        "title": "News",
        "link": "https://example.com/",
        "description": "All of it",
        "categories": ["a"],
        "generator": "hand",
        "ttl": "60",
    }
    assert items == [
        {
            "title": "One",
            "description": "First <b>item</b>",
            "link": "https://example.com/1",
            "author": "a@example.com (A)",
            "published": "Mon, 15 Aug 2022 01:02:03 GMT",
            "guid": "1",
            "comments": "https://example.com/1#c",
        },
        {"title": "Two"},
    ]
    assert "One" in found["text"]


def test_extracts_an_atom_feed(documents: Documents) -> None:
    found = documents.extract(record_of(ATOM.encode(), "text/xml"))
    assert found["parsed_as"] == "atom"
    content = found["content"]
    assert (content["type"], content["title"], content["authors"]) == ("atom-feed", "Atoms", [{"name": "Nobody"}])
    (item,) = content["items"]
    assert (item["title"], item["guid"], item["content"]) == ("E", "urn:1", ["<p>text</p>"])


@pytest.mark.in_soak
def test_gives_up_a_slow_page() -> None:
    with Documents(main_content=True, seconds=0.5) as hasty:
        with pytest.raises(BadDocument, match=r"its parser took over 0\.5 s"):
            hasty.extract(record_of(b"<div>" * 200_000))
        assert hasty.extract(record_of(b"<p>and goes on"))["text"] == "and goes on"


def test_does_not_retry_a_slow_page() -> None:
    with Documents(seconds=1.0) as hasty:
        before = children()
        assert hasty.extract(record_of(b"<p>one"))["text"] == "one"
        (child,) = children() - before
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(BadDocument, match=r"its parser took over 1 s"):
            hasty.extract(record_of(b"<p>one"))
        assert hasty.extract(record_of(b"<p>one"))["text"] == "one"


def test_replaces_a_killed_parser() -> None:
    with Documents() as documents:
        before = children()
        assert documents.extract(record_of(b"<p>one"))["text"] == "one"
        (child,) = children() - before
        os.kill(child, signal.SIGKILL)
        assert documents.extract(record_of(b"<p>two"))["text"] == "two"


def test_parsers_find_the_libraries_of_this_process() -> None:
    """They are in no folder that an isolated process knows by itself."""
    code = "from catalogue.records.document import Documents; from tests.support.archives import record_of; "
    code += "print(Documents().extract(record_of(b'<p>one'))['text'])"
    paths = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])  # noqa: PTH109 - a text
    interpreter: str = sys._base_executable  # type: ignore[attr-defined] # noqa: SLF001 - that of the environment has them
    ran = subprocess.run(
        [interpreter, "-c", code], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, b"one\n"), ran.stderr


ODD = {
    "nothing": b"",
    "zeros": b"\0" * 1000,
    "brackets": b"<" * 100_000,
    "links": b"<a href=" * 5000,
    "marks": b"\xff\xfe" * 500,
    "feeds": b"<rss><channel>" * 1000,
    "bytes": bytes(range(256)) * 50,
}


@pytest.mark.in_part(5)
@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
@pytest.mark.parametrize("kind", ["text/html", "application/rss+xml", "text/plain", ""])
def test_parses_or_rejects_unusual_documents(documents: Documents, body: bytes, kind: str) -> None:
    try:
        found = documents.extract(record_of(body, kind))
    except BadDocument:
        return
    json.dumps(found)


def test_rejects_bombs(documents: Documents) -> None:
    squeezing, mega = zlib.compressobj(wbits=31), bytes(1 << 20)
    first, again = (squeezing.compress(mega) + squeezing.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    body = first + 255 * again + squeezing.compress(b"x") + squeezing.flush()  # flushed blocks can be repeated
    found = metadata_of(record_of(body, lines="Content-Encoding: gzip\r\n"), documents.extract)
    assert (found["disposition"], found["failure_reason"]) == ("FAILURE", "PARSE")
    assert "expands to more than" in found["failure_detail"]


def test_extracts_metadata(documents: Documents) -> None:
    page = record_of(PAGE.encode(), "text/html; charset=utf-8", lines="X-Other: y\r\nx-other: z\r\n")
    found = metadata_of(page, documents.extract)
    content = found.pop("content")
    assert content["title"] == "Góðan daginn"
    assert found == {
        "url": "https://example.com/",
        "attempt_time": 1660525323000,
        "disposition": "SUCCESS",
        "http_result": 200,
        "http_headers": {"content-type": "text/html; charset=utf-8", "x-other": "y, z"},
        "content_len": len(PAGE.encode()),
        "mime_type": "text/html",
        "mime_detected": "text/html",
        "download_size": len(page.member),
        "md5": hashlib.md5(PAGE.encode(), usedforsecurity=False).hexdigest(),
        "text_simhash": documents.extract(page)["simhash"],
        "charset_detected": "utf-8",
        "charset_detector": "http header",
        "parsed_as": "html",
    }


def test_extracted_text_resembles_the_reference() -> None:
    words = [f"word{number}" for number in range(300)]
    one = " ".join(words)
    near = " ".join([*words[:150], "another", *words[151:]])
    far = " ".join(f"other{number}" for number in range(300))

    def difference(a: str, b: str) -> int:
        return (simhash(a) ^ simhash(b)).bit_count()

    assert difference(one, one.upper()) == 0
    assert difference(one, near) <= 8
    assert difference(one, far) >= 16
    assert simhash("") == simhash("  ") < 1 << 64
    # Of two runs of three words: the bits of both, as ties are 0.
    assert simhash("One two, three four") == simhash("one two three") & simhash("two three four")


def test_writes_lines_of_any_record(documents: Documents) -> None:
    """Also of one with a lone surrogate, which UTF-8 cannot encode."""
    page = "<title>&#xD800;</title><p>\ud800 and more</p>".encode(errors="surrogatepass")
    (line,) = json_line(documents.extract(record_of(page))).splitlines()
    assert "and more" in json.loads(line.decode())["text"]
