"""The charset of a document: byte order mark, header, declaration, detection."""

import pytest

from catalogue.records.document import Documents
from catalogue.records.page import Page
from tests.support.archives import record_of

RUSSIAN, GERMAN = "<p>Привет, мир</p>", "<p>Größe</p>"
HTML, XML = "text/html", "application/xml"
SPACE = b" " * 1024
KOI8, CP1251 = b"<meta charset=koi8-r>", b"<meta charset=cp1251>"
MARK, HEADER, META, XML_DECLARATION, DETECTION = (
    *("byte order mark", "http header", "html meta", "xml declaration", "detection"),
)

BY_HEADER = {
    "header before meta": (";charset=cp1251", "cp1251", KOI8),
    "quoted label": ('; charset="windows-1251"', "cp1251", b""),
    "label in single quotes": ("; a=b; CHARSET = 'KOI8-R' ; x=y", "koi8-r", b""),
    "list of types": (f", {HTML}; charset=cp1251", "cp1251", b""),
    "two parameters": ("; charset=koi8-r; charset=cp1251", "koi8-r", b""),
    "empty parameter": ("; charset=; charset=koi8-r", "koi8-r", b""),
    "parameter in a quoted value": (*('; a="; charset=cp1251, x/y; charset=cp1252"; charset=koi8-r', "koi8-r", b""),),
    "charsets of two headers": (f"; charset=cp1251, {HTML.upper()}; charset=koi8-r", "koi8-r", b""),
    "charset of the first header": (f"; charset=koi8-r, {HTML}", "koi8-r", b""),
    "any type": ("; charset=koi8-r, */*", "koi8-r", b""),
    "escaped character": ('; charset="koi8\\-r"', "koi8-r", KOI8.replace(b"koi8-r", b"cp1251")),
    "escaped quotes": ('; charset=\\"koi8-r\\"', "koi8-r", b""),
    "no semicolon": (" charset=koi8-r", "koi8-r", b""),
}
BY_META = {
    "unknown label in the header": ("; charset=none", "koi8-r", KOI8),
    "unknown label before a known one in the header": ("; charset=none; charset=cp1251", "koi8-r", KOI8),
    "charset of another type": ("; charset=cp1251, application/xhtml+xml", "koi8-r", KOI8),
    "no semicolon before meta": (" charset=cp1251", "koi8-r", KOI8),
    "open quote in content": (
        *("", "cp1251", b"""<meta http-equiv=content-type content='charset="x; charset=koi8-r'>""" + CP1251),
    ),
    "empty label in content": (
        *("", "cp1251", b"<meta http-equiv=content-type content='charset=; charset=koi8-r'>" + CP1251),
    ),
    "label in single quotes before meta": ("; charset='cp1251'", "koi8-r", KOI8),
    "another parameter": ("; xcharset=utf-8", "koi8-r", KOI8),
    "http-equiv": ("", "koi8-r", b'<meta content="text/html; charset = koi8-r" HTTP-EQUIV=content-type>'),
    "content without http-equiv": ("", "cp1251", b'<meta content="text/html; charset=koi8-r">' + CP1251),
    "comment": ("", "cp1251", b"<!-- <meta charset=koi8-r> -->" + CP1251),
    "shortest comment": ("", "cp1251", b"<!-->" + CP1251),
    "attribute of another element": (
        *("", "cp1251", b"<p title='<meta charset=koi8-r>' class=\"a>b\"><meta charset = 'cp1251' />"),
    ),
    "unknown label in meta": ("", "cp1251", b"<meta charset=none>" + CP1251),
    "declared UTF-16 is UTF-8": ("", "utf-8", b"<meta charset=utf-16>"),
    "meta after 1,024 bytes": ("", "koi8-r", SPACE + KOI8),
    "label in single quotes before a late meta": ("; charset='cp1251'", "koi8-r", SPACE + KOI8),
    "comment that an exclamation mark ends": ("", "koi8-r", b"<!-- a --!>" + KOI8),
}
DECLARED = {
    name: (start + RUSSIAN.encode(codec), HTML + parameters, codec.replace("cp", "windows-"), source)
    for source, rows in ((HEADER, BY_HEADER), (META, BY_META))
    for name, (parameters, codec, start) in rows.items()
} | {
    "UTF-8 mark before the header": (
        *(b"\xef\xbb\xbf" + RUSSIAN.encode(), f"{HTML}; charset=windows-1251", "utf-8", MARK),
    ),
    "UTF-16 mark before the header": (RUSSIAN.encode("utf-16"), f"{HTML}; charset=utf-8", "utf-16le", MARK),
    "big-endian mark": (b"\xfe\xff" + RUSSIAN.encode("utf-16-be"), HTML, "utf-16be", MARK),
    "mark before meta": (b"\xef\xbb\xbf" + KOI8 + RUSSIAN.encode(), HTML, "utf-8", MARK),
    "no type": (RUSSIAN.encode("koi8-r"), ";, charset=koi8-r", "koi8-r", HEADER),
    "x-user-defined is windows-1252": (
        *(b"<meta charset=x-user-defined>" + GERMAN.encode("cp1252"), HTML, "windows-1252", META),
    ),
    "latin1 is windows-1252": ("<meta charset=latin1>€".encode("cp1252"), HTML, "windows-1252", META),
    "meta at the end of 1,024 bytes": (
        *(SPACE[:-20] + b"<meta charset=gbk>  " + "中文页面".encode("gbk"), HTML, "gbk", META),
    ),
    "meta after 1,024 bytes of UTF-8": (SPACE + KOI8 + RUSSIAN.encode(), HTML, "utf-8", DETECTION),
    "XML declaration of a page": (
        *(b"<?xml version='1.0' encoding='cp1251'?><html>" + RUSSIAN.encode("cp1251"), HTML),
        *("windows-1251", XML_DECLARATION),
    ),
    "XML declaration of a page after blanks": (
        *(b"\n<?xml version='1.0' encoding='cp1251'?><html>" + RUSSIAN.encode(), HTML, "utf-8", DETECTION),
    ),
    "XHTML": (
        b'<?xml version="1.0" encoding="koi8-r"?><html><meta charset="cp1251"/>' + RUSSIAN.encode("koi8-r"),
        *("application/xhtml+xml", "koi8-r", XML_DECLARATION),
    ),
    "meta in XHTML": (b"<html xmlns='x'>" + KOI8 + RUSSIAN.encode("koi8-r"), "application/xhtml+xml", "koi8-r", META),
    "meta in XHTML of UTF-8": (
        *(b"<html xmlns='x'>" + KOI8 + RUSSIAN.encode(), "application/xhtml+xml", "utf-8", DETECTION),
    ),
    "label of UTF-8 that browsers do not read": (RUSSIAN.encode(), f"{HTML} charset=utf-16", "utf-8", DETECTION),
    "XML with an html element": (
        b'<?xml version="1.0" encoding="koi8-r"?><html>' + RUSSIAN.encode("koi8-r"),
        *(XML, "koi8-r", XML_DECLARATION),
    ),
    "style sheet": (b'@charset "cp1252";/* Gr\xf6\xdfe */', "text/css", "windows-1252", "css charset"),
    "style sheet that declares UTF-16": (b'@charset "utf-16be"; /* plain */', "text/css", "utf-8", "css charset"),
    "no rule of a style sheet": (b"@charset 'koi8-r'; /* plain */", "text/css", "utf-8", DETECTION),
    "no meta in text": (KOI8 + RUSSIAN.encode(), "text/plain", "utf-8", DETECTION),
    "UTF-16 without mark": (RUSSIAN.encode("utf-16-le"), HTML, "utf-16le", DETECTION),
    "big-endian UTF-16 without mark": (RUSSIAN.encode("utf-16-be"), HTML, "utf-16be", DETECTION),
    "UTF-16 text without mark": (
        *("plain words of a text".encode("utf-16-be"), "text/plain; charset=utf-16be", "utf-16be", HEADER),
    ),
    "label in single quotes of UTF-16": (
        *("<p>plain été".encode("cp1252"), f"{HTML}; charset='utf-16'", "windows-1252", DETECTION),
    ),
    "label in single quotes of a charset that is not decoded": (
        *("<p>plain été".encode("cp1252"), f"{HTML}; charset='iso-2022-kr'", "windows-1252", DETECTION),
    ),
    "UTF-7 is not decoded": (b"<p>+BBI-</p>", f"{HTML}; charset=utf-7", "utf-8", DETECTION),
    "ASCII": (b"plain", "text/plain; charset=no-such", "utf-8", DETECTION),
    "iso-2022-jp": ("<p>日本語のページです</p>".encode("iso-2022-jp"), HTML, "iso-2022-jp", DETECTION),
    "bad bytes in UTF-8": ("<p>été, déjà, café</p>".encode() + b"\xe9 \xff", HTML, "utf-8", DETECTION),
    "UTF-8 that is cut": ("<p>日本語".encode()[:-1], HTML, "utf-8", DETECTION),
    "Western": ("<p>Le café est fermé, l'été dernier.".encode("latin-1"), HTML, "windows-1252", DETECTION),
    "Russian": (RUSSIAN.encode("cp1251"), HTML, "windows-1251", DETECTION),
    "Thai": ("<p>สวัสดีครับ ยินดีต้อนรับ".encode("cp874"), HTML, "windows-874", DETECTION),
    "Japanese": ("<p>日本語のページです".encode("cp932"), HTML, "shift_jis", DETECTION),
    "Korean": ("<p>안녕하세요 여러분".encode("cp949"), HTML, "euc-kr", DETECTION),
    "Chinese": ("<p>这是一个中文页面".encode("gbk"), HTML, "gb18030", DETECTION),
}


def page_of(body: bytes, kind: str = HTML, **more: str) -> Page:
    return Page(record_of(body, kind, **more), "CC-MAIN-2022-33", "warc")


@pytest.mark.parametrize("name", DECLARED)
def test_chooses_the_charset(name: str) -> None:
    data, kind, charset, source = DECLARED[name]
    page = page_of(data, kind)
    assert (page.charset, page.charset_source) == (charset, source)
    assert not page.html.startswith("\ufeff")
    assert any(
        words in page.html
        for words in ("Привет, мир", "Größe", "€", "中文页面", "日本", "été", "안녕하세요", "สวัสดี", "plain", "+BBI-")
    )


def test_detects_short_texts_by_top_level_domain() -> None:
    for word, codec, domain, charset in (
        ("日本", "euc-jp", "jp", "euc-jp"),
        ("한국", "cp949", "kr", "euc-kr"),
        ("привет", "koi8-r", "ru", "koi8-u"),
        ("γεια", "iso8859-7", "gr", "iso-8859-7"),
        ("שלום", "cp1255", "il", "windows-1255"),
        ("สวัสดี", "cp874", "th", "windows-874"),
    ):
        page = page_of(f"<p>{word}".encode(codec), url=f"https://www.example.{domain}/")
        assert (word in page.html, page.charset) == (True, charset)


@pytest.mark.parametrize("url", ["https://[x/", "https://example.com:x/", "https://192.0.2.1/", "https://EXAMPLE.рф./"])
def test_detects_without_a_top_level_domain(url: str) -> None:
    assert "Привет" in page_of(RUSSIAN.encode("cp1251"), url=url).html


@pytest.mark.parametrize(
    "kind",
    ["charset=" + " " * 100_000, "text/html" + ";charset= " * 20_000, 'text/html;"\\' * 20_000, "charset " * 20_000],
)
def test_reads_long_headers_in_linear_time(kind: str) -> None:
    """A quadratic expression would exceed the time limit of tests."""
    assert page_of(RUSSIAN.encode(), f"{kind};").charset_source == "detection"


FEED = "<rss><channel><title>Новости</title><item><title>Июль</title></item></channel></rss>"


@pytest.mark.parametrize(
    ("data", "kind", "charset"),
    [
        (
            f"<?xml version='1.0' encoding='utf-8'?>{FEED}".encode("cp1251"),
            "application/rss+xml; charset=windows-1251",
            "windows-1251",
        ),
        (f"<?xml version='1.0' encoding='windows-1251'?>{FEED}".encode("cp1251"), "text/html", "windows-1251"),
        (f"<?xml version='1.0' encoding='koi8-r'?><!-- -->{FEED}".encode("koi8-r"), "text/plain", "koi8-r"),
        (f"<?xml version='1.0' encoding='utf-16'?>{FEED}".encode("utf-16"), "application/rss+xml", "utf-16le"),
        (f"<?xml version='1.0' encoding='utf-8'?>{FEED}".encode("utf-16-be"), "application/xml", "utf-16be"),
        (FEED.encode() + b"\xff", "text/xml", "utf-8"),
    ],
)
def test_decodes_feeds_before_they_are_parsed(documents: Documents, data: bytes, kind: str, charset: str) -> None:
    found = documents.extract(record_of(data, kind))
    assert (found["parsed_as"], found["charset"], found["text"]) == ("rss", charset, "Новости\nИюль")


def test_all_forms_of_a_page_are_decoded_alike(documents: Documents) -> None:
    page = "<title>Été</title><p>Le café <a href=/é>est fermé</a>, ".encode() + b"\xe9!"
    record = record_of(page, "text/html; charset=utf-8")
    found = documents.extract(record)
    made = Page(record, "CC-MAIN-2022-33", "warc")
    assert made.html == page.decode(errors="replace")
    assert made.text == found["text"] == "Le café est fermé, \ufffd!"
    assert made.markdown == "Le café [est fermé](/é), \ufffd!"
    assert (found["content"]["title"], found["content"]["links"][0]["href"]) == ("Été", "/é")
    assert (made.charset, made.charset_source) == (found["charset"], found["charset_detector"])


@pytest.mark.in_part(3)
@pytest.mark.parametrize("declared", [HTML, "application/xhtml+xml", ""])
def test_xhtml_is_read_as_the_server_declares_it(declared: str) -> None:
    """Crawlers detect XHTML by its namespace, but browsers read it as HTML if the server says so."""
    charset, codec = ("koi8-r", "koi8-r") if declared == HTML else ("windows-1251", "cp1251")
    page = f"<?xml version='1.0' encoding='cp1251'?><html xmlns='x'><meta charset='koi8-r'/>{RUSSIAN}".encode(codec)
    for more in ({"mime": "application/xhtml+xml"}, {"WARC_Identified_Payload_Type": "application/xml"}):
        made = page_of(page, declared, **more)
        assert (made.charset, made.text) == (charset, "Привет, мир")


@pytest.mark.parametrize("kind", ["application/json", "application/javascript"])
def test_html_of_other_types_is_decoded_by_the_header(kind: str) -> None:
    page = page_of("'Größe'".encode("cp1252"), f"{kind}; charset=cp1252")
    assert (page.html, page.charset) == ("'Größe'", None)


def test_html_of_xml_is_decoded_by_its_declaration() -> None:
    document = "<?xml version='1.0' encoding='iso-8859-5'?><sitemap>ж</sitemap>"
    assert page_of(document.encode("iso-8859-5"), "application/xml").html == document
