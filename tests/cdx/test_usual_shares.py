"""First searches in a list, where nothing is stored: the requests that published figures save or cost."""

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster import in_folder, make_list, search_costs
from catalogue.cdx.cluster import parse_blocks
from catalogue.cdx.list_search import USUAL
from catalogue.cdx.usual_shares import usual_share
from tests.support.block_lists import CRAWL

SEARCHES = 150


@pytest.mark.in_soak
def test_few_requests_where_keys_are_divided_as_published() -> None:
    data = make_list(300_000, published=True)
    with in_folder(data) as folder:
        costs = search_costs(folder, parse_blocks(CRAWL, data), USUAL, SEARCHES)
        first, received, _, second, *_ = zip(*costs, strict=True)
    assert mean(first) <= 4
    assert max(first) <= 8
    assert mean(second) <= 2.5
    assert mean(received) <= 300_000


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
