"""Fixtures of tests of records."""

from collections.abc import Iterator

import pytest

from catalogue.records.document import Documents


@pytest.fixture(scope="module")
def documents() -> Iterator[Documents]:
    with Documents() as made:
        yield made
