"""Whatever the disk does to commands that write: fails, is full, or loses power; and whenever they are killed.

At length: ``python -m tests.slow kills errors power``.
"""

import errno
from collections.abc import Iterator

import pytest

from tests.slow import errors, kills, power
from tests.slow.disk import Call, Fault, full, why_not
from tests.slow.replay import Replay, taken
from tests.slow.writers import CATALOGUE, STORE, WRITERS, World, world

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=str(why_not())), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("disk")) as found:
        yield found


def test_every_call_is_seen(made: World) -> None:
    """SQLite's, DuckDB's, pyarrow's and Python's: what they are known to have written is what is there."""
    for name in ("harvest", "query, parquet"):
        right = made.right(WRITERS[name])
        replay = Replay(made.state(WRITERS[name].before), made.work)
        for entry in right.entries:
            replay.take(entry)
        assert replay.whole() == right.image
    written = {entry.path for entry in made.right(WRITERS["harvest"]).entries if entry.call is Call.WRITE}
    assert {str(made.work / name) for name in (STORE, f"{STORE}-wal", f"{CATALOGUE}.new/catalogue.duckdb")} <= written


def test_a_fault_strikes_where_it_is_told_to(made: World) -> None:
    writer = WRITERS["query, csv"]
    calls = [entry for entry in made.right(writer).entries if entry.number]
    sync = next(entry for entry in calls if entry.call is Call.SYNC and "x.csv" in entry.path)
    made.reset(made.state(writer.before))
    ran, entries = made.run(writer, Fault("fail", sync.number, errno.EIO))
    struck = [entry for entry in entries if entry.error]
    assert [(entry.number, entry.error) for entry in struck] == [(sync.number, errno.EIO)]
    for kind in ("before", "halfway", "after"):
        made.reset(made.state(writer.before))
        ran, entries = made.run(writer, Fault(kind, 7))
        assert (ran.status, entries[-1].number, entries[-1].error) == (-9, 7, 9)
    made.reset(made.state(writer.before))
    ran, entries = made.run(writer, full(1))
    assert {entry.error for entry in entries if entry.error} == {errno.ENOSPC}
    assert not [entry for entry in entries if entry.takes_room and not entry.error]
    assert ran.status == 74
    assert taken(made.work) == made.state(writer.before)


def test_killed_at_any_call_nothing_is_lost(made: World) -> None:
    figures = kills.tried(made, 6, 1)
    assert figures["kills"] in {5, 6}


def test_a_disk_that_fails_or_is_full_is_one_sentence(made: World) -> None:
    assert errors.tried(made, 8, 1)["hit"] in {6, 7, 8}


def test_a_power_cut_loses_nothing_that_was_safe(made: World) -> None:
    assert power.tried(made, 72, 1, again=6)["images"] == 72
