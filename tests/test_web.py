"""The pages of a running server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue.settings import Settings
from tests.serving import get, serving


@pytest.fixture(scope="module")
def site(harvested_data: Path, settings: Settings) -> Iterator[str]:
    with serving(harvested_data, settings) as address:
        yield address


def test_crawlers_are_asked_to_stay_away(site: str) -> None:
    answer = get(site, "/robots.txt")
    assert (answer.status, answer.text) == (200, "User-agent: *\nDisallow: /\n")
