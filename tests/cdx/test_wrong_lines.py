"""Lists of blocks with one wrong line, searched and read completely."""

import re
from collections.abc import Callable
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.cdx.cluster import BlockList, parse_file
from catalogue.errors import BadCdx
from catalogue.surt import exact_interval
from tests.support.served_lists import BLOCKS, CRAWL, PATH, served


def between(line: bytes, cut: int, text: bytes) -> bytes:
    cut %= len(line)
    return line[:cut] + text + line[cut:]


LINE_FAULTS: list[Callable[[bytes, int], bytes]] = [
    lambda line, _: b"\xef\xbb\xbf" + line,
    lambda line, _: line[:-1] + b"\r\n",
    lambda line, _: b"\n" + line,
    lambda line, _: line + line,
    lambda _, __: b"",
    lambda line, _: line.decode().encode("utf-16"),
    lambda line, _: line.replace(b"\t", b" "),
    lambda line, _: line.replace(b" ", b"\t"),
    lambda line, _: line.upper(),
    lambda line, at: between(line, at, b"\0"),
    lambda line, at: between(line, at, b"\n"),
    lambda line, at: between(line, at, b"9"),
    lambda line, at: between(line, at, b"-"),
    lambda line, at: between(line, at, b"\xff\xfe"),
    lambda line, at: between(line, at, "é".encode()),
    lambda line, at: between(line, at, b"9" * 40),
    lambda line, at: line[: at % len(line)] + b"\n",
    lambda line, at: line[: at % len(line)],
]


@given(st.sampled_from(LINE_FAULTS), st.sampled_from([0, 1, BLOCKS // 2, BLOCKS - 2, BLOCKS - 1]), st.integers(0, 200))
def test_errors_of_a_wrong_line_name_the_file(
    listed: bytes, blocks: BlockList, fault: Callable[[bytes, int], bytes], number: int, at: int
) -> None:
    """A changed key that remains in order cannot be detected."""
    lines = listed.splitlines(keepends=True)
    lines[number] = fault(lines[number], at)
    data = b"".join(lines)
    errors = []
    with served(data) as server:
        for near in (number - 1, number, number + 1):
            try:
                server.search(shards=300).find(exact_interval(blocks.key(min(max(near, 0), BLOCKS - 1))))
            except BadCdx as error:
                errors.append(str(error))
    try:
        for _ in parse_file(CRAWL, BytesIO(data), len(data), shards=300):
            pass
    except BadCdx as error:
        errors.append(str(error))
    assert all(PATH in error for error in errors)


@pytest.mark.parametrize("number", [0, BLOCKS // 2, BLOCKS - 1])
def test_rejects_byte_order_marks(listed: bytes, blocks: BlockList, number: int) -> None:
    lines = listed.splitlines(keepends=True)
    lines[number] = b"\xef\xbb\xbf" + lines[number]
    data = b"".join(lines)
    with served(data) as server, pytest.raises(BadCdx, match=re.escape(PATH)):
        server.search(shards=300).find(exact_interval(blocks.key(number)))
    with pytest.raises(BadCdx, match=re.escape(PATH)):
        [*parse_file(CRAWL, BytesIO(data), len(data), shards=300)]
