"""Gzip members: decompressed within a limit, with the same result and the same errors by each decompressor."""

import gzip
import zlib
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.commoncrawl.gzip_members import MAX_DOCUMENT, inflate, inflate_by_isal, inflate_by_zlib
from catalogue.errors import BadManifest
from tests.support.memory import memory_below
from tests.support.rot import flip

COMPLETE = gzip.compress(b"some text that is long enough " * 9, mtime=0)
WITH_NAME = COMPLETE[:3] + b"\x08" + COMPLETE[4:10] + b"name\0" + COMPLETE[10:]

Inflate = Callable[[bytes, int], bytes]


@pytest.fixture(params=[lambda data, limit: inflate(data, limit=limit), inflate_by_zlib], ids=["fastest", "zlib"])
def inflated(request: pytest.FixtureRequest) -> Inflate:
    found: Inflate = request.param
    return found


def test_inflates_up_to_the_limit(inflated: Inflate) -> None:
    data = gzip.compress(bytes(1000), mtime=0)
    assert inflated(data, 1000) == bytes(1000)
    with pytest.raises(BadManifest, match="inflates to more than 999 bytes"):
        inflated(data, 999)
    assert inflated(gzip.compress(b"", mtime=0), 0) == b""
    assert inflated(WITH_NAME, 1000) == inflated(COMPLETE, 1000)


def test_gzip_bomb_is_not_inflated(inflated: Inflate) -> None:
    bomb = gzip.compress(bytes(6 * MAX_DOCUMENT), 1, mtime=0)
    assert len(bomb) < 1 << 20
    with memory_below(4 * MAX_DOCUMENT), pytest.raises(BadManifest, match="inflates to more than 16,777,216 bytes"):
        inflated(bomb, MAX_DOCUMENT)


SIZE = len(COMPLETE)
TRAILER = range(SIZE - 8, SIZE)
REJECTED: dict[str, tuple[list[bytes], str]] = {
    "every truncation": ([COMPLETE[:length] for length in range(SIZE)], "truncated"),
    "wrong trailer": ([flip(COMPLETE, 8 * at) for at in TRAILER], r"not gzip: .*incorrect (data|length) check"),
    "unknown flags": (
        [COMPLETE[:3] + bytes([flags]) + COMPLETE[4:] for flags in (0x20, 0x40, 0x80)],
        r"not gzip: .*unknown header flags set",
    ),
    "data after the end": ([COMPLETE + end for end in (b"\0", b"x", COMPLETE)], "data after the end"),
    "other formats": ([b"<html></html>", zlib.compress(b"text"), bytes(20)], "not gzip"),
}


@pytest.mark.parametrize("damage", REJECTED)
def test_rejects_damaged_members(inflated: Inflate, damage: str) -> None:
    members, message = REJECTED[damage]
    for member in members:
        with pytest.raises(BadManifest, match=message):
            inflated(member, MAX_DOCUMENT)


@given(data=st.data())
def test_result_and_errors_do_not_depend_on_the_decompressor(data: st.DataObject) -> None:
    text = data.draw(st.binary(max_size=300)) * data.draw(st.integers(1, 20))
    member = bytearray(gzip.compress(text, data.draw(st.integers(0, 9)), mtime=0))
    for at in data.draw(st.lists(st.integers(0, len(member) - 1), max_size=3)):
        member[at] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(member[: data.draw(st.integers(0, len(member)) | st.just(len(member)))])
    changed = cut + data.draw(st.just(b"") | st.binary(max_size=20))
    limit = data.draw(st.integers(0, len(text) + 1))
    assert outcome(lambda: inflate(changed, limit=limit)) == outcome(lambda: inflate_by_zlib(changed, limit))


def outcome(call: Callable[[], bytes]) -> bytes | str:
    try:
        return call()
    except BadManifest as error:
        return str(error)


@pytest.mark.parametrize("level", [1, 6, 9])
def test_zlib_is_not_needed_for_members_without_optional_fields(level: int) -> None:
    pytest.importorskip("isal")
    text = Random(1).randbytes(600_000).hex().encode()
    assert inflate_by_isal(gzip.compress(text, level, mtime=0), len(text)) == text
    assert inflate_by_isal(WITH_NAME, len(text)) is None
