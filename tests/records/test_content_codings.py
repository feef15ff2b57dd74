"""Bodies with transfer and content codings, as servers send them and archives contain them."""

import gzip
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from random import Random

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.errors import BadRecord
from catalogue.records.content_codings import MAX_DECODED, decode_body
from catalogue.records.media_type import is_binary
from tests.support.archives import digest, record_of
from tests.support.memory import memory_below
from tests.support.mutators import damage

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PAGE = b"<html><head><title>T</title></head><body><p>hello visible words</p></body></html>"


def chunked(
    data: bytes, *, size: int = 20, extension: bytes = b"", trailer: bytes = b"", end: bytes = b"\r\n"
) -> bytes:
    parts = (data[at : at + size] for at in range(0, len(data), size))
    chunks = b"".join(b"%x" % len(part) + extension + end + part + end for part in parts)
    return chunks + b"0" + end + trailer + end


CODERS: dict[str, list[Callable[[bytes], bytes]]] = {
    "gzip": [gzip.compress, lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:])],
    "x-gzip": [gzip.compress],
    "deflate": [zlib.compress, lambda data: zlib.compress(data, wbits=-15), gzip.compress],
    "br": [brotli.compress, lambda data: brotli.compress(data, quality=0, lgwin=10)],
    "zstd": [
        zstd.compress,
        lambda data: zstd.compress(data[:7]) + b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstd.compress(data[7:]),
    ],
}


def decoded(body: bytes, *lines: tuple[str, str]) -> bytes:
    return decode_body(body, lines)[0]


@given(st.data())
def test_removes_any_list_of_codings(data: st.DataObject) -> None:
    payload = data.draw(st.binary(max_size=200).map(lambda some: PAGE + some))
    body, names, lines, value = payload, [], [], ""
    for _ in range(data.draw(st.integers(0, 4))):
        name = data.draw(st.sampled_from(sorted(CODERS)))
        body = data.draw(st.sampled_from(CODERS[name]))(body)
        names.append(data.draw(st.sampled_from([name, name.upper(), f" {name}\t", f",{name},", f"identity, {name}"])))
    for name in names:
        value = f"{value},{name}" if value else name
        if data.draw(st.booleans()):
            lines.append(("Content-Encoding", value))
            value = ""
    lines.append(("content-encoding", value))
    if data.draw(st.booleans()):
        extension = data.draw(st.sampled_from([b"", b";a=b", b' ; name="value"', b"  "]))
        trailer = data.draw(st.sampled_from([b"", b"Digest: x\r\n", b"A: b\r\nC: d\r\n"]))
        size = data.draw(st.integers(1, 300))
        body = chunked(body, size=size, extension=extension, trailer=trailer)
        lines.insert(0, ("Transfer-Encoding", "chunked"))
    assert decoded(body, *lines) == payload


UNCODED = [
    *(PAGE, b"", b"K", b"Knees are bent", b"\xef\xbb\xbfwords", b"0\r\n", b"ad\r\nbe\r\n", PAGE * 100),
    b'{"key": null, "page": true, "title": null}',  # begins like raw deflate
    b'{"var = var ; x = = <!DOCTYPE {"a": the html> {"a": gr\xc3\xb6\xc3\x9fe ',  # and expands
    b"x = t",  # begins like zlib
    b"1} the = body var \r\n class='x'> the ) of",  # begins like brotli
]
NAMED = ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, br", "identity", "none", "", "utf-8", "text/html", "-"]
NAMED += ["charset=utf-8", ";q=1", "aws-chunked"]


@pytest.mark.parametrize("coding", NAMED)
def test_keeps_bodies_without_the_coding_that_they_name(coding: str) -> None:
    lines = [("Content-Encoding", coding), ("Transfer-Encoding", "chunked")]
    for payload in UNCODED:
        assert decoded(payload, *lines) == payload
        assert decode_body(payload, lines, cut=True)[0] in {payload, b""}


CHUNKED, GZIP, BROTLI, ZSTD = (
    [("Transfer-Encoding", "chunked")],
    *([("Content-Encoding", coding)] for coding in ("gzip", "br", "zstd")),
)
KNOWN_FILES = [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xd8\xff\xe0\0\x10JFIF\0", b"PK\x03\x04\x14\0\0\0"]
DECODED: list[tuple[bytes, list[tuple[str, str]], bytes]] = [
    (chunked(gzip.compress(PAGE)), [("Transfer-Encoding", "gzip, chunked")], PAGE),
    (chunked(gzip.compress(PAGE)), [("Transfer-Encoding", "gzip"), ("Transfer-Encoding", "Chunked")], PAGE),
    (gzip.compress(PAGE), [("Transfer-Encoding", "gzip, chunked")], PAGE),
    (chunked(brotli.compress(gzip.compress(PAGE))), [*CHUNKED, ("Content-Encoding", "gzip,,br")], PAGE),
    (chunked(PAGE, end=b"\n"), CHUNKED, PAGE),
    (chunked(PAGE), [("Transfer-Encoding", "chunked, chunked")], PAGE),
    (chunked(PAGE), [("Content-Encoding", "chunked")], PAGE),
    (chunked(chunked(PAGE)), [("Transfer-Encoding", "chunked, chunked")], PAGE),
    (chunked(PAGE) + b"GET / HTTP/1.1\r\n\r\n", CHUNKED, PAGE),
    (chunked(PAGE), [("Content-Type", "text/html")], chunked(PAGE)),
    # Files of known types, which begin like other codings.
    *((file, lines, file) for file in KNOWN_FILES for lines in (BROTLI, [("Content-Encoding", "deflate")])),
    # What follows a complete body is ignored.
    *((gzip.compress(PAGE) + rest, GZIP, PAGE) for rest in (b"\0\r\n", b"more", b"\x1f")),
    *((zstd.compress(PAGE) + rest, ZSTD, PAGE) for rest in (b"\0\r\n", b"more", b"\x1f")),
    *(
        (brotli.compress(each) + end, BROTLI, each)
        for each in (PAGE, PAGE + b"\r", PAGE * 10)
        for end in (b"\n", b"\r\n", b"\0" * 8, b"more")
    ),
    (brotli.compress(Random(1).randbytes(20_000)) + b"<!-- cached -->", BROTLI, Random(1).randbytes(20_000)),
    # Empty bodies.
    (b"0\r\n\r\n", CHUNKED, b""),
    *((coders[0](b""), [("Content-Encoding", coding)], b"") for coding, coders in CODERS.items()),
]


@pytest.mark.parametrize(
    ("body", "lines", "payload"),
    DECODED,
    ids=[f"{number} {' '.join(value for _, value in lines)}" for number, (_, lines, _) in enumerate(DECODED)],
)
def test_decodes_bodies(body: bytes, lines: list[tuple[str, str]], payload: bytes) -> None:
    assert decoded(body, *lines) == payload


def test_chunks_that_end_early_are_the_first_part() -> None:
    whole, lines = chunked(PAGE), [("Transfer-Encoding", "chunked")]
    for end in range(24, len(whole) - 5):
        content, ends_early = decode_body(whole[:end], lines)
        assert (PAGE.startswith(content), ends_early) == (True, True), end
        assert len(content) >= end * 20 // 24 - 24
    assert decode_body(whole[:12], lines)[0] == PAGE[:8]


def test_damaged_chunks_are_an_error() -> None:
    whole = chunked(PAGE)
    with pytest.raises(BadRecord, match="the chunks of its payload are damaged at byte 26"):
        decoded(whole[:40] + b"xyz" + whole[40:], ("Transfer-Encoding", "chunked"))


@pytest.mark.parametrize("coding", sorted(CODERS))
def test_a_body_that_is_cut_gives_its_first_part(coding: str) -> None:
    payload = Random(1).randbytes(3000).hex().encode()
    for coder in CODERS[coding]:
        body = coder(PAGE + payload)
        lines = [("Content-Encoding", coding)]
        for length in (len(body) // 2, len(body) - 1):
            content, ends_early = decode_body(body[:length], lines, cut=True)
            assert ends_early
            assert (PAGE + payload).startswith(content)
            assert content or coding == "zstd"  # whose blocks are decoded when they are complete
            with pytest.raises(BadRecord, match=f"the {coding} coding of its payload ends early"):
                decode_body(body[:length], lines)


@pytest.mark.parametrize("coding", ["compress", "x-compress", "pack200-gzip", "exi", "foo", "sdch", "zstd-dict", "dcb"])
def test_an_unknown_coding_is_an_error(coding: str) -> None:
    for lines in (
        [("Content-Encoding", coding)],
        [("Content-Encoding", f"gzip, {coding}")],
        [("Transfer-Encoding", coding)],
    ):
        with pytest.raises(BadRecord, match=f"its payload has the content coding '{coding}', which cannot be decoded"):
            decode_body(b"\x1f\x9d\x90", lines)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("coding", sorted(CODERS))
def test_damaged_bodies_are_errors_or_decoded(coding: str) -> None:
    """The bytes of a damaged body are returned only if its signature is damaged, so that it has none."""
    random = Random(coding)
    bodies = [coder(PAGE * 5) for coder in CODERS[coding]]
    failed = 2000
    for number in range(failed):
        body = damage(bodies[number % len(bodies)], random, bodies)
        with suppress(BadRecord):
            unchanged = decoded(body, ("Content-Encoding", coding)) == body
            assert not (unchanged and body.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")))
            assert not (unchanged and coding in {"br", "deflate"} and is_binary(body))
            failed -= 1
    assert failed > 200


def zeros(coding: str, size: int) -> bytes:
    """Return a body of zeros, in few bytes."""
    mega = bytes(1 << 20)
    if coding == "br":
        brotli_packer = brotli.Compressor(quality=1)
        return b"".join([*(brotli_packer.process(mega) for _ in range(size >> 20)), brotli_packer.finish()])
    packer = zstd.ZstdCompressor(1) if coding == "zstd" else zlib.compressobj(1, wbits=31 if coding == "gzip" else -15)
    return b"".join([*(packer.compress(mega) for _ in range(size >> 20)), packer.flush()])


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    "codings", ["gzip", "deflate", "br", "zstd", "gzip,gzip", "br,gzip", "zstd,br", "gzip,zstd,br"]
)
def test_bombs_are_refused_within_the_limit(codings: str) -> None:
    first, *others = codings.split(",")
    body = zeros(first, MAX_DECODED + (1 << 20))
    for coding in others:
        body = CODERS[coding][0](body)
    message = "its payload expands to more than 67,108,864 bytes"
    with memory_below(3 * MAX_DECODED), pytest.raises(BadRecord, match=message):
        decoded(body, ("Content-Encoding", codings))


def test_members_and_codings_are_limited() -> None:
    with pytest.raises(BadRecord, match="more than 100 members"):
        decoded(gzip.compress(b"") * 101, ("Content-Encoding", "gzip"))
    with pytest.raises(BadRecord, match="has 11 content codings; at most 10 are decoded"):
        decoded(PAGE, ("Content-Encoding", "gzip," * 11))
    window = zstd.compress(
        PAGE * 99, options={zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    )
    assert decoded(window, ("Content-Encoding", "zstd")) == PAGE * 99


def test_record_reports_that_it_is_truncated() -> None:
    body, lines = gzip.compress(PAGE)[:-20], "Content-Encoding: gzip\r\n"
    for name in ("WARC_Truncated", "truncated"):
        flagged = record_of(body, lines=lines, **{name: "length"})
        assert (flagged.truncated, flagged.coding_error) == ("length", None)
        assert PAGE.startswith(flagged.payload)
    unknown = record_of(body, lines=lines, WARC_Truncated="-")
    assert (unknown.truncated, unknown.coding_error) == (None, "the gzip coding of its payload ends early")
    early = record_of(chunked(PAGE)[:-7], lines="Transfer-Encoding: chunked\r\n")
    assert (early.truncated, early.payload) == ("unspecified", PAGE)


@pytest.mark.parametrize(
    ("lines", "body", "truncated"),
    [
        ("Content-Length: 2000\r\n", PAGE, "unspecified"),
        (f"X-Crawler-Content-Length: 2000\r\nContent-Length: {len(PAGE)}\r\n", PAGE, "unspecified"),
        ("X-Crawler-Content-Length: 2000\r\nX-Crawler-Content-Encoding: gzip\r\n", PAGE, None),
        ("Content-Length: 2000\r\nContent-Encoding: gzip\r\n", PAGE, None),
        ("Content-Length: 20\r\n", PAGE, None),
        ("Content-Length: -1\r\nContent-Length: \u0662000\r\n", PAGE, None),
        ("Content-Length: 2000\r\n", b"", None),
        ("", b"x" * (1 << 20), "unspecified"),
        ("", b"x" * ((1 << 20) - 1), None),
    ],
)
def test_unmarked_bodies_that_are_short_are_truncated(lines: str, body: bytes, truncated: str | None) -> None:
    """One of 1 MiB only before Common Crawl marked all."""
    assert record_of(body, lines=lines, time=None, WARC_Date="2018-08-15T01:02:03Z").truncated == truncated
    assert record_of(b"x" * (1 << 20)).truncated is None


def test_digests_of_either_form_are_accepted() -> None:
    coded = gzip.compress(PAGE, mtime=0)
    body, lines = chunked(coded), "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n"
    for form in (body, coded):
        for index in (digest(form), None):
            for reported in (f"sha1:{digest(form)}", ""):
                record = record_of(body, lines=lines, digest=index, WARC_Payload_Digest=reported)
                assert (record.payload, record.body) == (PAGE, body)
    with pytest.raises(BadRecord, match="its payload does not have the digest"):
        record_of(body, lines=lines, digest=digest(PAGE + b"x"))
