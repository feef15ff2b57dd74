"""Invalid and hostile snapshots are refused with a message, and nothing of them is stored."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.commoncrawl.manifests import COLLINFO
from catalogue.errors import BadSnapshot
from catalogue.harvest import snapshot as snapshot_format
from catalogue.harvest.snapshot import (
    CRAWL_LIST,
    MANIFEST,
    NO_ROW_GROUP,
    Row,
    Snapshot,
    SnapshotFile,
    read_rows,
    unpack_snapshot,
    write_rows,
)
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import ColumnIndex, Indexes
from catalogue.settings import Settings
from catalogue.store.stored_file import StoredFile
from tests.support.amounts import EXAMPLES, in_part
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.page_indexes import encode_column_index, packed_as_derived
from tests.support.snapshots import (
    empty,
    exported,
    manifest_of,
    place,
    replace_file,
    replace_rows,
    taught,
    values_of,
    with_stored,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["empty", "exported", "place", "taught"]  # fixtures

Fields = dict[str, Any]


def refused(cat: Catalogue, place: Path, message: str, **options: Any) -> None:
    """Pull the newest crawl, which fails and stores nothing but the list of crawls."""
    cat.session.create_store()
    before = values_of(cat)
    with pytest.raises(BadSnapshot, match=message):
        cat.pull(str(place), **{"crawls": manifest_of(place).crawls[0]} | options)
    after = values_of(cat)
    for values in (before, after):
        values["documents"].pop(COLLINFO, None)
    assert after == before
    assert not (cat.session.data / "pulling.part").exists()


# ---- the manifest ----


def first(**fields: Any) -> Callable[[Fields], object]:
    return lambda manifest: manifest["files"][0].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(format="zip"), "another format"),
        (lambda manifest: manifest.update(version=2), "version 2.*export it again"),
        (lambda manifest: manifest.update(version=4), "version 4.*upgrade this tool"),
        (lambda manifest: manifest.update(version=[1]), "version"),
        (lambda manifest: manifest.update(version="x" * 10_000), "^.{,200}$"),
        (first(name="x" * 10_000), "^.{,200}$"),
        (lambda manifest: manifest.update(missing="abc"), "not a list"),
        (lambda manifest: manifest.pop("files"), "'files'"),
        (lambda manifest: manifest.update(files=7), "not a list"),
        (lambda manifest: manifest["files"].append({}), "'name'"),
        (lambda manifest: manifest["files"].append(7), "invalid"),
        (lambda manifest: manifest["files"].append(manifest["files"][0]), "two files"),
        (first(name="../../etc/passwd"), "file name"),
        (first(name=f"crawls/../x.{'0' * 32}.zst"), "file name"),
        (first(sha256=""), "sha256"),
        (first(size=1 << 40), "size"),
        (first(size=True), "bool instead of int"),
        (first(count=-1), "count"),
        (lambda manifest: manifest.update(made_by="\x1b[2J"), "text"),
        (lambda manifest: manifest.update(missing=[1]), "int instead of str"),
        (lambda manifest: manifest["tables"][0].update(name="tables/../x.parquet"), "table"),
    ],
)
def test_refuses_invalid_manifests(exported: Path, change: Callable[[Fields], object], message: str) -> None:
    manifest = json.loads((exported / MANIFEST).read_bytes())
    change(manifest)
    with pytest.raises(BadSnapshot, match=message):
        unpack_snapshot(json.dumps(manifest).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff", b"7"])
def test_refuses_what_is_not_a_snapshot(empty: Catalogue, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(BadSnapshot, match="there is no snapshot at"):
        empty.pull(str(tmp_path / "other"))
    (tmp_path / "other" / MANIFEST).write_bytes(data)
    with pytest.raises(BadSnapshot, match=r"cannot be used: its snapshot\.json is"):
        empty.pull(str(tmp_path / "other"))
    assert not empty.session.store_path.exists()


# ---- the files ----


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "bytes"),
        (lambda data: data + b"\0", "bytes"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "another digest"),
        (lambda data: data[:0], "has 0 bytes"),
    ],
)
def test_refuses_damaged_files(place: Path, empty: Catalogue, damage: Callable[[bytes], bytes], message: str) -> None:
    snapshot = manifest_of(place)
    path = place / next(file.name for file in snapshot.files if file.crawl == snapshot.crawls[0])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Exception, match=message):
        empty.pull(str(place), crawls=snapshot.crawls[0])
    assert values_of(empty)["files"] == {}


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Change the decompressed stream."""
    return lambda path: path.write_bytes(zstd.compress(change(zstd.decompress(path.read_bytes()))))


def with_large_window(path: Path) -> None:
    """Demand 128 MB for decompression."""
    compressor = zstd.ZstdCompressor(options={int(zstd.CompressionParameter.window_log): 27})
    path.write_bytes(compressor.compress(zstd.decompress(path.read_bytes())) + compressor.flush())


def with_field(**fields: object) -> Callable[[bytes], bytes]:
    """Change the first line."""

    def change(stream: bytes) -> bytes:
        line, _, rest = stream.partition(b"\n")
        return json.dumps(json.loads(line) | fields).encode() + b"\n" + rest

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(b"x" * 100), "is damaged or has another form"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "is damaged or has another form"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "is damaged or has another form"),
        (rewritten(lambda stream: b"{" + stream), "is damaged or has another form"),
        (rewritten(lambda _: b"[" * 100_000), "is damaged or has another form"),
        (rewritten(lambda _: b" " * (64 << 20)), "is damaged or has another form"),
        (rewritten(lambda _: b"7\n"), "is damaged or has another form"),
        (rewritten(lambda stream: stream[:-1]), "another digest"),
        (rewritten(lambda stream: stream + b"\n"), "is damaged or has another form"),
        (rewritten(with_field(length=1 << 40)), "a length of"),
        (rewritten(with_field(length=-1)), "a length of"),
        (rewritten(with_field(length=True)), "bool instead of int"),
        (rewritten(with_field(length=255 << 20)), "another digest"),
        (rewritten(with_field(path=7)), "int instead of str"),
        (rewritten(with_field(file_size="7")), "str instead of int"),
        (rewritten(with_field(digest=None)), "another digest"),
        (with_large_window, "is damaged or has another form"),
    ],
)
def test_refuses_other_streams(place: Path, empty: Catalogue, change: Callable[[Path], object], message: str) -> None:
    replace_file(place, change)
    tracemalloc.start()
    try:
        refused(empty, place, message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000


def test_refuses_endless_values_of_a_file(place: Path, empty: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_format, "_MAX_ROWS", 100)

    def change(path: Path) -> None:
        rows = [row for part in read_rows(path) for row in part]
        index = next(row for row in rows if row.kind == "page_index")
        write_rows(path, [[*rows[:2], *[index] * 200]])

    replace_file(place, change)
    refused(empty, place, "too many page indexes")


def test_survives_mutated_files(exported: Path, tmp_path: Path) -> None:
    mutations = 20 * EXAMPLES
    snapshot = manifest_of(exported)
    data = (exported / snapshot.files[0].name).read_bytes()
    path = tmp_path / "mutated.zst"
    accepted = 0
    for position in range(0, len(data), max(1, len(data) // mutations)):
        path.write_bytes(data[:position] + bytes([data[position] ^ (1 + position % 255)]) + data[position + 1 :])
        try:
            accepted += bool([*read_rows(path)])
        except BadSnapshot:
            continue
    assert accepted < mutations  # statistics and names that nothing reads may change


# ---- the values ----


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("footer", with_stored(data=b""), "is invalid"),
        ("footer", with_stored(data=b"\x15" * 200), "is invalid"),
        ("footer", with_stored(size=20), "not an index file of"),
        ("footer", with_stored(size=-1), "invalid time, size or text"),
        ("footer", with_stored(size=1 << 60), "invalid time, size or text"),
        ("footer", with_stored(etag='"x"\r\nHost: elsewhere'), "invalid time, size or text"),
        ("footer", with_stored(etag="x" * 5000), "invalid time, size or text"),
        ("footer", with_stored(source="\x1b]0;owned\x07"), "invalid time, size or text"),
        ("footer", with_stored(taken="soon"), "invalid time, size or text"),
        ("footer", with_stored(taken="2026-01-01T00:00:00"), "invalid time, size or text"),
        ("footer", with_stored(taken="9999-12-31T23:59:59+00:00"), "invalid time, size or text"),
        ("footer", lambda row: row._replace(path=f"../{row.path}"), "not an index file of"),
        ("footer", lambda row: row._replace(path=row.path.replace("CC-MAIN-2", "CC-MAIN-12")), "not an index file of"),
        ("footer", lambda row: row._replace(kind="pickle"), "unknown kind"),
        ("manifest", with_stored(data=b"no gzip"), "is invalid"),
        ("manifest", lambda row: row._replace(path="table.json"), "unknown document"),
        ("page_index", with_stored(data=b"{}"), "is invalid"),
        ("page_index", with_stored(size=99_999), "page index without its footer"),
        ("page_index", lambda row: row._replace(path=f"x/{row.path}"), "page index without its footer"),
        ("page_index", lambda row: row._replace(row_group=-7), "page index without its footer"),
    ],
)
def test_refuses_invalid_values(
    place: Path, empty: Catalogue, kind: str, change: Callable[[Row], Row], message: str
) -> None:
    replace_rows(place, change, kind=kind)
    refused(empty, place, message)


@pytest.mark.parametrize("parts", [1, 2])
def test_refuses_two_footers_of_a_file(
    place: Path, empty: Catalogue, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    def change(path: Path) -> None:
        rows = [row for part in read_rows(path) for row in part if row.kind == "footer"]
        monkeypatch.setattr(snapshot_format, "_PART_ROWS", 2 * len(rows) // parts)
        write_rows(path, [rows, rows])
        assert len([*read_rows(path)]) == parts

    replace_file(place, change)
    refused(empty, place, "twice")


@pytest.mark.parametrize("fields", [{"data": b"[]"}, {"taken": "2026-01-01T00:00:00"}])
def test_refuses_invalid_lists_of_crawls(place: Path, empty: Catalogue, fields: Fields) -> None:
    replace_rows(place, with_stored(**fields), CRAWL_LIST)
    refused(empty, place, "is invalid")
    assert len(empty.harvest("latest")) == 1


def test_compares_footers_with_the_source(place: Path, empty: Catalogue) -> None:
    """Valid footers of other files can only be found by asking the source."""
    crawl = manifest_of(place).crawls[0]

    def swap(path: Path) -> None:
        rows = [row for part in read_rows(path) for row in part if row.kind == "footer"]
        write_rows(path, [[a._replace(stored=b.stored) for a, b in zip(rows, [*rows[1:], rows[0]], strict=True)]])

    replace_file(place, swap)
    refused(empty, place, "which the source does not have, or not in this version|has another footer of", compare=1)
    assert empty.pull(str(place), crawls=crawl, compare=0).files > 0


@in_part(2)
@pytest.mark.parametrize("derived", [True, False])
def test_false_page_indexes_are_not_stored(tmp_path: Path, *, derived: bool) -> None:
    """Page indexes that an earlier version derived are dropped; those of the files are compared with the source."""
    keys = [f"com,example)/{number:02}" for number in range(40)]
    mirror = crawl_of(tmp_path / "mirror", table(keys), data_page_size=1, write_batch_size=10)
    settings = Settings(source=str(mirror), cache=tmp_path / "cache")
    with catalogue.open(tmp_path / "mine", settings=settings) as mine:
        mine.harvest(CRAWL, pages=True)
        mine.export_snapshot(tmp_path / "snapshot")

    def falsify(row: Row) -> Row:
        """Claim that each page has only its first key, and the last page the last."""
        bounds = [Bounds(key.encode(), key.encode()) for key in (*keys[:30:10], keys[-1])]
        false = encode_column_index(ColumnIndex(tuple(bounds), None))
        indexes = replace(Indexes.unpack(row.stored.data), column_index=false, bounds=bounds[0])
        packed = packed_as_derived(false, dict(indexes.offset_indexes), {}) if derived else indexes.pack()
        return row._replace(stored=replace(row.stored, data=packed))

    replace_rows(tmp_path / "snapshot", falsify, kind="page_index")
    with catalogue.open(tmp_path / "theirs", settings=settings) as theirs:
        if derived:
            assert theirs.pull(str(tmp_path / "snapshot")).row_groups == 0
            assert theirs.captures("example.com/15").count() == 1
        else:
            refused(theirs, tmp_path / "snapshot", "has another page index of", compare=1)
            theirs.pull(str(tmp_path / "snapshot"), compare=0)
            (finding,) = theirs.check(read_subset="100%").findings
            assert finding.what == "the stored page index differs from the file's"


def test_stores_a_crawl_in_bounded_memory(empty: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = BytesIO()
    pq.write_table(pa.table({"url_surtkey": ["com,example)/"]}), written)
    data = written.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    value = StoredFile(footer, len(data), None, None, "https://example.org/", "2026-01-01T00:00:00+00:00")
    indexes = replace(value, data=Indexes(Random(0).randbytes(100_000), {}).pack())
    paths = [f"cc-index/crawl={CRAWL}/subset=warc/{number:05}.parquet" for number in range(80)]
    (tmp_path / "crawls").mkdir()
    name = f"crawls/{CRAWL}.{'0' * 32}.zst"
    monkeypatch.setattr(snapshot_format, "_PART_BYTES", 500_000)
    write_rows(
        tmp_path / name,
        [[Row("footer", path, NO_ROW_GROUP, value), Row("page_index", path, 0, indexes)] for path in paths],
    )
    file = SnapshotFile(name, 1, "0" * 64, len(paths))
    (tmp_path / MANIFEST).write_bytes(Snapshot("", "", (), (file,), ()).pack())
    replace_file(tmp_path, lambda _: None)
    monkeypatch.setattr(empty.session, "metadata", None)  # which would be built at the end
    tracemalloc.start()
    try:
        with pytest.raises(TypeError):
            empty.pull(str(tmp_path), compare=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert empty.session.create_store().count("files") == len(paths)
    assert peak < 4_000_000 < len(indexes.data) * len(paths)
