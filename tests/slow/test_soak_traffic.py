"""Twenty thousand requests of every kind among faults; see ``tests.slow.traffic``."""

from pathlib import Path

import pytest

from tests.slow import traffic

COUNT = 20_000


@pytest.mark.timeout(400)  # longer than any step's own deadline, so that a hang is told of with its step
def test_nothing_is_lost_wrong_or_left_over_while_three_of_ten_requests_go_wrong(tmp_path: Path) -> None:
    figures = traffic.run(COUNT, 1, tmp_path)
    requests, faulted, faults = figures["requests"], figures["faulted"], figures["faults"]
    assert isinstance(requests, int)
    assert isinstance(faulted, int)
    assert isinstance(faults, dict)
    assert requests >= COUNT
    assert 0.27 < faulted / requests < 0.33
    assert len(traffic.KINDS) >= 28
    assert {kind.value for kind in traffic.KINDS} <= faults.keys()
