"""Files in a folder, under the same checks as those from afar."""

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from catalogue.errors import (
    FileChanged,
    Forbidden,
    NotFound,
    NotParquet,
    SourceUnavailable,
    Unreachable,
    WrongLength,
    WrongRange,
)
from catalogue.source.byte_ranges import ByteRange, FileVersion, SuffixRange
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.source.folder import FolderSource
from tests.support.sources import DATA, PATH


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    (folder / PATH).parent.mkdir(parents=True)
    (folder / PATH).write_bytes(DATA)
    (folder / "empty").write_bytes(b"")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def source(folder: Path) -> FolderSource:
    return FolderSource(folder)


@pytest.mark.parametrize(
    ("requested", "start", "end"),
    [
        (SuffixRange(1), 299_999, 300_000),
        (SuffixRange(999_999), 0, 300_000),
        (ByteRange(0, 300_000), 0, 300_000),
        (ByteRange(12_345, 23_456), 12_345, 23_456),
        (None, 0, 300_000),
    ],
)
def test_reads_ranges_suffixes_and_documents(
    source: FolderSource, requested: ByteRange | SuffixRange | None, start: int, end: int
) -> None:
    answer = source.get(PATH, requested)
    assert (answer.body == DATA[start:end], answer.start, answer.total_size) == (True, start, 300_000)
    assert answer.etag
    assert source.get(PATH, requested, pin=FileVersion(answer.total_size, answer.etag)) == answer


def test_rejects_another_version_than_the_pinned_one(source: FolderSource, folder: Path) -> None:
    seen = source.get(PATH, SuffixRange(8))
    pin = FileVersion(seen.total_size, seen.etag)
    os.utime(folder / PATH, ns=(1, 1))
    for requested in (SuffixRange(8), ByteRange(0, 8), None):
        with pytest.raises(FileChanged, match="ETag"):
            source.get(PATH, requested, pin=pin)
        assert source.get(PATH, requested, pin=FileVersion(seen.total_size, None)).total_size == 300_000
    (folder / PATH).write_bytes(DATA[:-1])
    for requested in (SuffixRange(8), ByteRange(0, 8), None):
        with pytest.raises(FileChanged, match="299,999 bytes"):
            source.get(PATH, requested, pin=pin)
    (folder / PATH).write_bytes(b"")
    for requested in (SuffixRange(8), ByteRange(0, 8), None):
        with pytest.raises(FileChanged, match=r"part 0\.parquet"):
            source.get(PATH, requested, pin=pin)


def test_errors_name_the_file(source: FolderSource) -> None:
    with pytest.raises(NotFound, match=r"none\.parquet does not exist"):
        source.get("none.parquet", SuffixRange(8))
    with pytest.raises(NotParquet, match="empty"):
        source.get("empty", SuffixRange(8))
    with pytest.raises(NotParquet, match="empty"):
        source.get("empty", ByteRange(0, 1))
    assert source.get("empty").body == b""
    with pytest.raises(FileChanged, match=r"part 0\.parquet is shorter"):
        source.get(PATH, ByteRange(300_000, 300_001))
    with pytest.raises(WrongRange, match=r"part 0\.parquet"):
        source.get(PATH, ByteRange(299_999, 300_001))


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "cc-index/../../secret",
        "cc-index/../empty",
        "cc-index",
        "",
        "empty/x",
        "a\0b",
        "/etc/hostname",
    ],
)
def test_paths_outside_of_the_folder_are_not_found(source: FolderSource, path: str) -> None:
    with pytest.raises(NotFound):
        source.get(path)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")
def test_pipes_are_not_found(source: FolderSource, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(NotFound):
        source.get("pipe", SuffixRange(8))


@pytest.mark.skipif(sys.platform == "win32", reason="no such rights")
def test_unreadable_files_are_forbidden(source: FolderSource, folder: Path) -> None:
    (folder / PATH).chmod(0)
    me = os.geteuid()
    if me == 0:  # who may read everything
        os.seteuid(65534)
    try:
        with pytest.raises(Forbidden, match=r"part 0\.parquet may not be read") as raised:
            source.get(PATH, SuffixRange(8))
    finally:
        os.seteuid(me)
    assert isinstance(raised.value, PermissionError)


@pytest.mark.skipif(sys.platform == "win32", reason="no links")
def test_io_errors_are_unreachable(source: FolderSource, folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    with pytest.raises(Unreachable, match="loop cannot be read: Too many levels"):
        source.get("loop", SuffixRange(8))


def test_follows_links_to_other_disks(source: FolderSource, folder: Path) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    assert source.get("link").body == b"secret"


def test_rejects_documents_over_the_maximum_size(source: FolderSource, folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(MAX_DOCUMENT + 1)
    with pytest.raises(WrongLength, match="large has 16,777,217 bytes"):
        source.get("large")
    assert source.get("large", SuffixRange(4)).body == bytes(4)


def test_closed_source_raises(folder: Path) -> None:
    with closing(FolderSource(folder, connections=7)) as source:
        assert source.connections == 7
        assert source.url == folder.as_uri() + "/"
        source.get(PATH)
    with pytest.raises(SourceUnavailable, match="was closed"):
        source.get(PATH)
