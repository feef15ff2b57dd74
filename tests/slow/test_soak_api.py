"""A little of what ``tests.slow.api`` does at length."""

from pathlib import Path

import pytest

from tests.slow.api import run


@pytest.mark.timeout(600)
def test_whatever_is_asked_the_server_is_not_at_fault(tmp_path: Path) -> None:
    figures = run(300, 1, tmp_path)
    statuses = figures["statuses"]
    assert isinstance(statuses, dict)
    assert min(statuses[status] for status in (200, 400, 404)) > 20
