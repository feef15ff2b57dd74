"""Lists of crawls and of their files, which are inflated within a limit."""

import gzip
import json
import tracemalloc
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalogue.commoncrawl.crawls import (
    MAX_DOCUMENT,
    SUBSETS,
    Crawl,
    IndexFile,
    has_columnar_index,
    inflate,
    manifest_path,
    parse_collinfo,
    parse_manifest,
)
from catalogue.errors import BadManifest
from tests.support.crawl_paths import CRAWL, ROOT, part
from tests.support.mirrors import index_paths


def manifest(*lines: str, end: str = "\n") -> bytes:
    return gzip.compress("".join(line + end for line in lines).encode(), mtime=0)


# Inflating


def test_inflating() -> None:
    assert inflate(gzip.compress(b"text", mtime=0)) == b"text"
    assert inflate(gzip.compress(b"", mtime=0)) == b""


def test_the_limit_is_what_may_come_out() -> None:
    data = gzip.compress(bytes(1000), mtime=0)
    assert len(inflate(data, limit=1000)) == 1000
    with pytest.raises(BadManifest, match="inflates to more than 999 bytes"):
        inflate(data, limit=999)
    with pytest.raises(BadManifest, match="inflates to more than 0 bytes"):
        inflate(data, limit=0)


def test_a_bomb_is_left_when_it_has_become_too_large() -> None:
    bomb = gzip.compress(bytes(20 * MAX_DOCUMENT), 1, mtime=0)
    assert len(bomb) < 2 << 20
    tracemalloc.start()
    try:
        with pytest.raises(BadManifest, match="inflates to more than 16,777,216 bytes"):
            inflate(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_DOCUMENT


WHOLE = gzip.compress(b"some text that is long enough " * 9, mtime=0)


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_every_truncation_is_noticed(length: int) -> None:
    with pytest.raises(BadManifest, match="cut short"):
        inflate(WHOLE[:length])


@pytest.mark.parametrize("more", [b"\0", b"x", WHOLE], ids=["a zero", "a letter", "another file"])
def test_what_follows_the_end_is_noticed(more: bytes) -> None:
    with pytest.raises(BadManifest, match="has something behind its end"):
        inflate(WHOLE + more)


@pytest.mark.parametrize("at", range(-8, 0))
def test_a_wrong_trailer_is_noticed(at: int) -> None:
    """The checksum and the length."""
    damaged = bytearray(WHOLE)
    damaged[at] ^= 1
    with pytest.raises(BadManifest, match=r"not gzip: .*incorrect (data|length) check"):
        inflate(bytes(damaged))


@pytest.mark.parametrize(
    "data", [b"text, not gzip", zlib.compress(b"text"), b"PK\x03\x04", b"<html>", b"\x1f\x8b\x09" + bytes(7)]
)
def test_what_is_not_gzip(data: bytes) -> None:
    with pytest.raises(BadManifest, match="not gzip"):
        inflate(data)


# Manifests


def test_every_manifest_of_the_mirror_names_the_files_there_are(mirror: Path) -> None:
    there_are = {path.relative_to(mirror).as_posix() for path in index_paths(mirror)}
    crawls = [
        crawl.id for crawl in parse_collinfo((mirror / "collinfo.json").read_bytes()) if has_columnar_index(crawl.id)
    ]
    named = [file for crawl in crawls for file in parse_manifest(crawl, (mirror / manifest_path(crawl)).read_bytes())]
    assert {file.path for file in named} == there_are
    assert len(named) == len(there_are)
    assert all(file.path.startswith(f"cc-index/table/cc-main/warc/crawl={file.crawl}/") for file in named)
    assert {file.subset for file in named} == set(SUBSETS)


def test_files_come_once_and_in_their_order() -> None:
    lines = [part(7), part(1), part(7), part(3, "robotstxt"), part(1)]
    assert [file.path for file in parse_manifest(CRAWL, manifest(*lines))] == [part(7), part(1), part(3, "robotstxt")]


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", "\n\n", "\t\r\n"])
def test_ends_of_lines(end: str) -> None:
    assert parse_manifest(CRAWL, manifest(part(0), part(1), end=end)) == [
        IndexFile(part(0), CRAWL, "warc"),
        IndexFile(part(1), CRAWL, "warc"),
    ]


def test_the_last_line_may_have_no_end() -> None:
    assert len(parse_manifest(CRAWL, gzip.compress(f"{part(0)}\n{part(1)}".encode(), mtime=0))) == 2


def test_what_is_no_index_file_of_this_crawl_is_passed_over() -> None:
    other = part(0).replace(CRAWL, "CC-MAIN-2021-49")
    lines = [f"{ROOT}/", "", "# comment", other, f"../{part(0)}", f"https://evil.example/{part(0)}", "x" * 100_000]
    assert parse_manifest(CRAWL, manifest(*lines, part(5))) == [IndexFile(part(5), CRAWL, "warc")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut short"),
        (b"<html><title>403 Forbidden</title></html>", "not gzip"),
        (manifest(part(0))[:-1], "cut short"),
        (manifest(part(0)) + b"x", "has something behind its end"),
        (gzip.compress(bytes(MAX_DOCUMENT + 1), 1, mtime=0), "inflates to more than 16,777,216 bytes"),
        (gzip.compress("é".encode(), mtime=0), "'ascii' codec can't decode"),
        (gzip.compress(part(0).encode("utf-16"), mtime=0), "'ascii' codec can't decode"),
    ],
)
def test_manifests_that_cannot_be_read(data: bytes, reason: str) -> None:
    with pytest.raises(BadManifest, match=rf"the manifest of {CRAWL} cannot be read \(.*{reason}.*\); try again"):
        parse_manifest(CRAWL, data)


@pytest.mark.parametrize(
    "data", [manifest(), manifest(ROOT + "/"), manifest(part(0).replace(CRAWL, "CC-MAIN-2021-49")), manifest("x")]
)
def test_manifests_that_name_nothing(data: bytes) -> None:
    with pytest.raises(BadManifest, match=f"the manifest of {CRAWL} names no index file"):
        parse_manifest(CRAWL, data)


# Lists of crawls


def test_the_list_of_the_mirror(mirror: Path) -> None:
    crawls = parse_collinfo((mirror / "collinfo.json").read_bytes())
    assert len(crawls) >= 4
    assert crawls == sorted(crawls, key=lambda crawl: crawl.id, reverse=True)
    assert any(not has_columnar_index(crawl.id) for crawl in crawls)
    for crawl in crawls:
        assert crawl.name
        assert crawl.first_fetch
        assert crawl.last_fetch
        assert crawl.first_fetch < crawl.last_fetch
        assert crawl.first_fetch.tzinfo is UTC


def test_times_are_utc_and_may_be_missing() -> None:
    items = [
        {"id": "CC-MAIN-2022-05", "name": "a", "from": "2022-01-16T09:31:37", "to": "2022-01-29T15:34:00Z"},
        {"id": "CC-MAIN-2021-49", "from": "2021-11-26T00:00:00+02:00", "to": None},
        {"id": "CC-MAIN-2021-43", "name": None, "from": "soon", "to": 5},
        {"id": "CC-MAIN-2021-39", "from": "0001-01-01T00:00:00+02:00"},
    ]
    first, second, third, fourth = parse_collinfo(json.dumps(items).encode())
    assert first == Crawl(
        "CC-MAIN-2022-05",
        "a",
        datetime(2022, 1, 16, 9, 31, 37, tzinfo=UTC),
        datetime(2022, 1, 29, 15, 34, tzinfo=UTC),
    )
    assert second == Crawl("CC-MAIN-2021-49", "", datetime(2021, 11, 25, 22, tzinfo=UTC), None)
    assert second.first_fetch
    assert second.first_fetch.tzinfo is UTC
    assert third == Crawl("CC-MAIN-2021-43")
    assert fourth == Crawl("CC-MAIN-2021-39")


def test_the_newest_comes_first_and_each_once() -> None:
    names = ["CC-MAIN-2009-2010", "CC-MAIN-2022-05", "CC-MAIN-2012", "CC-MAIN-2021-49", "CC-MAIN-2022-05"]
    names += ["CC-SUPPLEMENTAL-2022-04", "CC-MAIN-2008-2009"]
    assert [crawl.id for crawl in parse_collinfo(json.dumps([{"id": name} for name in names]).encode())] == [
        "CC-MAIN-2022-05",
        "CC-SUPPLEMENTAL-2022-04",
        "CC-MAIN-2021-49",
        "CC-MAIN-2012",
        "CC-MAIN-2009-2010",
        "CC-MAIN-2008-2009",
    ]


def test_items_of_another_shape_are_passed_over() -> None:
    items: list[object] = [
        None,
        5,
        "CC-MAIN-2022-05",
        [],
        {},
        {"id": 5},
        {"id": "../x"},
        {"id": "CC-MAIN-2022-05\n"},
        {"name": "x"},
    ]
    assert [crawl.id for crawl in parse_collinfo(json.dumps([*items, {"id": CRAWL, "new": {}}]).encode())] == [CRAWL]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not JSON"),
        (b"<html>", "is not JSON"),
        (b'[{"id": "CC-MAIN-2022-05"}', "is not JSON"),
        (b"\xff\xfe\xfd", "is not JSON"),
        (b"[" * 1_000_000, "is not JSON"),
        (b"[" + b"1" * 10_000 + b"]", "is not JSON"),
        (b"[]", "names no crawl"),
        (b"{}", "names no crawl"),
        (b"null", "names no crawl"),
        (b'"CC-MAIN-2022-05"', "names no crawl"),
        (b'{"id": "CC-MAIN-2022-05"}', "names no crawl"),
        (b'[{"id": "x"}]', "names no crawl"),
    ],
)
def test_lists_that_cannot_be_read(data: bytes, reason: str) -> None:
    with pytest.raises(BadManifest, match=reason):
        parse_collinfo(data)
