"""Files of other writers: rows equal those of a scan of the files, or an error names file and column."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue import Catalogue
from catalogue.commoncrawl.crawls import KEY_COLUMN
from catalogue.errors import BadFooter
from catalogue.parquet.model import TRAILER, Bounds, with_trailer
from catalogue.parquet.page_index import decode_column_index, decode_offset_index
from catalogue.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Reader, encode_list, encode_struct
from catalogue.session import Session
from catalogue.settings import Settings
from tests.support.amounts import EXAMPLES, in_part, part_of
from tests.support.crawls import crawl_of, harvest_footers, table
from tests.support.footers import Items, Made, field, made, write
from tests.support.mirrors import read_footer
from tests.support.own_tables import KEY, dataset_of, edited, rows_of, scan
from tests.support.page_indexes import encode_column_index

ROWS = 3000
TABLE = pa.table({KEY: [f"key{row:06}" for row in range(ROWS)], "number": range(ROWS)})


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1704112496123456, None, 253402214400000000], pa.timestamp("us")),
        pa.array([-1, 0, 253402300799000000], pa.timestamp("us")),
    ],
)
def test_int96_times_keep_microseconds_and_all_years(times: pa.Array) -> None:
    table = pa.table({KEY: ["a", "b", "c"], "time": times})
    data = write(table, use_deprecated_int96_timestamps=True)
    with dataset_of({"a.parquet": data}) as cat:
        assert cat.captures("*").to_arrow()["time"].to_pylist() == times.to_pylist()


def test_int96_times_finer_than_microseconds_are_an_error() -> None:
    table = pa.table({KEY: ["a"], "time": pa.array([1704141296123456789], pa.timestamp("ns"))})
    with (
        dataset_of({"a.parquet": write(table, use_deprecated_int96_timestamps=True)}) as cat,
        pytest.raises(BadFooter, match=r"a\.parquet, row group 0, column time: .*finer than a microsecond"),
    ):
        cat.captures("*").to_arrow()


OTHERS = {
    "a year after nanoseconds": (
        pa.array([1704141296123456789], pa.timestamp("ns")),
        pa.array([253402300799000], pa.timestamp("ms")),
    ),
    "an integer next to doubles": (pa.array([0.5]), pa.array([(1 << 53) + 1])),
    "a large unsigned integer next to doubles": (pa.array([0.5]), pa.array([(1 << 64) - 1], pa.uint64())),
}


@in_part(3)
@pytest.mark.parametrize("values", OTHERS.values(), ids=OTHERS)
def test_a_value_that_its_common_type_does_not_contain_is_an_error(values: tuple[pa.Array, pa.Array]) -> None:
    files = {
        f"{name}.parquet": write(pa.table({KEY: [name], "value": value}))
        for name, value in zip("ab", values, strict=True)
    }
    with dataset_of(files) as cat:
        assert cat.captures("a").to_arrow()["value"].to_pylist() == values[0].to_pylist()
        with pytest.raises(BadFooter, match=r"b\.parquet, row group 0, column value: "):
            cat.captures("*").to_arrow()


def test_times_of_own_datasets_of_urls_keep_their_unit() -> None:
    time = datetime(2024, 1, 1, 12, 0, 0, 123456, UTC)
    table = pa.table({"url_surtkey": ["com,example)/"], "fetch_time": pa.array([time], pa.timestamp("us", "UTC"))})
    with dataset_of({"a.parquet": write(table)}, key="url_surtkey") as cat:
        found = cat.captures("example.com", from_="2024-01-01", to="2024-01-02").to_arrow()
        assert found["fetch_time"].to_pylist() == [time]


def test_floats_compare_with_literals_as_in_a_scan() -> None:
    table = pa.table({KEY: ["a", "b"], "value": pa.array([0.1, 0.7], pa.float32())})
    with dataset_of({"a.parquet": write(table)}) as cat:
        for where in ("value = 0.1", "value > 0.1", "value in (0.1, 0.7)", "value <> 0.7", "value < 0.7"):
            assert cat.captures("*", where=where).count() == len(scan(table, where)), where


def test_columns_with_names_of_the_index_keep_their_values() -> None:
    table = pa.table({KEY: ["a", "b"], "fetch_status": [-1, 200], "content_mime_type": ["unk", "x"]})
    with dataset_of({"a.parquet": write(table)}) as cat:
        assert rows_of(cat.captures("*").to_arrow()) == rows_of(table)
        assert cat.captures("*", where="fetch_status = -1 AND content_mime_type = 'unk'").count() == 1


TEXTS = st.text(" \t\n*ab#,é", max_size=3)


@settings(max_examples=EXAMPLES // 2)
@given(st.lists(TEXTS | st.none(), min_size=1, max_size=12), TEXTS, st.booleans())
def test_text_keys_are_taken_as_they_are(keys: list[str | None], searched: str, pages: bool) -> None:  # noqa: FBT001
    inorder = sorted(keys, key=lambda key: (key is None, (key or "").encode()))
    table = pa.table({KEY: pa.array(inorder, pa.string()), "number": range(len(keys))})
    data = write(table, row_group_size=4, data_page_size=1, write_batch_size=2)
    with dataset_of({"a.parquet": data}, pages=pages) as cat:
        for match in ("exact", "prefix"):
            prefix = searched.removesuffix("*") if match == "prefix" else None
            expected = [
                key
                for key in inorder
                if (key == searched if prefix is None else prefix == "" or (key or "").startswith(prefix))
            ]
            found = cat.captures(searched, match=match)
            assert sorted(map(repr, found.to_arrow()[KEY].to_pylist())) == sorted(map(repr, expected))
            assert found.count() == len(expected)


def test_rows_without_a_key_are_rows() -> None:
    table = pa.table({KEY: ["a", None, "b", None], "number": [1, 2, 3, 4]})
    every = pa.table({KEY: pa.nulls(2, pa.string()), "number": [5, 6]})
    with dataset_of({"a.parquet": write(table), "b.parquet": write(every)}) as cat:
        assert sorted(cat.captures("*").to_arrow()["number"].to_pylist()) == [1, 2, 3, 4, 5, 6]
        assert cat.captures("*").count() == 6
        assert sorted(cat.captures("*", where="k is null").to_arrow()["number"].to_pylist()) == [2, 4, 5, 6]
        assert cat.captures("*", where="number > 3").count() == 3
        assert cat.captures("*", limit=5).to_arrow().num_rows == 5
        assert cat.captures("a*").to_arrow()["number"].to_pylist() == [1]
        scanned = cat.scan()
        assert scanned.select(pl.len()).collect().item() == 6
        assert scanned.filter(pl.col(KEY).is_null()).collect().height == 4
        assert scanned.filter(pl.col(KEY).is_not_null()).collect().height == 2


def test_folders_with_values_are_columns() -> None:
    names = ["date=2024-01-01/kind=a%20b", "date=2024-01-02/kind=__HIVE_DEFAULT_PARTITION__", "date=2024-01-02/kind="]
    files = {
        f"{name}/x.parquet": write(pa.table({KEY: ["a", "b"], "number": [at, at + 10]}))
        for at, name in enumerate(names)
    }
    with dataset_of(files) as cat:
        found = cat.captures("b").to_arrow()
        assert sorted(found.select([KEY, "number", "date", "kind"]).to_pylist(), key=lambda row: row["number"]) == [
            {KEY: "b", "number": 10, "date": "2024-01-01", "kind": "a b"},
            {KEY: "b", "number": 11, "date": "2024-01-02", "kind": None},
            {KEY: "b", "number": 12, "date": "2024-01-02", "kind": ""},
        ]
        assert cat.captures("*", where="date = '2024-01-02'", columns=["number"]).count() == 4


def test_nested_columns_are_left_out() -> None:
    deep, value = pa.int64(), 1
    for _ in range(18):
        deep, value = pa.struct([("x", deep)]), {"x": value}  # type: ignore[assignment]
    files = {
        "a.parquet": write(pa.table({KEY: ["a"], "list": [[1]], "deep": pa.array([value], deep)})),
        "b.parquet": write(pa.table({KEY: ["b"], "list": [1], "s": [{"x": 1}], "s.x": [2]})),
    }
    with dataset_of(files) as cat:
        assert cat.captures("*").to_arrow().to_pylist() == [{KEY: "a", "s.x": None}, {KEY: "b", "s.x": 2}]
        with pytest.raises(BadFooter, match=r"a\.parquet: column list has more than one value a row"):
            cat.captures("*", columns=["list"]).to_arrow()


def other_number_of_rows(footer: Made) -> None:
    """A file of apache/parquet-testing states 0."""
    field(footer.fields, 3, 0)


def own_path(footer: Made) -> None:
    for column in range(2):
        field(footer.chunk(0, column), 1, b"a.parquet", BINARY)


def no_names(footer: Made) -> None:
    """arrow-rs 58 can leave out the paths of columns in the schema."""
    for column in range(2):
        del footer.meta(0, column)[3]


def unlisted_encodings(footer: Made) -> None:
    """Parquet.Net lists RLE, BIT_PACKED and PLAIN."""
    for column in range(2):
        footer.meta(0, column)[2] = (LIST, Items(I32, [3, 4, 0]))


def without_dictionary_headers(data: bytes) -> Callable[[Made], None]:
    """Return an edit that gives chunks the sizes that parquet-mr before 1.2.9 wrote."""

    def edit(footer: Made) -> None:
        footer.fields[6] = (BINARY, b"parquet-mr version 1.2.8")
        for group in range(len(footer.fields[4][1].values)):
            for column in range(2):
                meta = footer.meta(group, column)
                reader = Reader(data, meta[11][1])
                reader.struct()
                field(meta, 7, meta[7][1] - (reader.position - meta[11][1]))

    return edit


SMALL = write(TABLE, row_group_size=1000, write_page_index=False)
WRITERS: dict[str, Callable[[], bytes]] = {
    "paths of chunks": lambda: edited(write(TABLE), own_path),
    "chunks without the names of columns": lambda: edited(write(TABLE), no_names),
    "another number of rows of the file": lambda: edited(write(TABLE), other_number_of_rows),
    "encodings that the footer does not list": lambda: edited(
        write(TABLE, use_dictionary=False, column_encoding={KEY: "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}),
        unlisted_encodings,
    ),
    "sizes without the header of the dictionary": lambda: edited(SMALL, without_dictionary_headers(SMALL)),
}


@in_part(3)
@pytest.mark.parametrize("make", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("pages", [False, True])
def test_reads_what_other_writers_write(make: Callable[[], bytes], pages: bool) -> None:  # noqa: FBT001
    with dataset_of({"a.parquet": make()}, pages=pages) as cat:
        assert rows_of(cat.captures("*").to_arrow()) == rows_of(TABLE)
        assert cat.captures("key000100").to_arrow()["number"].to_pylist() == [100]


def test_an_empty_list_of_row_groups_has_any_type() -> None:
    """Fastparquet writes a list without a type."""
    empty = edited(write(TABLE[:0]), lambda footer: field(footer.fields, 4, Items(0, []), LIST))
    with dataset_of({"a.parquet": empty, "b.parquet": SMALL}) as cat:
        assert rows_of(cat.captures("*").to_arrow()) == rows_of(TABLE)


def test_largest_values_that_were_cut_are_no_bounds() -> None:
    """The column index of segmentio/parquet-go has the first bytes of the largest keys."""
    data = write(TABLE, data_page_size=1, write_batch_size=100)
    chunk = read_footer(data).row_groups[0].chunks[KEY]
    assert chunk.column_index
    assert chunk.offset_index
    pages = decode_offset_index(data[chunk.offset_index.start : chunk.offset_index.end], chunk, ROWS)
    index = decode_column_index(data[chunk.column_index.start : chunk.column_index.end], chunk, pages)
    cut = encode_column_index(
        replace(index, bounds=tuple(each and Bounds(each.min[:6], each.max[:6]) for each in index.bounds))
    )
    footer = made(data)
    footer.fields[6] = (BINARY, b"github.com/segmentio/parquet-go")
    del footer.meta(0, 0)[12]  # the statistics
    field(footer.chunk(0, 0), 6, footer.rest - TRAILER)
    field(footer.chunk(0, 0), 7, len(cut))
    file = data[: footer.rest - TRAILER] + cut + with_trailer(footer.footer)
    with dataset_of({"a.parquet": file}, pages=True) as cat:
        assert cat.captures("key000100").to_arrow()["number"].to_pylist() == [100]


def test_reads_dictionaries_with_and_pages_without_checksums() -> None:
    """A file of parquet-mr 1.11 to 1.13, of apache/parquet-testing, with a column of keys."""
    data = (Path(__file__).parent.parent / "data" / "checksum_of_dictionary_only.parquet").read_bytes()
    with dataset_of({"a.parquet": data}, key="k_") as cat:
        assert rows_of(cat.captures("*").to_arrow()) == rows_of(pq.read_table(pa.BufferReader(data)))


def test_names_the_writer_of_differences_over_32_bits(tmp_path: Path) -> None:
    """DuckDB takes 64 bits for differences of 32-bit values."""
    path = tmp_path / "a.parquet"
    with duckdb.connect() as db:
        values = "SELECT 'a' AS k, (CASE WHEN n % 2 = 0 THEN -1 ELSE 1 END * 2147483647)::INT AS v FROM range(9) t(n)"
        db.execute(f"COPY ({values}) TO '{path}' (FORMAT parquet, PARQUET_VERSION v2)")
    with dataset_of({"a.parquet": path.read_bytes()}) as cat:
        assert cat.captures("*", columns=[KEY]).count() == 9
        with pytest.raises(BadFooter, match=r"a\.parquet, row group 0, column v: .*PARQUET_VERSION v2.*; write v1"):
            cat.captures("*").to_arrow()


def test_names_the_file_of_a_chunk_in_another_file() -> None:
    def elsewhere(footer: Made) -> None:
        own_path(footer)
        for column in range(2):
            field(footer.meta(0, column), 9, 1 << 30)
            footer.meta(0, column).pop(11, None)

    with pytest.raises(BadFooter, match=r"column k is in the file b'a\.parquet'; name that file"):
        read_footer(edited(write(TABLE), elsewhere))


PAGED = write(
    TABLE, write_page_index=True, data_page_size=1, write_batch_size=100, use_dictionary=False, compression="none"
)


def shifted(column: int, first: int, after: int, rows: int) -> bytes:
    """Return the file whose offset index of a column shifts the first rows of some pages."""
    name = TABLE.column_names[column]
    chunk = read_footer(PAGED).row_groups[0].chunks[name]
    assert chunk.offset_index
    index = PAGED[chunk.offset_index.start : chunk.offset_index.end]
    located = decode_offset_index(index, chunk, ROWS)
    pages = [
        encode_struct(
            [
                (1, I64, located.offsets[page]),
                (2, I32, located.offsets[page + 1] - located.offsets[page]),
                (3, I64, located.first_rows[page] + (rows if first <= page < after else 0)),
            ]
        )
        for page in range(len(located))
    ]
    changed = encode_struct([(1, LIST, encode_list(STRUCT, pages))])

    footer = made(PAGED)
    pages_of_all = PAGED[: footer.rest - TRAILER]
    field(footer.chunk(0, column), 4, len(pages_of_all))
    field(footer.chunk(0, column), 5, len(changed))
    return pages_of_all + changed + with_trailer(footer.footer)


@settings(max_examples=EXAMPLES // 2)
@given(st.integers(0, 1), st.integers(1, 29), st.sampled_from([-7, 7, 99]), st.booleans(), st.integers(0, ROWS - 1))
def test_shifted_rows_are_noticed(column: int, page: int, rows: int, pages: bool, row: int) -> None:  # noqa: FBT001
    """All pages from one on, or only that one, claim to begin some rows later or earlier."""
    for after in (30, page + 1):
        with dataset_of({"a.parquet": shifted(column, page, after, rows)}, pages=pages) as cat:
            assert cat.captures(f"key{row:06}").to_arrow().to_pylist() == [{KEY: f"key{row:06}", "number": row}]


KEYS = [f"com,host)/{number:05}" for number in range(9000)]
INVALID = 5000
"""Number of the row with an invalid text."""


def invalid(texts: list[str]) -> pa.StringArray:
    values = pa.array([text.encode() if row != INVALID else text.encode() + b"\xff" for row, text in enumerate(texts)])
    return pa.StringArray.from_buffers(len(values), *values.buffers()[1:])


@in_part(3)
@pytest.mark.parametrize("pages", [True, False], ids=["pages", "whole"])
@pytest.mark.parametrize("column", [KEY_COLUMN, "url"])
def test_only_returned_texts_have_to_be_valid(tmp_path: Path, settings: Settings, column: str, *, pages: bool) -> None:
    """Texts that are not UTF-8 disturb no query of other rows."""
    rows = table(KEYS)
    texts = invalid(rows.column(column).to_pylist())
    rows = rows.set_column(rows.schema.get_field_index(column), column, texts)
    folder = crawl_of(tmp_path / "source", rows, write_page_index=pages, write_statistics=column != KEY_COLUMN)
    chosen = replace(settings, source=str(folder), cache_size=0, bandwidth=1e5, latency=0.001)
    with Catalogue(Session(tmp_path / "data", chosen)) as cat:
        harvest_footers(cat)

        def ask(key: str, where: str | None = None) -> pa.Table:
            return cat.captures(
                f"host.com/{key}*", columns=[KEY_COLUMN, "url"], index="columnar", where=where
            ).to_arrow()

        for around in (INVALID - 1, INVALID + 1):
            assert ask(f"{around:05}").column(KEY_COLUMN).to_pylist() == [KEYS[around]]
        for where in (None, "length(url) > 1", f"{KEY_COLUMN} LIKE 'com%'"):
            with pytest.raises(BadFooter, match=rf"column {column}: .*UTF"):
                ask(f"{INVALID:05}", where)


def test_patterns_of_whole_pages_count_as_scans() -> None:
    """A pattern may cover some pages completely; then keys of other pages do not match."""
    keys = [f"h{row // 200}" for row in range(2000)]
    rows = pa.table({KEY: keys, "kind": ["rare" if row % 977 == 5 else f"kind{row % 7}" for row in range(2000)]})
    data = write(rows, data_page_size=1, write_batch_size=100, use_dictionary=False)
    with dataset_of({"a.parquet": data}, pages=True) as cat:
        for host in part_of(range(10), 3):
            for where in ("kind = 'rare'", "kind = 'kind3'", "kind <> 'kind3'"):
                expected = len(scan(rows, f"k = 'h{host}' AND {where}"))
                assert cat.captures(f"h{host}", where=where).count() == expected
                assert cat.captures(f"h{host}", where=where).to_arrow().num_rows == expected
                assert cat.captures(f"h{host}", where=where, limit=3).count() == min(3, expected)
