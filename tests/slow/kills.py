"""Commands that write, killed before, within and after calls that change files: nothing is lost or half there."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.slow.committed import Committed
from tests.slow.disk import Entry, Fault
from tests.slow.replay import Image, Replay, taken
from tests.slow.writers import WRITERS, World, Writer, world

_IN_FLIGHT = 16
"""Requests under way at once; see ``Policy.connections``."""


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Kill so many commands; see what is left; and run them again."""
    with world(folder) as made:
        return tried(made, count, seed)


def tried(made: World, count: int, seed: int, names: Sequence[str] = tuple(WRITERS)) -> dict[str, object]:
    """Likewise in a world that is made already."""
    random = Random(f"{seed} kills")
    order = random.sample(names, len(names))
    kills = refetched = most = 0
    for number in range(count):
        writer = WRITERS[order[number % len(order)]]
        calls = max(entry.number for entry in made.right(writer).entries)
        fault = Fault(random.choice(["before", "halfway", "after"]), random.randint(1, calls))
        try:
            twice = _kill(made, writer, fault)
        except AssertionError as error:
            message = f"seed {seed}, {number}: {writer.name!r}, {fault}: {error}"
            raise AssertionError(message) from error
        kills += twice is not None
        refetched += twice or 0
        most = max(most, twice or 0)
    return {"runs": count, "kills": kills, "lost": 0, "partial": 0, "wrong": 0, "refetched": refetched, "most": most}


def _kill(made: World, writer: Writer, fault: Fault) -> int | None:
    """Kill a command and run it again; returns how many requests were made in vain, None if it was not killed."""
    right = made.right(writer)
    before = made.state(writer.before)
    made.reset(before)
    asked = len(made.server.log)
    ran, entries = made.run(writer, fault)
    if ran.status == 0:  # it had fewer calls this time
        made.check(writer, done=True)
        return None
    assert ran.status == -9, f"it came to {ran}"
    struck = entries[-1]
    try:
        _see(made, before, entries)
        made.check(writer, done=False)
        made.check_again(writer)
    except AssertionError as error:
        message = f"at {struck.call.name} of {struck.path}: {error}"
        raise AssertionError(message) from error
    twice = len(made.server.log) - asked - right.requests
    assert twice <= right.requests + _IN_FLIGHT, f"{twice} requests were made again"
    return max(0, twice)


def _see(made: World, before: Image, entries: Sequence[Entry]) -> None:
    """See that what is there is what was written, and that all is there of which that was said."""
    replay = Replay(before, made.work)
    for entry in entries:
        replay.take(entry)
    left = taken(made.work)
    assert left == replay.whole(), "something was written that nobody saw"
    Committed(made, before, entries, only_last=True).check(left, len(entries), replay.synced(".ledger"))
