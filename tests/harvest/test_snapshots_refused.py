"""Invalid and hostile snapshots are refused with a message, and nothing of them is stored."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import BadSnapshot
from catalogue.harvest.snapshot import MANIFEST, Entry, SnapshotFile, pack_manifest, unpack_manifest
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import ColumnIndex, Indexes
from catalogue.settings import Settings
from catalogue.source.checks import MAX_DOCUMENT
from catalogue.store.layout import DIGEST_SIZE, StoredFile, encode
from tests.support.amounts import EXAMPLES
from tests.support.crawls import CRAWL, crawl_of, table
from tests.support.memory import memory_below
from tests.support.page_indexes import encode_column_index, packed_as_derived
from tests.support.snapshots import (
    empty,
    exported,
    files_of,
    indexes_in,
    place,
    read_rows,
    replace_file,
    replace_rows,
    taught,
    values_of,
    with_stored,
    write_rows,
)

__all__ = ["empty", "exported", "place", "taught"]  # fixtures

Fields = dict[str, Any]


def refused(cat: Catalogue, place: Path, message: str, **options: Any) -> None:
    """Pull the newest crawl, which fails and stores nothing."""
    cat.session.create_store()
    before = values_of(cat)
    with pytest.raises(BadSnapshot, match=message):
        cat.pull(str(place), **{"crawls": next(iter(files_of(place)))} | options)
    assert values_of(cat) == before


# ---- the manifest ----


def first(**fields: Any) -> Callable[[Fields], object]:
    return lambda manifest: manifest["files"][0].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(version=5), "version 5.*which a new export has"),
        (lambda manifest: manifest.update(version=8), "version 8.*upgrade this tool"),
        (lambda manifest: manifest.update(version=[1]), "list instead of int"),
        (lambda manifest: manifest.update(version="x" * 10_000), "str instead of int"),
        *((first(crawl="x" * 10_000), "^.{,200}$"), (lambda manifest: manifest.pop("files"), "'files'")),
        (lambda manifest: manifest.update(files=7), "cannot be used"),
        (lambda manifest: manifest["files"].append({}), "'crawl'"),
        (lambda manifest: manifest["files"].append(7), "cannot be used"),
        *((first(crawl="../../etc/passwd"), "passwd"), (first(crawl=7), "int instead of str")),
        *((first(sha256=""), "sha256"), (first(size=1 << 40), "size"), (first(size=True), "bool instead of int")),
        *((first(sha256="x" * 64), "cannot be used"), (first(sha256=7), "cannot be used")),
    ],
)
def test_refuses_invalid_manifests(exported: Path, change: Callable[[Fields], object], message: str) -> None:
    manifest = json.loads((exported / MANIFEST).read_bytes())
    change(manifest)
    with pytest.raises(BadSnapshot, match=message):
        unpack_manifest(json.dumps(manifest).encode(), "place")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "there is no snapshot at"),
        *((data, r"snapshot\.json: ") for data in (b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff", b"7")),
        (pack_manifest([]), "has no crawls yet; if it is being exported, wait"),
    ],
    ids=["missing", "empty", "half", "list", "null", "deep", "not UTF-8", "number", "without crawls"],
)
def test_refuses_what_is_not_a_snapshot(empty: Catalogue, tmp_path: Path, data: bytes | None, message: str) -> None:
    (tmp_path / "other").mkdir()
    if data is not None:
        (tmp_path / "other" / MANIFEST).write_bytes(data)
    with pytest.raises(BadSnapshot, match=message):
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
    file = next(iter(files_of(place).values()))
    (place / file.name).write_bytes(damage((place / file.name).read_bytes()))
    with pytest.raises(Exception, match=message):
        empty.pull(str(place), crawls=file.crawl)
    assert values_of(empty)["files"] == {}


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def with_line(*values: object) -> Callable[[Path], object]:
    return rewritten(lambda data: json.dumps(values).encode() + data[data.index(b"\n") :])


def with_item(at: int, value: object) -> Callable[[Path], object]:
    """Change an item of the first line: 0 is the key, 1 the length of the value, 2 that of its first part."""

    def changed(data: bytes) -> bytes:
        line, _, rest = data.partition(b"\n")
        items = json.loads(line)
        items[at] = value
        return json.dumps(items).encode() + b"\n" + rest

    return rewritten(changed)


def bomb(path: Path) -> None:
    """Let the first value claim few bytes, and have many when it is decompressed."""
    value = encode(StoredFile(bytes(200 << 20), 1, None, None, "", ""))
    header, _, rest = value[1 + DIGEST_SIZE :].partition(b"\n")
    body = json.dumps([100, json.loads(header)[1]]).encode() + b"\n" + rest
    value = value[:1] + blake2b(body, digest_size=DIGEST_SIZE).digest() + body
    path.write_bytes(json.dumps(["key", len(value), 100]).encode() + b"\n" + value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(b"x" * 100), "is damaged or has another form"),
        (rewritten(lambda data: data[:-20]), "is damaged or has another form"),
        (rewritten(lambda data: data + b"x"), "is damaged or has another form"),
        (rewritten(lambda data: data + b"\n"), "is damaged or has another form"),
        (rewritten(lambda data: b"{" + data), "is damaged or has another form"),
        (rewritten(lambda data: data[:-1] + bytes([data[-1] ^ 1])), "its digest is wrong"),
        (rewritten(lambda _: b"[" * 100_000), "is damaged or has another form"),
        (rewritten(lambda _: b" " * (64 << 20)), "is damaged or has another form"),
        (rewritten(lambda _: b"7\n"), "is damaged or has another form"),
        (with_line("key", 100, 100), "its digest is wrong"),
        *((with_line("key", 32 << 20, 100), "its digest is wrong"), (with_line("key", 1 << 40, 100), "an entry with")),
        *((with_line("key", -1, 100), "an entry with"), (with_line("key", *[True], 100), "bool instead of int")),
        (with_line("key", 100), "is damaged or has another form"),
        *((with_line("key"), "is damaged or has another form"), (with_line(), "is damaged or has another form")),
        *((with_item(2, -1), "an entry with"), (with_item(2, 1 << 40), "parts of"), (with_item(2, 0), "parts of")),
        *((with_item(2, 1.0), "float instead of int"), (with_item(0, None), "NoneType instead of str")),
        (bomb, "is invalid"),
    ],
)
def test_refuses_other_streams(place: Path, empty: Catalogue, change: Callable[[Path], object], message: str) -> None:
    replace_file(place, change)
    with memory_below(40_000_000):
        refused(empty, place, message)


def test_survives_mutated_files(exported: Path, place: Path, empty: Catalogue) -> None:
    mutations = 2 * EXAMPLES
    file = next(iter(files_of(exported).values()))
    data = (exported / file.name).read_bytes()
    for number in range(mutations):
        position = (number * len(data)) // mutations
        changed = data[:position] + bytes([data[position] ^ (1 + position % 255)]) + data[position + 1 :]
        replace_file(place, partial(Path.write_bytes, data=changed))
        # Another name of a file is found at the source alone.
        refused(empty, place, "nothing of it was stored", compare=100)


# ---- the values ----


class Packed(NamedTuple):
    """Page indexes in another form."""

    data: bytes

    def pack(self) -> bytes:
        return self.data


def with_index(indexes: dict[int, Any]) -> Callable[[Entry], Entry]:
    return lambda row: row._replace(indexes=indexes)


@pytest.mark.parametrize(
    ("of", "change", "message"),
    [
        ("files", with_stored(data=b""), "is invalid"),
        ("files", with_stored(data=b"\x15" * 200), "is invalid"),
        ("files", with_stored(size=20), "is smaller than its footer|is invalid"),
        ("files", with_stored(size=-1), "invalid time, size or text"),
        ("files", with_stored(size=1 << 60), "invalid time, size or text"),
        ("files", with_stored(etag='"x"\r\nHost: elsewhere'), "invalid time, size or text"),
        ("files", with_stored(etag="x" * 5000), "invalid time, size or text"),
        ("files", with_stored(source="\x1b]0;owned\x07"), "invalid time, size or text"),
        ("files", with_stored(taken="soon"), "invalid time"),
        ("files", with_stored(taken="9999-12-31T23:59:59+00:00"), "in the future; check the clock"),
        ("files", with_stored(taken="0001-01-01T00:00:00+14:00"), "invalid time"),
        ("files", with_stored(size="7"), "is damaged or has another form"),
        ("files", lambda row: row._replace(key=f"../{row.key}"), "not a file of"),
        ("manifest", with_stored(data=b"no gzip"), "is invalid"),
        ("manifest", lambda row: row._replace(key="table.json"), "not a file of"),
        ("files", with_index({0: Packed(b"{}")}), "a page index of the store cannot be read"),
        ("files", with_index({99_999: Indexes(b"x")}), "it is damaged or has another form"),
        ("files", with_index({999: Indexes(b"x")}), "a row group that its footer"),
    ],
)
def test_refuses_invalid_values(
    place: Path, empty: Catalogue, of: str, change: Callable[[Entry], Entry], message: str
) -> None:
    replace_rows(place, change, manifests=of == "manifest")
    refused(empty, place, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [*rows, rows[-1]], "twice, or not in the order"),
        (lambda rows: [row._replace(key=row.key.replace("CC-MAIN-2", "CC-MAIN-12")) for row in rows], "not a file of"),
        (lambda rows: [rows[0], *rows[:0:-1]], "twice, or not in the order"),
        (lambda rows: [*rows, rows[0]], "not a file of"),
    ],
)
def test_refuses_other_footers(
    place: Path, empty: Catalogue, change: Callable[[list[Entry]], list[Entry]], message: str
) -> None:
    replace_file(place, lambda path: write_rows(path, change(read_rows(path))))
    refused(empty, place, message)


def test_compares_footers_with_the_source(place: Path, empty: Catalogue) -> None:
    """Valid footers of other files can only be found by asking the source."""

    def swap(path: Path) -> None:
        _, *rows = read_rows(path)
        write_rows(path, [b._replace(key=a.key) for a, b in zip(rows, [*rows[1:], rows[0]], strict=True)])

    crawl = next(iter(files_of(place)))
    replace_file(place, swap)
    refused(empty, place, "that the source does not have as it is|has another footer of|is invalid", compare=1)
    assert empty.pull(str(place), crawls=crawl, compare=0).files > 0


@pytest.mark.in_part(2)
@pytest.mark.parametrize("derived", [True, False])
def test_false_page_indexes_are_not_stored(tmp_path: Path, *, derived: bool) -> None:
    """Page indexes that an earlier version derived are dropped; those of the files are compared with the source."""
    keys = [f"com,example)/{number:02}" for number in range(40)]
    mirror = crawl_of(tmp_path / "mirror", table(keys), data_page_size=1, write_batch_size=10)
    settings = Settings(source=str(mirror), cache=tmp_path / "cache")
    with catalogue.open(tmp_path / "mine", settings=settings) as mine:
        mine.harvest(CRAWL, pages=True)
        mine.export_snapshot(tmp_path / "snapshot")

    def falsify(row: Entry) -> Entry:
        """Claim that each page has only its first key, and the last page the last."""
        bounds = [Bounds(key.encode(), key.encode()) for key in (*keys[:30:10], keys[-1])]
        false = encode_column_index(ColumnIndex(tuple(bounds), None))
        indexes = replace(row.indexes[0], column_index=false, bounds=bounds[0])
        as_derived = Packed(packed_as_derived(false, dict(indexes.offset_indexes), {}))
        return row._replace(indexes={0: as_derived if derived else indexes})  # type: ignore[dict-item]

    replace_rows(tmp_path / "snapshot", falsify)
    with catalogue.open(tmp_path / "theirs", settings=settings) as theirs:
        if derived:
            assert theirs.pull(str(tmp_path / "snapshot")).row_groups == 0
            assert values_of(theirs)["indexes"] == {}
        else:
            refused(theirs, tmp_path / "snapshot", "has another page index of", compare=1)
            theirs.pull(str(tmp_path / "snapshot"), compare=0)
            (stored,) = indexes_in(values_of(theirs)).values()
            assert stored.bounds is None
            (finding,) = theirs.check(read_subset="100%").findings
            assert finding.what == "the stored page index differs from the file's"


def test_stores_a_crawl_in_bounded_memory(empty: Catalogue, tmp_path: Path) -> None:
    written = BytesIO()
    pq.write_table(pa.table({"url_surtkey": ["com,example)/"]}), written)
    data = written.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    value = StoredFile(footer, len(data), None, None, "https://example.org/", "2026-01-01T00:00:00+00:00")
    index = Indexes(Random(0).randbytes(1_300_000), {})
    paths = [f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/{number:05}.parquet" for number in range(40)]
    file = SnapshotFile(CRAWL, 1, "0" * 64)
    (tmp_path / "crawls").mkdir()
    write_rows(tmp_path / file.name, [Entry(path, value, {0: index}) for path in paths])
    (tmp_path / MANIFEST).write_bytes(pack_manifest([file]))
    replace_file(tmp_path, lambda _: None)
    with memory_below(3 * MAX_DOCUMENT):
        pulled = empty.pull(str(tmp_path), compare=0)
    assert pulled.files == pulled.row_groups == len(paths)
    assert len(index.pack()) * len(paths) > 3 * MAX_DOCUMENT
