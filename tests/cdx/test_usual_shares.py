"""First searches in a list, where nothing is stored: the requests that published figures save or cost."""

from statistics import mean
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster import in_folder, make_list, search_costs
from catalogue.cdx.cluster import parse_blocks
from catalogue.cdx.list_search import USUAL
from catalogue.cdx.usual_shares import usual_share
from tests.support.amounts import in_soak
from tests.support.served_lists import CRAWL

SEARCHES = 150
BISECTION = 9
"""Requests of a bisection in a list of 26 MB, with its end and the last part."""


@pytest.fixture(scope="module")
def published() -> bytes:
    return make_list(300_000, published=True)


def reversed_alphabet(data: bytes) -> bytes:
    """Replace the letters of all keys, so that ``com`` is at the end of the list, and names are divided otherwise."""
    letters = bytes.maketrans(ascii_lowercase.encode(), ascii_lowercase[::-1].encode())
    keys, rests = zip(*(line.split(b"\t", 1) for line in data.splitlines(keepends=True)), strict=True)
    return b"".join(
        b"\t".join(line) for line in zip(sorted(key.translate(letters) for key in keys), rests, strict=True)
    )


def costs(data: bytes) -> list[list[int]]:
    with in_folder(data) as folder:
        return [*search_costs(folder, parse_blocks(CRAWL, data), USUAL, SEARCHES)]


@in_soak
def test_few_requests_where_keys_are_divided_as_published(published: bytes) -> None:
    first, received, _, second, *_ = zip(*costs(published), strict=True)
    assert mean(first) <= 4
    assert max(first) <= 8
    assert mean(second) <= 2.5
    assert mean(received) <= 300_000


@in_soak
def test_two_requests_more_than_bisection_where_they_are_not(published: bytes) -> None:
    first, received, _, second, *_ = zip(*costs(reversed_alphabet(published)), strict=True)
    assert max(first) <= BISECTION + 2
    assert max(second) <= BISECTION + 1
    assert max(received) <= 1_000_000


@given(st.lists(st.text("-.019abcdehmokrux,)/z").map(str.encode), min_size=2))
def test_shares_never_decrease(keys: list[bytes]) -> None:
    shares = [usual_share(key) for key in [b"", *sorted(keys), b"zzz"]]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)


@pytest.mark.parametrize(
    ("start", "end", "share"), [("com,", "com-", 0.43), ("com,m", "com,n", 0.027), ("uk,co,", "uk,co-", 0.017)]
)
def test_shares_are_near_published_figures(start: str, end: str, share: float) -> None:
    assert usual_share(end.encode()) - usual_share(start.encode()) == pytest.approx(share, rel=0.1)
