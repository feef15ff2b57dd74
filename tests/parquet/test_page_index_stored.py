"""Stored page indexes."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.errors import BadPageIndex
from catalogue.parquet.model import Bounds
from catalogue.parquet.page_index import ColumnIndex, Indexes, cut_indexes
from tests.support.mirrors import one_of_each_crawl, read_footer
from tests.support.mutators import damage
from tests.support.page_indexes import encode_column_index, packed_as_derived
from tests.support.paged import FEW, KEY, PLAIN, part, parts, written

NAMES = st.text(max_size=5)

BOUNDS = st.tuples(st.binary(max_size=9), st.binary(max_size=9)).map(lambda pair: Bounds(min(pair), max(pair)))

HELD = st.builds(
    Indexes,
    st.one_of(st.none(), st.binary(min_size=1, max_size=9)),
    st.dictionaries(NAMES, st.binary(max_size=9), max_size=4),
    st.one_of(st.none(), BOUNDS),
)


@given(HELD)
def test_bounds_of_read_keys_are_not_written_in_the_file(stored: Indexes) -> None:
    written = stored.written or Indexes()
    assert written == Indexes(stored.column_index, stored.offset_indexes)
    assert (stored.written is None) == (written == Indexes())


@given(st.lists(st.one_of(st.none(), BOUNDS), min_size=1, max_size=5))
def test_derived_indexes_of_earlier_versions_give_the_bounds_of_the_row_group(bounds: list[Bounds | None]) -> None:
    column_index = encode_column_index(ColumnIndex(tuple(bounds), None))
    known = [each for each in bounds if each]
    expected = Bounds(min(each.min for each in known), max(each.max for each in known)) if known else None
    packed = packed_as_derived(column_index, {"url": b"1234"}, {0: [("a", "b"), ("c", "d")]})
    assert Indexes.unpack(packed) == Indexes(bounds=expected)


def test_derived_offset_indexes_of_earlier_versions_are_ignored() -> None:
    assert Indexes.unpack(packed_as_derived(b"", {"url": b"1234"}, {})) == Indexes()


@pytest.mark.parametrize(
    "packed",
    [
        *(b"", b"\n", b"null\n", b"[]\n", b'"text"\n', b"\xff\n", b"{}\n", b"[" * 100_000 + b"\n", b"9" * 5000 + b"\n"),
        b'{"own": false, "column_index": 0}\n',
        b'{"own": false, "offset_indexes": []}\n',
        b'{"column_index": 0, "offset_indexes": []}\n',
        b'{"own": 0, "column_index": 0, "offset_indexes": []}\n',
        b'{"own": false, "column_index": 1, "offset_indexes": []}\nab',
        b'{"own": false, "column_index": 0, "offset_indexes": [["a", 1]]}\n',
        b'{"own": false, "column_index": 0, "offset_indexes": [["a", 1]]}\nab',
        b'{"own": false, "column_index": 2, "offset_indexes": [["a", -1]]}\na',
        b'{"own": false, "column_index": -1, "offset_indexes": [["a", 2]]}\na',
        *(
            b'{"own": false, "column_index": %b, "offset_indexes": []}\n' % value
            for value in (b"1", b"Infinity", b"1e999", b"NaN", b"0.0", b'"0"')
        ),
        b'{"own": false, "column_index": true, "offset_indexes": []}\na',
        b'{"own": false, "column_index": 0, "offset_indexes": [["a", Infinity]]}\n',
        b'{"own": false, "column_index": 0, "offset_indexes": ["a1"]}\na',
        b'{"own": false, "column_index": 0, "offset_indexes": [[null, 1]]}\na',
        b'{"own": false, "column_index": 0, "offset_indexes": [["a", 1, 1]]}\na',
        b'{"own": false, "column_index": 0, "offset_indexes": 0}\n',
        *(
            b'{"own": false, "column_index": 0, "offset_indexes": [], "bounds": %b}\n' % bounds
            for bounds in (b'["b", "a"]', b'["a"]', b"[1, 2]", b"null", b'["a", "\\u0439"]')
        ),
        b'{"own": true, "column_index": 3, "offset_indexes": []}\nabc',
        b'{"own": true, "column_index": 1, "offset_indexes": []}\n\0',
    ],
)
def test_rejects_invalid_packed_indexes(packed: bytes) -> None:
    with pytest.raises(BadPageIndex, match="a page index of the store cannot be read"):
        Indexes.unpack(packed)


def test_cuts_indexes_from_fetched_bytes(mirror: Path) -> None:
    files = [path.read_bytes() for path in one_of_each_crawl(mirror)] + [written(row_group_size=50)]
    rng, found_some = Random(1), 0
    for data in files:
        footer, every = read_footer(data), parts(data)
        places = sorted({at.start for each in every for at in (each.chunk.offset_index, each.chunk.column_index) if at})
        windows = [(0, len(data))]
        windows += [
            (max(0, rng.choice(places) + rng.choice([-1, 0, 0, 1])), rng.randrange(1, 9000)) for _ in places[:30]
        ]
        for start, size in windows:
            body = data[start : start + size]
            cut = cut_indexes(footer, KEY, body, start)
            expected: dict[int, tuple[bytes | None, dict[str, bytes]]] = {}
            for each in every:
                for at, is_bounds in ((each.chunk.offset_index, False), (each.chunk.column_index, True)):
                    name = each.chunk.column.name
                    inside = at and start <= at.start and at.end <= start + len(body)
                    if at and inside and (name == KEY or not is_bounds):
                        _, located = expected.setdefault(each.row_group, (None, {}))
                        if is_bounds:
                            expected[each.row_group] = (data[at.start : at.end], located)
                        else:
                            located[name] = data[at.start : at.end]
            assert {n: (stored.column_index, stored.offset_indexes) for n, stored in cut.items()} == expected
            assert not any(stored.bounds for stored in cut.values())
            found_some += len(cut) > 0
    assert found_some > 20


def test_bounds_are_not_cut_without_the_key_column() -> None:
    data = written()
    cut = cut_indexes(read_footer(data), "no such column", data, 0)
    assert [stored.column_index for stored in cut.values()] == [None]
    assert [{*stored.offset_indexes} for stored in cut.values()] == [{KEY, PLAIN, FEW}]


def test_damaged_indexes_of_the_store() -> None:
    located = {name: part(name).offset_index for name in (KEY, PLAIN, FEW)}
    packed, rng = Indexes(part(KEY).column_index, located, Bounds(b"a", b"b")).pack(), Random(5)
    head, refused = packed.index(b"\n") + 1, 0
    for number in range(1500):
        # A change of the body alone is not noticed here: the store has a digest of it all.
        rest = packed[head:] if number < 1000 else b""
        try:
            found = Indexes.unpack(damage(packed[: len(packed) - len(rest)], rng, [packed]) + rest)
        except BadPageIndex:
            refused += 1
            continue
        assert Indexes.unpack(found.pack()) == found
        assert found.bounds is None or found.bounds.min <= found.bounds.max
        assert all(type(name) is str and type(stored) is bytes for name, stored in found.offset_indexes.items())
        assert found.column_index is None or type(found.column_index) is bytes
    assert 700 < refused < 1400
