"""Charsets by label and by byte, as browsers decode them."""

import base64
import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import webencodings

from catalogue.records.charsets import charset_of, decode
from tests.support.browsers import open_chromium, without_browser

CHARSETS = sorted({*webencodings.LABELS.values()} - {"replacement"})
MULTI_BYTE = ("big5", "euc-jp", "euc-kr", "gb18030", "gbk", "shift_jis")
ESCAPES = (b"\x1b(B", b"\x1b(J", b"\x1b(I", b"\x1b$B", b"\x1b$@")

chromium = pytest.fixture(scope="module")(open_chromium)


def by_browser(browser: Any, charset: str, inputs: list[bytes]) -> list[str]:
    """Decode inputs of up to 255 bytes by TextDecoder; characters are returned as numbers, not to be changed."""
    script = """
        const bytes = Uint8Array.from(atob(arguments[1]), character => character.charCodeAt(0)), texts = [];
        for (let at = 0; at < bytes.length; at += 1 + bytes[at]) {
          const decoder = new TextDecoder(arguments[0], {ignoreBOM: true});
          const text = decoder.decode(bytes.slice(at + 1, at + 1 + bytes[at]));
          texts.push(Array.from(text, character => character.codePointAt(0)));
        }
        return JSON.stringify(texts)"""
    packed = b"".join(bytes([len(data)]) + data for data in inputs)
    found = json.loads(browser.execute_script(script, charset, base64.b64encode(packed).decode()))
    return ["".join(map(chr, numbers)) for numbers in found]


def inputs_of(random: Random) -> Iterator[bytes]:
    """Yield all bytes, random pairs and random texts, valid and invalid ones."""
    yield from (bytes([byte]) for byte in range(256))
    for _ in range(1000):
        yield bytes([random.randrange(0x80, 256), random.randrange(256)])
    for _ in range(500):
        words = [random.randbytes(1), random.randbytes(2), bytes([random.randrange(0x20, 0x7F)]), b"\x81\x30\x84\x32"]
        yield b"".join(random.choices(words, k=random.randrange(12)))


@pytest.mark.in_soak
@without_browser
def test_knows_the_labels_of_browsers(chromium: Any) -> None:
    labels = [*webencodings.LABELS, "utf-7", "utf7", "utf-32", "unicode", "cp949", "\u212aoi8-r", "no-such", ""]
    script = """
        return arguments[0].map(label => {try {return new TextDecoder(label).encoding} catch {return null}})"""
    for label, expected in zip(labels, chromium.execute_script(script, labels), strict=True):
        found = charset_of(label)
        assert found == expected or (found, expected) == ("replacement", None), label
        assert charset_of(f"\t {label.upper()}\r\n") == found or not label.isascii()


@pytest.mark.in_soak
@without_browser
@pytest.mark.parametrize("charset", CHARSETS)
def test_decodes_bytes_as_browsers_do(chromium: Any, charset: str) -> None:
    inputs = [data for data in inputs_of(Random(charset)) if not off_standard(charset, data)]
    for data, expected in zip(inputs, by_browser(chromium, charset, inputs), strict=True):
        assert decode(data, charset) == expected, data.hex()


def off_standard(charset: str, data: bytes) -> bool:
    """Return whether a decoder differs from the standard: Python maps two slashes of big5 to others.

    Chromium returns wrong characters for the pairs of big5 that are two characters, and continues wrongly after invalid
    bytes in a set of three bytes, and after an incomplete escape sequence.
    """
    return (
        (charset == "big5" and re.search(rb"\x88[\x62\x64\xa3\xa5]|\xa2[AB]", data) is not None)
        or (charset == "euc-jp" and b"\x8f" in data[:-1])
        or (charset == "iso-2022-jp" and b"\x1b" in data)
    )


@pytest.mark.in_soak
@without_browser
def test_decodes_escape_sequences_as_browsers_do(chromium: Any) -> None:
    random = Random(1)
    words = [*ESCAPES, b"\x30\x21", b"\x25", b"a", b"\\", b"~", b"\n", b"\xb1", b"\x0e"]
    inputs = [b"".join(random.choices(words, k=random.randrange(12))) + b"a" for _ in range(1000)]
    for data, expected in zip(inputs, by_browser(chromium, "iso-2022-jp", inputs), strict=True):
        assert decode(data, "iso-2022-jp") == expected, data


@pytest.mark.parametrize(
    ("label", "data", "text"),
    [
        ("latin1", b"\x80\x93\x9d\xe9", "\u20ac\u201c\x9d\xe9"),
        ("us-ascii", b"\xe9", "\xe9"),
        ("ISO-8859-9", b"\xfd\x80", "\u0131\u20ac"),
        ("tis-620", b"\xa1\x80\xff", "\u0e01\u20ac\ufffd"),
        ("x-sjis", b"\x87\x40\xfa\x40\x81\x20\x80\xfd", "\u2460\u2170\ufffd \x80\ufffd"),
        ("ms_kanji", b"\x8a\x54\x81", "\u6982\ufffd"),
        # An invalid pair without an ASCII character is one replacement.
        *(
            ("x-sjis", b"\x81\xffA", "\ufffdA"),
            ("euc-kr", b"\xb0\xffA", "\ufffdA"),
            ("euc-jp", b"\xb0\xffA", "\ufffdA"),
        ),
        ("ks_c_5601-1987", b"\xb0\xa1\x8c\x63\xff\x41", "\uac00\ub620\ufffdA"),
        ("gb2312", b"\x80\xd6\xd0\x81\x39\xee\x39\xff", "\u20ac\u4e2d\u3400\ufffd"),
        ("gb18030", b"\xfe\x39\xfe\x39A\x81\x30\x81", "\ufffdA\ufffd"),
        ("big5-hkscs", b"\x88\x62\xa4\xa4\xff\xfe", "\u00ca\u0304\u4e2d\ufffd\ufffd"),
        ("euc-jp", b"\xad\xa1\x8f\xb0\xa1\xa1\xdd\xff", "\u2460\u4e02\uff0d\ufffd"),
        ("iso-2022-jp", b"\x1b$B\x30\x21\x1b(J\\\x1b(Ba", "\u4e9c\xa5a"),
        ("koi8-u", b"\xa6\xae", "\u0456\u045e"),
        ("hebrew", b"\xe0", "\u05d0"),
        ("logical", b"\xe0", "\u05d0"),
        ("windows-1255", b"\xca\xd9", "\u05ba\ufffd"),
        ("x-user-defined", b"a\x80", "a\uf780"),
        ("macintosh", b"\xdb", "\u20ac"),
        ("utf8", b"\xc3\xa9\xc3(\xe2\x82", "\xe9\ufffd(\ufffd"),
        ("utf-16", b"a\0\0\xd8b\0c", "a\ufffdb\ufffd"),
        ("hz-gb-2312", b"~{VPND~}", "\ufffd"),
    ],
)
def test_decodes_by_label(label: str, data: bytes, text: str) -> None:
    charset = charset_of(label)
    assert charset
    assert decode(data, charset) == text


@pytest.mark.in_part(3)
@pytest.mark.timeout(20)
@pytest.mark.parametrize("charset", [*MULTI_BYTE, "iso-2022-jp"])
def test_decodes_long_damaged_texts_in_linear_time(charset: str) -> None:
    """A quadratic decoder would exceed the time limit."""
    for data in (b"\xff" * 50_000, b"\x81\x20" * 50_000, b"\x1b\xff" * 50_000, b"\x8f\xff" * 50_000):
        assert decode(data, charset).count("\ufffd") >= 50_000
