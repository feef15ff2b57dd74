"""A little of what ``tests.slow.mutations`` does at length."""

from pathlib import Path

import pytest

from tests.slow.mutations import run


@pytest.mark.timeout(600)
def test_damaged_files_are_refused_or_read_rightly(mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "mirror").symlink_to(mirror)  # so that it need not make one
    figures = run(5000, 1, tmp_path)
    verdicts = figures["verdicts"]
    assert isinstance(verdicts, dict)
    assert min(verdicts[what] for what in ("refused", "an error", "right", "right, an index disbelieved")) > 50
    assert verdicts["through a catalogue"] > 10
    assert not figures["deaths"]
